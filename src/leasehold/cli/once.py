"""`leasehold once`: run the command under the job's lock, unless the slot has been run or is being run elsewhere.

Processes, signals and the report are those of `run`; the library decides which run has the slot.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.held import Held
from leasehold.cli.run import Job, conflict, run_command, supervise

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold._blocking import Client
    from leasehold._blocking.once import Once, Run
    from leasehold.cli.output import Console
    from leasehold.values import Skipped

__all__ = ["once"]


def once(arguments: Namespace, console: Console) -> int:
    """The verb; returns the exit code."""
    return run_command(Job(arguments, console), _in_slot)


def _in_slot(job: Job, client: Client) -> int:
    from leasehold._blocking.once import Run  # noqa: PLC0415 - after the forks
    from leasehold.errors import AcquireTimeout, BackendError, LeaseLost  # noqa: PLC0415

    code = exit_codes.INTERNAL
    with ExitStack() as block:
        try:
            run = _attempt(job, client, _slots(job.arguments, client), block)
        except AcquireTimeout:
            return conflict(job, client)
        if not isinstance(run, Run):
            return _skipped(job, run)
        job.facts["slot"] = run.slot
        try:
            code = supervise(job, client, Held(run.lease), run.slot)
        finally:
            job.child.discard()  # after an error of our own: nothing of the command may outlive the lock
        if code != exit_codes.OK:
            run.fail()
        try:
            block.close()  # writes the record of the slot and releases the lock
        except LeaseLost as lost:
            if code != exit_codes.LEASE_LOST:
                job.console.error(lost)
            job.facts["outcome"], code = "lost", exit_codes.LEASE_LOST
        except BackendError as error:
            job.console.error(f"{error}; the command ended with {code}, but this may not be recorded: it may run again")
            job.facts["outcome"], code = "not recorded", exit_codes.for_error(error)
    return code


def _slots(arguments: Namespace, client: Client) -> Once:
    return client.once(
        arguments.name,
        every=arguments.every,
        cron=arguments.cron,
        slot=arguments.slot,
        tz=arguments.tz,
        on_conflict="standby" if arguments.on_conflict == "standby" else "skip",
        on_failure="close" if arguments.close_on_failure else "open",
        keep=arguments.keep,
        timeout=arguments.wait,
        reason=arguments.reason,
    )


def _attempt(job: Job, client: Client, slots: Once, block: ExitStack) -> Run | Skipped:
    """Enter the block of the run; a signal may end the wait for another run."""
    from leasehold.cli.wait_line import WaitLine  # noqa: PLC0415 - after the forks

    waits, again, by = job.arguments.on_conflict == "standby", None, None
    if job.arguments.again:
        from leasehold.cli.break_lock import operator  # noqa: PLC0415 - only here

        again, by = job.arguments.reason, operator()
    started = time.monotonic()
    job.signals.wait_begins()
    try:
        with WaitLine(client, [slots.name], job.console, job.arguments.wait) if waits else nullcontext():
            return block.enter_context(slots.attempt(again=again, by=by))
    finally:
        job.signals.wait_ended()
        job.facts["waited"] = round(time.monotonic() - started, 3)


def _skipped(job: Job, skipped: Skipped) -> int:
    job.console.note(str(skipped))
    job.facts |= {"outcome": "skipped", "slot": skipped.slot, "finished": skipped.finished}
    if skipped.paused is not None:
        job.facts["paused"] = str(skipped.paused)
    if job.arguments.on_conflict != "fail":
        return exit_codes.OK
    job.facts["outcome"] = "busy"
    code = job.arguments.conflict_exit_code
    return exit_codes.BUSY if code is None else int(code)
