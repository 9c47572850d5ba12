"""Locks that others hold: `backoff`, `on_busy` and `on_wait` of a call that wants one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._backoff import Backoff
from leasehold.errors import AcquireTimeout
from leasehold.testing.contract.expect import raises
from leasehold.testing.patterns.registry import pattern_case
from leasehold.values import Capability

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab
    from leasehold.values import Holder


class _Reports:
    """Keeps the calls of `on_wait`."""

    def __init__(self) -> None:
        self.positions: list[int | None] = []
        self.holders: list[Holder | None] = []
        self.waits: list[float] = []

    def __call__(self, position: int | None, holder: Holder | None, waited: float) -> None:
        self.positions.append(position)
        self.holders.append(holder)
        self.waits.append(waited)


@pattern_case(Capability.EXCLUSIVE)
async def a_call_with_backoff_tries_so_many_times_and_then_gives_up(lab: Lab) -> None:
    lease = await lab.client().lock("x", ttl=lab.ttl * 50).acquire()
    backoff, reports = Backoff((lab.ttl / 20,), factor=1, longest=lab.ttl, jitter="none", tries=3), _Reports()
    call = lab.client().lock("x", ttl=lab.ttl * 50).acquire(None, backoff=backoff, on_wait=reports)
    busy = await raises(AcquireTimeout, lab.flowing(call))
    assert "3 tries" in str(busy), str(busy)
    assert len(reports.waits) == 2, "it pauses between the tries, and not after the last"
    assert reports.positions == [None, None], "it takes no place in a queue"
    lease.check()
    await lease.release()


@pattern_case(Capability.EXCLUSIVE)
async def a_call_with_backoff_gets_a_lock_that_was_released_meanwhile(lab: Lab) -> None:
    lease = await lab.client().lock("x", ttl=lab.ttl * 50).acquire()
    backoff, reports = Backoff((lab.ttl / 20,), longest=lab.ttl / 10), _Reports()
    task = lab.spawn(lab.client().lock("x", ttl=lab.ttl * 50).acquire(None, backoff=backoff, on_wait=reports))
    await lab.eventually(lambda: bool(reports.waits), "it waits")
    assert await lab.client().lock("y").try_acquire() is not None
    await lease.release()
    next_lease = await lab.flowing(task.join())
    assert next_lease.fence > lease.fence
    await next_lease.release()


@pattern_case(Capability.EXCLUSIVE)
async def on_busy_gives_the_result_of_a_call_that_cannot_have_the_lock(lab: Lab) -> None:
    holder = lab.client(label="the holder")
    lease = await holder.lock("x", ttl=lab.ttl * 50).acquire()
    other = lab.client().lock("x", ttl=lab.ttl * 50)
    assert await other.acquire(0, on_busy=lambda busy: f"busy: {busy.name}") == "busy: x"
    seen: list[str | None] = []
    await raises(AcquireTimeout, other.hold(0, on_busy=lambda busy: seen.append(busy.name)).__aenter__())
    assert seen == ["x"]
    await lease.release()
    got = await other.acquire(0, on_busy=lambda _: None)
    assert got is not None
    await got.release()


@pattern_case(Capability.EXCLUSIVE, Capability.FIFO, Capability.INSPECT)
async def who_waits_in_a_queue_hears_its_place_and_the_holder(lab: Lab) -> None:
    lease = await lab.client(label="the holder").lock("x", ttl=lab.ttl * 50).acquire()
    first, second = _Reports(), _Reports()
    tasks = []
    for number, reports in enumerate((first, second)):
        tasks.append(lab.spawn(lab.client().lock("x", ttl=lab.ttl * 50).acquire(None, on_wait=reports)))
        await lab.waiting("x", number + 1)
        await lab.eventually(lambda reports=reports: bool(reports.waits), "it hears of its wait")  # type: ignore[misc]
    assert first.positions[0] == 1
    assert second.positions[0] == 2
    for reports in (first, second):
        holder = reports.holders[0]
        assert holder is None or holder.label == "the holder"
        assert reports.waits[0] >= 0
    await lease.release()
    for task in tasks:
        await (await lab.flowing(task.join())).release()


@pattern_case(Capability.EXCLUSIVE, Capability.INSPECT)
async def what_on_wait_raises_ends_the_wait_and_leaves_nothing(lab: Lab) -> None:
    class Enough(Exception):
        pass

    def enough(_: int | None, __: Holder | None, waited: float) -> None:
        raise Enough(waited)

    lease = await lab.client().lock("x", ttl=lab.ttl * 50).acquire()
    await raises(Enough, lab.client().lock("x", ttl=lab.ttl * 50).acquire(None, on_wait=enough))
    await lab.waiting("x", 0)
    await lease.release()
    assert await lab.free("x")
