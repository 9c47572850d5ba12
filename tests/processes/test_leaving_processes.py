"""Processes that are told to end: what they hold is free for the next at once, and nothing holds their end up.

The ttl is far longer than any of this takes. So what is free has been given back, and what is not free has been left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold import events
from tests.forms import sized
from tests.waiting import LIMIT, eventually
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from verification.lab.redis import RedisServer

WORKER = Path(__file__).with_name("leaving_worker.py")
SOURCE = Path(leasehold.__file__).parents[1]
FACES = ["blocking", "async"]
STORES = ["sqlite", "redis", "postgres", "etcd", "zookeeper"]
LOCKS = 50


def pairs(first: int) -> list[tuple[str, str]]:
    """Each store with one face, by turns; in the long form with both."""
    short = [(store, FACES[(first + turn) % 2]) for turn, store in enumerate(STORES)]
    return sized(short, [(store, face) for store in STORES for face in FACES])


class Process:
    """A worker, on a namespace of its own."""

    def __init__(
        self, face: str, story: str, url: str, locks: int = LOCKS, limit: float = LIMIT, namespace: str | None = None
    ) -> None:
        self.namespace = namespace or uuid.uuid4().hex
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), face, story, url, self.namespace, str(locks), str(limit)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )

    def line(self) -> list[str]:
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()

    def fences(self) -> list[int]:
        words = self.line()
        assert words[:1] == ["ready"], self._process.communicate()[1]
        return [int(fence) for fence in words[1:]]

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Its exit status, and what it complained about."""
        _, complaint = self._process.communicate(timeout=LIMIT)
        return self._process.returncode, complaint

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    processes: list[Process] = []

    def begin(*words: object, **options: object) -> Process:
        processes.append(Process(*words, **options))  # type: ignore[arg-type]
        return processes[-1]

    yield begin
    for process in processes:
        process.close()


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of each store that processes share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/locks.db"
    if request.param == "postgres":
        return str(request.getfixturevalue("database"))
    server = request.getfixturevalue(f"{request.param}_server")
    return str(server.url(f"/{uuid.uuid4().hex}") if request.param == "zookeeper" else server.url)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


# --- on every store


@pytest.mark.parametrize(("url", "face"), pairs(0), indirect=["url"])
def test_what_a_stopped_process_held_is_the_next_holders_at_once(
    start: Callable[..., Process], url: str, face: str
) -> None:
    worker = start(face, "hold", url)
    fences = worker.fences()
    assert len(fences) == LOCKS
    with leasehold.connect(url, namespace=worker.namespace, label="next") as client:
        seen: list[events.Event] = []
        client.on_event(seen.append)
        waiting, got = threading.Event(), list[int]()

        def wait() -> None:
            lease = client.lock("n0").acquire(None, on_wait=lambda *_: waiting.set())
            got.append(lease.fence)
            lease.release()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        assert waiting.wait(LIMIT)
        worker.send(signal.SIGTERM)
        assert worker.end() == (-signal.SIGTERM, "")
        thread.join(LIMIT)
        assert not thread.is_alive(), "who waited was woken"
        for index, fence in enumerate(fences):
            lease = take_now(client.lock(f"n{index}"))
            assert lease.fence > fence
            assert lease.abandoned is not True, "it was released, and did not run out"
            lease.release()
        assert got[0] > fences[0]
        assert any(isinstance(event, events.Acquired) and event.fence == got[0] for event in seen)


def test_what_a_killed_process_held_is_left_to_the_ttl(start: Callable[..., Process], url: str) -> None:
    worker = start("blocking", "hold", url, locks=3)
    worker.fences()
    worker.send(signal.SIGKILL)
    assert worker.end()[0] == -signal.SIGKILL
    with leasehold.connect(url, namespace=worker.namespace) as client:
        assert not any(is_free(client.lock(f"n{index}")) for index in range(3))


@pytest.mark.parametrize(("url", "face"), pairs(1), indirect=["url"])
def test_a_process_that_waits_leaves_the_queue_and_ends_by_its_signal(
    start: Callable[..., Process], url: str, face: str
) -> None:
    namespace = uuid.uuid4().hex
    with leasehold.connect(url, namespace=namespace) as client, client.lock("n0").hold():
        worker = start(face, "wait", url, namespace=namespace)
        assert worker.line() == ["waiting"], worker.end()
        worker.send(signal.SIGTERM)
        assert worker.end() == (-signal.SIGTERM, "")
        state = client.inspect("n0")
        assert state is not None
        assert state.waiting == ()


# --- the end of the process


@pytest.mark.parametrize("face", FACES)
def test_a_signal_may_find_it_anywhere_inside_the_library(start: Callable[..., Process], file: str, face: str) -> None:
    for _ in range(sized(3, 30)):
        worker = start(face, "churn", file, limit=LIMIT / 2)
        worker.fences()
        worker.send(signal.SIGTERM)
        worker.end()  # by the signal, or by an error of the call that it met: the client was closed
        with leasehold.connect(file, namespace=worker.namespace) as client:
            assert is_free(client.lock("kept"))


def test_a_second_signal_ends_it_at_once_although_a_callback_hangs(start: Callable[..., Process], file: str) -> None:
    worker = start("blocking", "stubborn", file, locks=0, limit=600)
    worker.fences()
    worker.send(signal.SIGTERM)
    assert worker.line() == ["leaving"]
    worker.send(signal.SIGTERM)
    assert worker.end() == (-signal.SIGTERM, "")
    with leasehold.connect(file, namespace=worker.namespace) as client:
        assert not is_free(client.lock("n0")), "its holder was not told: it is left to its ttl"


@pytest.mark.parametrize("face", FACES)
def test_a_store_that_is_away_does_not_hold_the_end_up(
    start: Callable[..., Process], redis_server: RedisServer, face: str
) -> None:
    with FaultProxy(redis_server.address) as proxy:
        worker = start(face, "hold", f"redis://127.0.0.1:{proxy.port}", limit=1)
        worker.fences()
        proxy.black_hole()
        worker.send(signal.SIGTERM)
        code, complaint = worker.end()  # long before the ttl
        assert code == -signal.SIGTERM, complaint
    with leasehold.connect(redis_server.url, namespace=worker.namespace) as client:
        assert not is_free(client.lock("n0"))


def test_the_handler_that_was_there_before_ends_the_program(start: Callable[..., Process], file: str) -> None:
    worker = start("blocking", "own handler", file)
    worker.fences()
    worker.send(signal.SIGTERM)
    assert worker.end() == (7, "")
    assert_free(file, worker)


def test_an_interrupt_becomes_what_it_always_was(start: Callable[..., Process], file: str) -> None:
    worker = start("blocking", "hold", file)
    worker.fences()
    worker.send(signal.SIGINT)
    assert worker.line() == ["interrupted", "True"]
    assert worker.end() == (5, "")
    assert_free(file, worker)


def test_two_clients_leave_one_after_the_other(start: Callable[..., Process], file: str) -> None:
    worker = start("blocking", "two clients", file)
    assert worker.line()[0] == "also"
    worker.fences()
    worker.send(signal.SIGTERM)
    assert worker.end() == (-signal.SIGTERM, "")
    assert_free(file, worker)


def test_undone_it_is_as_if_it_had_not_been(start: Callable[..., Process], file: str) -> None:
    worker = start("blocking", "undone", file)
    worker.fences()
    worker.send(signal.SIGTERM)
    assert worker.end() == (-signal.SIGTERM, "")
    with leasehold.connect(file, namespace=worker.namespace) as client:
        assert not is_free(client.lock("n0"))


def test_a_program_that_goes_on_after_all_finds_its_leases_lost_and_its_calls_ended(
    start: Callable[..., Process], file: str
) -> None:
    worker = start("blocking", "goes on", file)
    worker.fences()
    with leasehold.connect(file, namespace=worker.namespace) as client:
        eventually(lambda: (state := client.inspect("n0")) and state.waiting, "its other thread waits")
    worker.send(signal.SIGTERM)
    steps = {tuple(worker.line()) for _ in range(3)}
    assert steps == {("told",), ("closed",), ("lost", "given-back")}
    assert_free(file, worker)


def test_an_async_block_is_cancelled_before_its_lock_is_given_back(start: Callable[..., Process], file: str) -> None:
    worker = start("async", "block", file)
    worker.fences()
    worker.send(signal.SIGTERM)
    assert worker.line() == ["lost", "given-back"]
    assert worker.end() == (-signal.SIGTERM, "")
    assert_free(file, worker)


def take_now(lock: leasehold.Lock) -> leasehold.Lease:
    """The lease of a lock that is free now; only a store that is slow to answer is asked again."""
    while True:
        try:
            return lock.acquire(0)
        except leasehold.BackendError:
            continue


def is_free(lock: leasehold.Lock) -> bool:
    try:
        take_now(lock).release()
    except leasehold.AcquireTimeout:
        return False
    return True


def assert_free(url: str, worker: Process) -> None:
    """Nothing is held or wanted in the namespace of this worker."""
    with leasehold.connect(url, namespace=worker.namespace) as client:
        assert [state.name for state in client.locks()] == []
