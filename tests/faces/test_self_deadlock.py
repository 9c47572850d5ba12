"""A program that waits for a lock it holds itself gets a message with the reason and what helps."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold import connect_async, events
from leasehold.errors import AcquireTimeout
from tests.waiting import eventually

if TYPE_CHECKING:
    from leasehold import Lease

ITSELF = "this process; if by the very thread or task that waits"


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_a_timeout_names_the_thread_that_waits_for_itself_and_what_helps(timeout: float) -> None:
    with leasehold.connect("memory://") as client, client.lock("x").hold():
        with pytest.raises(AcquireTimeout, match=ITSELF) as late:
            client.lock("x").acquire(timeout)
        assert "reentrant=True" in str(late.value)
        with client.lock("y").hold(), pytest.raises(AcquireTimeout, match=ITSELF):
            client.lock_all(["w", "x"]).acquire(timeout)


def test_a_timeout_names_the_task_that_waits_for_itself_and_what_helps() -> None:
    async def main() -> None:
        async with connect_async("memory://") as client, client.lock("x").hold():
            with pytest.raises(AcquireTimeout, match=ITSELF) as late:
                await client.lock("x").acquire(0)
            assert "reentrant=True" in str(late.value)

            async def other() -> str:
                with pytest.raises(AcquireTimeout) as late:
                    await client.lock("x").acquire(0)
                return str(late.value)

            text = await asyncio.create_task(other())
            assert "(this process)" in text
            assert "reentrant" not in text

    asyncio.run(main())


def test_a_reader_that_wants_to_write_is_not_advised_to_be_re_entrant() -> None:
    with leasehold.connect("memory://") as client:
        lock = client.rwlock("x")
        with lock.read.hold():
            with pytest.raises(AcquireTimeout, match=ITSELF) as late:
                lock.write.acquire(0)
            assert "reentrant" not in str(late.value)
            assert "release it first" in str(late.value)


def test_another_thread_of_this_process_is_distinguished() -> None:
    with leasehold.connect("memory://") as client:
        leases: list[Lease] = []
        thread = threading.Thread(target=lambda: leases.append(client.lock("x").acquire()))
        thread.start()
        thread.join(30)
        with pytest.raises(AcquireTimeout) as late:
            client.lock("x").acquire(0)
        assert "(this process)" in str(late.value)
        assert "reentrant" not in str(late.value)
        leases[0].release()


def test_another_client_of_this_process_is_named_as_this_process() -> None:
    with leasehold.connect("memory://oneself") as one, leasehold.connect("memory://oneself") as two:
        with one.lock("x").hold(), pytest.raises(AcquireTimeout, match=r"\(this process\)"):
            two.lock("x").acquire(0)


def test_permits_of_others_are_not_blamed_on_the_one_who_has_one() -> None:
    with leasehold.connect("memory://") as client:
        pool = client.semaphore("x", 2)
        with pool.hold(), pool.hold(), pytest.raises(AcquireTimeout) as late:
            pool.acquire(0)
        assert "by the very thread" not in str(late.value)


def test_an_endless_wait_for_a_lock_of_ones_own_is_reported_at_once_and_can_still_be_ended_by_another() -> None:
    with leasehold.connect("memory://") as client:
        seen: list[events.Waiting] = []
        client.on_event(lambda event: seen.append(event) if isinstance(event, events.Waiting) else None)
        taken: list[Lease] = []
        got: list[int] = []

        def work() -> None:
            taken.append(client.lock("x").acquire())
            with client.lock("x").hold(timeout=None) as lease:
                got.append(lease.fence)

        thread = threading.Thread(target=work)
        thread.start()
        eventually(lambda: bool(seen), "a warning")
        assert seen[0].waited < events_are_slow()
        assert ITSELF in str(seen[0])
        assert "reentrant=True" in str(seen[0])
        assert got == []
        taken[0].release()  # so it is a warning, and no error: who waits cannot know that this will not come
        thread.join(30)
        assert len(got) == 1
        assert len(seen) == 1


def events_are_slow() -> float:
    """The time after which every wait is reported, whichever process holds the lock."""
    from leasehold._face.lock_spec import SLOW_WAIT

    return SLOW_WAIT


def test_a_wait_without_end_for_another_is_not_reported_at_once() -> None:
    with leasehold.connect("memory://") as client:
        seen: list[events.Event] = []
        client.on_event(seen.append)
        with client.lock("x").hold() as lease:
            thread = threading.Thread(target=lambda: client.lock("x").acquire(None).release())
            thread.start()
            eventually(lambda: bool((state := client.inspect("x")) and state.waiting), "a waiter")
            lease.release()
            thread.join(30)
        assert not [event for event in seen if isinstance(event, events.Waiting) and "very thread" in str(event)]
