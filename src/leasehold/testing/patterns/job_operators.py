"""What operators do with jobs: look at the last run, run a slot again, make a job forget it, pause it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.errors import AlreadyRunning
from leasehold.testing.contract.expect import raises
from leasehold.testing.patterns.registry import pattern_case
from leasehold.values import Capability, Skipped

if TYPE_CHECKING:
    from leasehold._face.client import AsyncClient
    from leasehold.testing.contract.lab import Lab


async def _ran(client: AsyncClient, slot: str = "monday", again: str | None = None, name: str = "job") -> bool:
    async with client.once(name, slot=slot).attempt(again=again) as run:
        return bool(run)


@pattern_case(Capability.RECORD)
async def the_last_run_says_which_slot_by_whom_when_and_under_which_fence(lab: Lab) -> None:
    client, operator = lab.client(label="worker"), lab.client()
    assert await operator.last_run("job") is None
    async with client.once("job", slot="monday").attempt() as run:
        assert run
        fence = run.fence
    assert await _ran(client, "tuesday")
    async with client.once("periodic", every="1d").attempt() as run:
        assert run
        slot = run.slot
    last, first = await operator.last_run("job"), await operator.last_run("job", slot="monday")
    assert last is not None
    assert first is not None
    assert (last.slot, last.outcome, last.runner.label) == ("tuesday", "done", "worker")
    assert (first.slot, first.fence) == ("monday", fence)
    assert last.began is not None
    assert 1_500_000_000 < last.began <= last.finished
    periodic = await operator.last_run("periodic")
    assert periodic is not None
    assert periodic.slot == slot
    assert await operator.last_run("job", slot="friday") is None


@pattern_case(Capability.RECORD)
async def a_run_that_failed_is_shown_and_its_slot_is_open(lab: Lab) -> None:
    client = lab.client()
    async with client.once("job", slot="monday").attempt() as run:
        assert run
        run.fail()
    last = await client.last_run("job")
    assert last is not None
    assert (last.outcome, last.closed) == ("failed", False)
    assert await _ran(client)
    last = await client.last_run("job")
    assert last is not None
    assert (last.outcome, last.closed) == ("done", True)


@pattern_case(Capability.RECORD)
async def a_slot_runs_once_more_by_order_and_then_counts_as_run(lab: Lab) -> None:
    client, other = lab.client(), lab.client()
    assert await _ran(client)
    assert not await _ran(other)
    assert await _ran(other, again="the report was empty")
    assert not await _ran(client)
    last = await client.last_run("job")
    assert last is not None
    assert last.again is not None
    assert last.again.startswith("the report was empty (by ")


@pattern_case(Capability.RECORD)
async def of_two_orders_to_run_a_slot_again_one_runs(lab: Lab) -> None:
    """The second reads the same record as the first, and waits for the lock while the first runs."""
    first, second = lab.client(), lab.client()
    assert await _ran(first)

    async def repeat_later() -> bool:
        job = second.once("job", slot="monday", on_conflict="standby", ttl=lab.ttl * 20)
        async with job.attempt(again="also me") as run:
            return bool(run)

    async with first.once("job", slot="monday", ttl=lab.ttl * 20).attempt(again="me") as run:
        assert run
        later = lab.spawn(repeat_later())
        await lab.waiting("job", 1)
    assert await lab.flowing(later.join()) is False


@pattern_case(Capability.RECORD)
async def a_slot_that_a_job_was_made_to_forget_runs_again(lab: Lab) -> None:
    client, operator = lab.client(), lab.client()
    assert await _ran(client, "monday")
    assert await _ran(client, "tuesday")
    assert await operator.forget("job", slot="friday", reason="r") is False
    assert await operator.forget("job", slot="monday", reason="the file was cut off", by="ana") is True
    assert await operator.forget("job", slot="monday", reason="twice") is False
    forgotten = await operator.last_run("job", slot="monday")
    assert forgotten is not None
    assert (forgotten.outcome, forgotten.forgotten) == ("forgotten", "the file was cut off (by ana)")
    assert not await _ran(client, "tuesday")
    assert await _ran(client, "monday")
    assert not await _ran(client, "monday")
    async with client.once("periodic", every="1d").attempt() as run:
        assert run
        slot = run.slot
    assert await operator.forget("periodic", slot=slot, reason="bad numbers") is True
    async with client.once("periodic", every="1d").attempt() as run:
        assert run
    async with client.once("periodic", every="1d").attempt() as run:
        assert not run


@pattern_case(Capability.RECORD)
async def a_job_that_runs_is_not_made_to_forget(lab: Lab) -> None:
    client, operator = lab.client(label="worker"), lab.client()
    assert await _ran(client)
    async with client.once("job", slot="tuesday", ttl=lab.ttl * 20).attempt() as run:
        assert run
        error = await raises(AlreadyRunning, operator.forget("job", slot="monday", reason="r"))
        assert "worker" in str(error)
    assert not await _ran(client, "monday")
    assert not await _ran(client, "tuesday"), "its record was not lost"


@pattern_case(Capability.RECORD, Capability.PAUSE)
async def a_paused_job_is_skipped_with_the_reason_and_can_be_made_to_forget(lab: Lab) -> None:
    client, operator = lab.client(), lab.client()
    assert await _ran(client, "monday")
    await operator.pause("job", reason="the mail server is being moved", by="ana")
    async with client.once("job", slot="tuesday").attempt() as skipped:
        assert isinstance(skipped, Skipped)
        assert skipped.paused is not None
        assert (skipped.paused.by, skipped.paused.reason) == ("ana", "the mail server is being moved")
    assert not await _ran(client, "monday", again="bad")
    assert await operator.forget("job", slot="monday", reason="bad") is True
    assert await operator.resume("job") is True
    assert await _ran(client, "monday")
    assert await _ran(client, "tuesday")
    assert not await _ran(client, "monday")


@pattern_case(Capability.RECORD, Capability.PAUSE)
async def who_stands_by_for_a_paused_job_runs_it_when_it_is_resumed(lab: Lab) -> None:
    client, operator = lab.client(), lab.client()
    await operator.pause("job", reason="r")

    async def stand_by() -> bool:
        async with client.once("job", slot="monday", on_conflict="standby", ttl=lab.ttl * 20).attempt() as run:
            return bool(run)

    task = lab.spawn(stand_by())
    await lab.waiting("job", 1)
    assert not task.done
    assert await operator.resume("job") is True
    assert await lab.flowing(task.join()) is True
