"""How a call on a busy lock file waits, how many renewals go at a time, and how often the file is cleaned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.sqlite import backend as module
from leasehold._backends.sqlite.backend import SqliteBackend
from leasehold._backends.sqlite.connection import Busy
from leasehold._backends.sqlite.maintenance import EVERY, SLICE, Cleaning
from leasehold._backends.sqlite.options import Location
from leasehold._runtimes.threads import run
from leasehold.errors import BackendUnavailable
from leasehold.values import Grant
from tests.stores.sqlite.sqlite_support import FakeHost, claim
from tests.unit.planned_waits import PlannedWaits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Runtime(PlannedWaits):
    """Notes how long it is to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def random(self) -> float:
        return 0.5

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds)


class BusyFile:
    """A file that is busy so many times; then it does what the real one does."""

    def __init__(self, backend: Any, times: float) -> None:
        self.times, self.tries = times, 0
        self._file = backend._file

    def perform(self, work: Any, *given: Any) -> Any:
        self.tries += 1
        if self.tries <= self.times:
            raise Busy("the file is busy", backend="the store")
        return self._file.perform(work, *given)

    def close(self) -> None:
        self._file.close()


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


@pytest.fixture
def backend(tmp_path: Path, runtime: Runtime) -> Iterator[Any]:
    made = SqliteBackend(Location(str(tmp_path / "l.db"), private=False, label="the store"), FakeHost(), runtime)
    yield made
    run(made.close())


def busy(backend: Any, times: float) -> BusyFile:
    backend._file = BusyFile(backend, times)
    return backend._file  # type: ignore[no-any-return]


def test_a_busy_file_is_asked_again_in_growing_pauses_of_at_most_five_milliseconds(
    backend: Any, runtime: Runtime
) -> None:
    busy(backend, 20)
    assert isinstance(run(backend.try_acquire(claim())), Grant)
    pauses = [min(0.00003 * 1.5**step, 0.005) for step in range(20)]
    assert runtime.slept == pytest.approx(pauses)


@pytest.mark.parametrize("verb", ["try_acquire", "join", "release"])
def test_a_file_that_stays_busy_is_given_up_after_a_second(backend: Any, runtime: Runtime, verb: str) -> None:
    grant = run(backend.try_acquire(claim()))
    busy(backend, 10**9)
    started = runtime.now()
    with pytest.raises(BackendUnavailable, match="the file is busy") as raised:
        run(getattr(backend, verb)(grant if verb == "release" else claim()))
    assert type(raised.value) is BackendUnavailable
    assert raised.value.backend == "the store"
    assert runtime.now() - started == pytest.approx(module.PATIENCE)
    runtime.slept.clear()
    with pytest.raises(BackendUnavailable):
        run(getattr(backend, verb)(grant if verb == "release" else claim(), runtime.now() + 0.00004))
    assert runtime.slept == pytest.approx([0.00003, 0.00001], rel=0.05)


@pytest.mark.parametrize("verb", ["join", "release"])
def test_a_file_that_is_busy_for_a_moment_does_not_fail_a_call(backend: Any, verb: str) -> None:
    grant = run(backend.try_acquire(claim()))
    busy(backend, 2)
    if verb == "release":
        assert run(backend.release(grant)) is True
    else:
        assert run(backend.join(claim())) is not None
    assert backend._file.tries == 3


def test_many_renewals_let_others_at_the_file_in_between(
    backend: Any, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module.BATCH == 500
    monkeypatch.setattr(module, "BATCH", 2)
    grants = [run(backend.try_acquire(claim(f"ns:{number}"))) for number in range(5)]
    counted = busy(backend, 0)
    answers = run(backend.renew(grants))
    assert [answer.fence for answer in answers] == [grant.fence for grant in grants]
    assert counted.tries == 3
    assert runtime.slept == [0, 0]
    assert run(backend.renew([])) == []


def test_a_slice_is_cleaned_once_in_so_many_requests() -> None:
    started: list[str] = []
    cleaner = Cleaning(FakeHost(), lambda: started.append("cleaning"))
    for times in (0, 1, 2):
        for _ in range(EVERY - 1):
            cleaner.tick()
        assert len(started) == times
        cleaner.tick()
        assert len(started) == times + 1
    assert SLICE > EVERY, "more is cleaned than can have been added"
