"""The pipes that wake waiters: they exist only while somebody waits, and nothing that the dead left is in the way."""

from __future__ import annotations

import asyncio
import os
import threading
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
