"""The pipes that wake waiters: they exist only while somebody waits, and nothing that the dead left is in the way."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import stat
import threading
import time
from pathlib import Path

import pytest

import leasehold
from leasehold._backends.sqlite import notifications
from leasehold._backends.sqlite.notifications import Notifications
from leasehold._backends.sqlite.rows import Notification
from leasehold._runtimes.threads import ThreadSignal
from tests.waiting import eventually


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    path = tmp_path / "locks.db"
    path.touch()
    return path


def pipes(lock_file: Path) -> list[str]:
    return sorted(path.name for path in Path(f"{lock_file}-wake").iterdir())


def test_ring_from_another_client_raises_the_right_signal(lock_file: Path) -> None:
    waiting, ringing = Notifications(str(lock_file)), Notifications(str(lock_file))
    mine, other = ThreadSignal(), ThreadSignal()
    token = waiting.listen()
    assert token is not None
    waiting.expect(7, mine)
    waiting.expect(8, other)
    assert ringing.notify([Notification("key", token, 7)]) == []
    eventually(mine.is_set)
    assert not other.is_set()
    waiting.close()


def test_pipe_and_thread_end_when_nobody_waits(lock_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "LINGER", 0.05)
    bells = Notifications(str(lock_file))
    signal = ThreadSignal()
    before = threading.active_count()
    bells.expect(1, signal)
    token = bells.listen()
    assert bells.listen() == token
    assert pipes(lock_file) == [token]
    del signal
    os.close(os.open(f"{lock_file}-wake/{token}", os.O_WRONLY | os.O_NONBLOCK))
    bells.notify([Notification("key", token or "", 1)])
    bells.close()
    assert pipes(lock_file) == []
    again = bells.listen()
    assert again not in (None, token)
    eventually(lambda: pipes(lock_file) == [])
    eventually(lambda: threading.active_count() == before)


def test_pipe_without_a_reader_is_reported_dead_and_swept_away(lock_file: Path) -> None:
    bells = Notifications(str(lock_file))
    bells.listen()
    dead, young = "0123456789abcdef", "new-0123456789abcdef"
    for name in (dead, young):
        os.mkfifo(f"{lock_file}-wake/{name}")
    assert bells.notify([Notification("key", dead, 3)]) == [Notification("key", dead, 3)]
    assert dead not in pipes(lock_file)
    os.mkfifo(f"{lock_file}-wake/{dead}")
    other = Notifications(str(lock_file))
    while dead in pipes(lock_file):  # not every listener that starts looks for the dead
        other.close()
        other.listen()
    assert young in pipes(lock_file)  # somebody may be about to open it
    bells.close()
    other.close()


def test_bell_that_is_no_pipe_or_no_name_of_ours_is_not_touched(lock_file: Path) -> None:
    bells = Notifications(str(lock_file))
    bells.listen()
    plain = lock_file.parent / "locks.db-wake" / "aaaaaaaaaaaaaaaa"
    plain.write_bytes(b"precious")
    link = lock_file.parent / "locks.db-wake" / "bbbbbbbbbbbbbbbb"
    link.symlink_to(plain)
    for bell in ("aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", "../locks.db", "cccccccccccccccc"):
        assert bells.notify([Notification("key", bell, 3)]) == []
    assert plain.read_bytes() == b"precious"
    assert lock_file.read_bytes() == b""
    bells.close()


def test_full_pipe_does_not_block_whoever_rings(lock_file: Path) -> None:
    Path(f"{lock_file}-wake").mkdir()
    token = "0123456789abcdef"
    os.mkfifo(f"{lock_file}-wake/{token}")
    reader = os.open(f"{lock_file}-wake/{token}", os.O_RDWR | os.O_NONBLOCK)
    ringing = Notifications(str(lock_file))
    for number in range(20_000):
        assert ringing.notify([Notification("key", token, number)]) == []
    os.close(reader)


def test_without_pipes_waiters_ask_again_by_themselves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "locks.db-wake").write_text("in the way")
    client = leasehold.connect(f"sqlite:///{tmp_path}/locks.db")
    lock = client.lock("name", ttl=5)
    lease = lock.acquire()
    threading.Timer(0.2, lease.release).start()
    lock.acquire(timeout=20).release()
    assert "no pipe can be made" in caplog.text
    client.close()


def test_many_threads_of_one_client_share_one_pipe_and_one_listener(tmp_path: Path) -> None:
    client = leasehold.connect(f"sqlite:///{tmp_path}/locks.db")
    lock, done = client.lock("name", ttl=10, fair="strict"), []

    def work() -> None:
        with lock.hold(timeout=60) as lease:
            done.append(lease.fence)

    with lock.hold():
        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        eventually(lambda: len((client.inspect("name") or pytest.fail("not held")).waiting) == 20)
        assert len(pipes(tmp_path / "locks.db")) == 1
    for thread in threads:
        thread.join()
    assert done == sorted(done)
    assert len(set(done)) == 20
    client.close()
    assert pipes(tmp_path / "locks.db") == []


def test_asyncio_waiters_are_woken_and_the_loop_goes_on(tmp_path: Path) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.005)

    async def main() -> list[int]:
        ticking = asyncio.create_task(tick())
        async with leasehold.connect_async(f"sqlite:///{tmp_path}/locks.db") as client:
            lock = client.lock("name", ttl=10)

            async def work() -> int:
                async with lock.hold(timeout=60) as lease:
                    await asyncio.sleep(0.005)
                    return lease.fence

            fences = await asyncio.gather(*(work() for _ in range(20)))
        ticking.cancel()
        return fences

    fences = asyncio.run(main())
    assert len(set(fences)) == 20
    assert ticks > 10


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_forked_child_closes_the_pipe_of_its_parent_and_listens_at_its_own(lock_file: Path) -> None:
    """A copy that it kept open would make a parent that was killed look alive: its waiters would keep their places."""
    bells = Notifications(str(lock_file))
    token = bells.listen()
    assert token is not None
    listener = bells._listener
    assert listener is not None
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - in the child
        try:
            is_open = os.path.exists(f"/proc/self/fd/{listener.descriptor}")  # noqa: PTH110
            os.write(writing, f"{is_open} {bells.listen() not in (None, token)} {bells.is_ours(token)}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        assert answer.read() == "False True False"
    os.waitpid(pid, 0)
    assert bells.listen() == token, "the parent goes on with its own"
    bells.close()


def test_a_listener_that_ended_leaves_no_descriptor_and_no_thread(lock_file: Path) -> None:
    before, threads = descriptors(), threading.active_count()
    for _ in range(3):
        bells = Notifications(str(lock_file))
        mine = ThreadSignal()
        bells.expect(1, mine)  # with a waiter it would look again in ten seconds only
        assert bells.listen() is not None
        listener = bells._listener
        assert listener is not None
        bells.close()
        assert not listener.is_alive()
        assert mine.is_set()
    assert pipes(lock_file) == []
    assert descriptors() <= before
    assert threading.active_count() <= threads


def test_a_call_leaves_no_descriptor_whatever_it_finds(lock_file: Path) -> None:
    waiting, ringing = Notifications(str(lock_file)), Notifications(str(lock_file))
    token = waiting.listen()
    assert token is not None
    plain, dead = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"
    (lock_file.parent / "locks.db-wake" / plain).touch()
    before = descriptors()
    for bell in (token, plain, dead, token):
        os.mkfifo(f"{lock_file}-wake/{dead}")
        ringing.notify([Notification("key", bell, 3)])
        Path(f"{lock_file}-wake/{dead}").unlink(missing_ok=True)
    assert descriptors() <= before
    waiting.close()


def test_many_waiters_that_are_called_at_once_all_wake(lock_file: Path) -> None:
    """The listener may find the numbers of all of them in one read."""
    waiting, ringing = Notifications(str(lock_file)), Notifications(str(lock_file))
    signals = [ThreadSignal() for _ in range(700)]
    for number, signal in enumerate(signals):
        waiting.expect(number, signal)
    token = waiting.listen()
    assert token is not None
    assert ringing.notify([Notification("key", token, number) for number in range(700)]) == []
    eventually(lambda: all(signal.is_set() for signal in signals))
    waiting.close()


def test_a_waiter_of_the_same_client_is_called_without_a_pipe(lock_file: Path) -> None:
    bells = Notifications(str(lock_file))
    mine, other = ThreadSignal(), ThreadSignal()
    bells.expect(1, mine)
    bells.expect(2, other)
    token = bells.listen()
    assert token is not None
    assert bells.is_ours(token)
    assert not bells.is_ours("0123456789abcdef")
    Path(f"{lock_file}-wake/{token}").unlink()
    assert bells.notify([Notification("key", token, 1), Notification("key", token, 99)]) == []
    assert (mine.is_set(), other.is_set()) == (True, False)
    bells.close()
    assert not bells.is_ours(token)


def test_a_listener_does_not_end_between_two_waiters(lock_file: Path) -> None:
    """It may be about to end when somebody asks for its name; the row that names it is not known here yet."""
    bells = Notifications(str(lock_file))
    bells.listen()
    listener = bells._listener
    assert listener is not None
    assert not bells.retire(listener), "it was just asked for"
    signal = ThreadSignal()
    bells.expect(1, signal)
    assert not bells.retire(listener), "somebody waits"
    del signal
    bells.listen()
    assert not bells.retire(listener), "it was asked for once more"
    assert [bells._listener] == [listener]
    assert bells.retire(listener)
    assert [bells._listener] == [None]
    assert bells.retire(listener), "another one may have taken its place"
    bells.close()
    listener.end()


@pytest.mark.parametrize(("rights", "pipe", "folder"), [(0o600, 0o600, 0o700), (0o660, 0o660, 0o770)])
def test_who_may_write_the_lock_file_may_call_its_waiters_and_nobody_else(
    lock_file: Path, rights: int, pipe: int, folder: int
) -> None:
    lock_file.chmod(rights)
    bells = Notifications(str(lock_file))
    before = os.umask(0o077)
    try:
        token = bells.listen()
    finally:
        os.umask(before)
    place = Path(f"{lock_file}-wake")
    assert stat.S_IMODE(place.stat().st_mode) == folder
    assert stat.S_IMODE((place / str(token)).stat().st_mode) == pipe
    bells.close()


def test_pipes_are_not_made_in_a_directory_behind_a_link(lock_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = lock_file.parent / "elsewhere"
    elsewhere.mkdir()
    Path(f"{lock_file}-wake").symlink_to(elsewhere)
    bells = Notifications(str(lock_file))
    assert bells.listen() is None
    assert bells.listen() is None
    assert caplog.text.count("no pipe can be made") == 1, "once is enough"
    assert list(elsewhere.iterdir()) == []
    bells.close()


def test_a_pipe_that_could_not_be_finished_is_removed(lock_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(errno.EPERM, "not allowed")

    monkeypatch.setattr(os, "rename", fail)
    assert Notifications(str(lock_file)).listen() is None
    assert pipes(lock_file) == []


def test_leftovers_of_processes_that_died_while_they_made_a_pipe_are_removed(lock_file: Path) -> None:
    bells = Notifications(str(lock_file))
    token = bells.listen()
    place = Path(f"{lock_file}-wake")
    names = {"new-old": 61, "new-young": 50, "readme": 1000}
    for name, age in names.items():
        (place / name).touch()
        then = time.time() - age
        os.utime(place / name, (then, then))
    bells._sweep()
    assert pipes(lock_file) == sorted([str(token), "new-young", "readme"])
    bells.close()


def test_a_signal_that_nobody_waits_for_is_not_kept(lock_file: Path) -> None:
    bells = Notifications(str(lock_file))
    signal = ThreadSignal()
    bells.expect(1, signal)
    assert len(bells._signals) == 1
    del signal
    gc.collect()
    assert len(bells._signals) == 0
