"""The handlers of `release_on_signals` in this very process: what is installed, what is put back, who is called."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import ClientClosed, ConfigurationError
from leasehold._face import signals
from leasehold._face.signals import _is_inside
from leasehold._runtimes.threads import ThreadSignal
from leasehold.testing import ManualStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leasehold import Client

ONE, TWO = signal.SIGUSR1, signal.SIGUSR2


@pytest.fixture
def seen() -> Iterator[list[Any]]:
    """What the handlers that were there before have got."""
    heard: list[Any] = []
    before = [(number, signal.signal(number, lambda *facts: heard.append(facts))) for number in (ONE, TWO)]
    yield heard
    for number, handler in before:
        signal.signal(number, handler)


@pytest.fixture
def client() -> Iterator[Client]:
    store = ManualStore(autojump=None)
    yield store.connect()
    store.close()


def test_which_signals_end_a_process_unless_others_are_given(client: Client) -> None:
    with client.release_on_signals() as leaving:
        assert repr(leaving) == "<ReleaseOnSignals SIGTERM, SIGINT>"
    before = signal.getsignal(signal.SIGTERM)
    with client.release_on_signals([]) as leaving:
        assert repr(leaving) == "<ReleaseOnSignals nothing>"
        assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("wrong", [10_000, signal.SIGKILL])
def test_what_was_installed_before_a_mistake_is_put_back(client: Client, seen: list[Any], wrong: int) -> None:
    before = signal.getsignal(ONE), signal.getsignal(TWO)
    with pytest.raises((ValueError, OSError)):
        client.release_on_signals([ONE, TWO, wrong])
    assert (signal.getsignal(ONE), signal.getsignal(TWO)) == before
    assert seen == []


def test_a_handler_that_is_not_pythons_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    with pytest.raises(ConfigurationError, match="SIGUSR1 has a handler that is not Python's"):
        client.release_on_signals([ONE])


@pytest.mark.parametrize(("timeout", "complaint"), [(-1, "timeout must be"), ("soon", "timeout must look like")])
def test_how_long_it_may_take_is_checked_before_anything_is_installed(
    client: Client, timeout: Any, complaint: str
) -> None:
    before = signal.getsignal(ONE)
    with pytest.raises(ConfigurationError, match=complaint):
        client.release_on_signals([ONE], timeout=timeout)
    assert signal.getsignal(ONE) == before


def test_the_time_that_is_given_is_the_time_that_is_taken(client: Client) -> None:
    for given, seconds in ((None, 5.0), ("2s", 2.0)):
        with client.release_on_signals([ONE], **({} if given is None else {"timeout": given})) as leaving:
            assert leaving._timeout == seconds


def test_the_handler_before_gets_the_signal_when_the_locks_are_free_and_every_handler_is_put_back(
    client: Client, seen: list[Any]
) -> None:
    before = signal.getsignal(ONE), signal.getsignal(TWO)
    lease = client.lock("x").acquire()
    client.release_on_signals([ONE, TWO])
    signal.raise_signal(TWO)
    assert [number for number, _ in seen] == [TWO]
    assert lease.loss is not None
    assert (signal.getsignal(ONE), signal.getsignal(TWO)) == before
    with pytest.raises(ClientClosed):
        client.lock("x").try_acquire()


def test_a_handler_that_was_undone_and_is_called_all_the_same_passes_the_signal_on(
    client: Client, seen: list[Any]
) -> None:
    lease = client.lock("x").acquire()
    leaving = client.release_on_signals([ONE])
    leaving()
    frame: Any = object()
    leaving._handle(ONE, frame)
    assert seen == [(ONE, frame)]
    lease.check()
    lease.release()


def test_a_handler_that_another_one_has_covered_is_left_where_it_is(client: Client, seen: list[Any]) -> None:
    leaving = client.release_on_signals([ONE])

    def top(*_: object) -> None: ...

    signal.signal(ONE, top)
    leaving()
    assert signal.getsignal(ONE) is top


def frames(*modules: str) -> Any:
    """Frames of these modules, the innermost first."""
    frame: Any = None
    for module in reversed(modules):
        frame = SimpleNamespace(f_globals={"__name__": module}, f_back=frame, f_code=object())
    return frame


@pytest.mark.parametrize(
    ("modules", "inside"),
    [
        ((), False),
        (("shop.orders", "__main__"), False),
        (("leasehold._core.keeper", "__main__"), True),
        (("redis.connection", "leasehold._backends.redis.wire", "__main__"), True),
        (("leaseholder.app", "__main__"), False),
    ],
)
def test_whether_a_signal_found_the_program_inside_this_library(modules: tuple[str, ...], inside: bool) -> None:
    assert _is_inside(frames(*modules)) is inside


def test_a_program_that_only_waits_is_not_inside() -> None:
    frame = frames("leasehold._runtimes.threads", "__main__")
    frame.f_code = ThreadSignal._wait_once.__code__
    assert not _is_inside(frame)


def test_a_signal_that_finds_a_handler_of_the_system_ends_the_program_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    calls: Callable[..., Any] = sent.append
    monkeypatch.setattr(signals, "_send", calls)
    before = signal.getsignal(ONE)
    store = ManualStore(autojump=None)
    client = store.connect()
    leaving = client.release_on_signals([ONE])
    leaving._passed_on = True
    leaving._handle(ONE, None)
    assert sent == [ONE]
    assert signal.getsignal(ONE) == before == signal.SIG_DFL
    store.close()


@pytest.mark.parametrize(
    ("timeout", "modules", "waits", "at_exit"),
    [
        (5.0, ("shop.orders",), 5.0, False),
        (5.0, ("leasehold._core.keeper",), signals.MOMENT, True),
        (0.1, ("leasehold._core.keeper",), 0.1, False),
        (0.1, ("shop.orders",), 0.1, False),
    ],
)
def test_a_program_stands_still_for_a_moment_inside_this_library_and_for_its_time_elsewhere(
    client: Client,
    seen: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    timeout: float,
    modules: tuple[str, ...],
    waits: float,
    at_exit: bool,
) -> None:
    """The store is silent: after its time the program ends by the signal, also when that is shorter than a moment."""
    waited: list[float] = []
    registered: list[tuple[Any, ...]] = []
    leaving = client.release_on_signals([ONE], timeout=timeout)
    runtime: Any = leaving._runtime

    async def wait(_: object, deadline: float) -> bool:
        waited.append(round(deadline - runtime.now(), 6))
        return False

    monkeypatch.setattr(runtime, "wait", wait)
    monkeypatch.setattr(runtime, "spawn", lambda work, _: work.close())
    monkeypatch.setattr("atexit.register", lambda *what: registered.append(what))
    leaving._handle(ONE, frames(*modules))
    assert waited == [waits]
    assert [number for number, _ in seen] == ([] if at_exit else [ONE])
    assert [(what[1], round(what[2] - runtime.now(), 6)) for what in registered] == [(ONE, timeout)] * at_exit
    leaving()


def test_calls_that_wait_on_any_loop_learn_of_the_end_when_the_signal_is_passed_on(
    client: Client, seen: list[Any]
) -> None:
    closed: list[str] = []

    def opened(name: str) -> Any:
        return SimpleNamespace(waiting_calls=SimpleNamespace(close=lambda: closed.append(name)))

    leaving = client.release_on_signals([ONE])
    leaving._opened = [opened("a"), opened("b"), opened("c")]
    leaving._pass_on(ONE)
    assert closed == ["a", "b", "c"]
    assert [number for number, _ in seen] == [ONE]
