"""The idioms of `docs/how-to/run-a-job-once.md`, for type checkers: mypy and pyright must accept every line.

What must be refused carries an ignore with its rule; a checker that does not refuse it reports the ignore as unused.
"""

from __future__ import annotations

import asyncio

import leasehold

client = leasehold.connect("memory://idioms")


def show(*_: object) -> None:
    """What a program does with it."""


job = client.once("report", every="1d")


def report(day: str) -> int:
    return len(day)


result = job.run(report, "monday")
if result.ran:
    number: int = result.value
    text: str = result.value  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
else:
    assert result.skipped is not None
    show(result.skipped.runner)

job.run(report, 7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@client.once("cleanup", every="1h")
def cleanup() -> None:
    """Returns None: only `ran` says whether it did."""


cleaned: leasehold.JobResult[None] = cleanup()
show("cleaned" if cleaned.ran else cleaned.skipped)

with job.attempt() as run:
    if run:
        run.check(need=1)
        show(run.slot, run.fence)
    else:
        show(run.runner, run.paused)

with job.attempt(again="the report was empty") as run:
    run.check()  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]

last = client.last_run("report")
if last is not None:
    show(last.slot, last.runner, last.finished, last.outcome)


async def story() -> None:
    async with leasehold.connect_async("memory://idioms") as other:

        @other.once("ship:{order}", slot="{order}")
        async def ship(order: str) -> bytes:
            return order.encode()

        task = asyncio.create_task(ship("7"))
        shipped = await task
        if shipped.ran:
            parcel: bytes = shipped.value
            show(parcel)
        async with other.once("report", every="1d").attempt() as attempt:
            if attempt:
                attempt.check()
