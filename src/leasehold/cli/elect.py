"""`leasehold elect`: run the command while this process is the leader, and end it before another can be.

Processes and signals are those of `run`. A term that is lost is followed by another campaign, with new processes: they
are forked while there is one thread, so each campaign opens the store anew.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.durations import show_duration
from leasehold.cli.held import Held
from leasehold.cli.parser import Usage
from leasehold.cli.run import Job, conflict, run_command, supervise

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold._blocking import Client
    from leasehold._blocking.election import Election, Term
    from leasehold.cli.output import Console
    from leasehold.values import Leader

__all__ = ["elect"]

KILL_AFTER = 5.0
WATCHDOG_GRACE = 0.25  # how much later than this program the watchdog acts
SURE = 0.98  # of a ttl: the rest is for clocks that drift apart


def elect(arguments: Namespace, console: Console) -> int:
    """The verb; returns the exit code."""
    if arguments.observe:
        return _observe(arguments, console)
    arguments.kill_after = _kill_after(arguments)
    led = False
    while True:
        job = Job(arguments, console)
        code = _campaign(job, led=led)
        led = led or "fence" in job.facts
        if job.is_ending or not _goes_on(job, code, led=led):
            return code
        console.note(f"campaigning for {arguments.name!r} again")
        time.sleep(arguments.retry * random.uniform(1.0, 1.2))  # noqa: S311 - not a secret


def _kill_after(arguments: Namespace) -> float:
    """How long the command may take to stop: it must be gone before the lease can end."""
    room = float(arguments.ttl * SURE - arguments.renew_deadline - WATCHDOG_GRACE)
    wanted = arguments.kill_after
    if wanted is None:
        return max(0.0, min(KILL_AFTER, room))
    if wanted > room:
        raise Usage(
            f"--kill-after {show_duration(wanted)} is longer than what is left between --renew-deadline and the end of "
            f"--ttl ({show_duration(max(0.0, room))}): the command could run beside that of the next leader",
            "see leasehold elect --help",
        )
    return float(wanted)


def _campaign(job: Job, *, led: bool) -> int:
    """One campaign and the term that it brings; once it has led, a store that is away is waited for."""
    from leasehold.errors import BackendUnavailable, OutcomeUnknown  # noqa: PLC0415 - loaded after the forks

    try:
        return run_command(job, _lead)
    except (BackendUnavailable, OutcomeUnknown) as error:
        if not led:
            raise
        job.console.error(error)
        return exit_codes.UNREACHABLE


def _goes_on(job: Job, code: int, *, led: bool) -> bool:
    if job.facts["outcome"] == "lost":
        return not job.arguments.exit_on_loss
    return led and code == exit_codes.UNREACHABLE and "fence" not in job.facts


def _lead(job: Job, client: Client) -> int:
    from leasehold.errors import AcquireTimeout, BackendError, LeaseLost  # noqa: PLC0415 - after the forks

    with ExitStack() as block:
        try:
            term = _wait_for_term(job, client, _election(job.arguments, client), block)
        except AcquireTimeout:
            return conflict(job, client)
        job.console.note(f"leading {term.name!r} with fence {term.fence}")
        try:
            code = supervise(job, client, Held(term))
        finally:
            job.child.discard()  # after an error of our own: nothing of the command may outlive the term
        try:
            block.close()  # resigns
        except LeaseLost as lost:
            if code != exit_codes.LEASE_LOST:
                job.console.error(lost)
            job.facts["outcome"], code = "lost", exit_codes.LEASE_LOST
        except BackendError as error:
            job.console.error(f"could not resign; {term.name!r} is free when its ttl is over: {error}")
    return code


def _election(arguments: Namespace, client: Client) -> Election:
    return client.election(
        arguments.name,
        ttl=arguments.ttl,
        renew_deadline=arguments.renew_deadline,
        retry=arguments.retry,
        reason=arguments.reason,
    )


def _wait_for_term(job: Job, client: Client, election: Election, block: ExitStack) -> Term:
    """Campaign; a signal may end that."""
    from leasehold.cli.wait_line import WaitLine  # noqa: PLC0415 - after the forks

    job.signals.wait_begins()
    try:
        with WaitLine(client, [election.name], job.console, job.arguments.wait):
            return block.enter_context(election.lead(job.arguments.wait))
    finally:
        job.signals.wait_ended()


def _observe(arguments: Namespace, console: Console) -> int:
    """Print each leader, until interrupted; the first look must succeed."""
    from leasehold.cli.connection import announce, open_client  # noqa: PLC0415

    with open_client(arguments) as client:
        announce(client, console)
        for leader in _election(arguments, client).observe():
            _show(arguments, leader)
    return exit_codes.OK


def _show(arguments: Namespace, leader: Leader | None) -> None:
    from leasehold.cli.output import print_json, print_lines, printable, who  # noqa: PLC0415

    at = time.time()
    if arguments.json:
        facts = {} if leader is None else {"fence": leader.fence, "who": who(leader.holder)}
        print_json({"name": arguments.name, "leader": facts or None, "at": round(at, 3)})
        return
    text = "no leader" if leader is None else f"fence {leader.fence}  {who(leader.holder)}"
    print_lines([f"{time.strftime('%H:%M:%S', time.localtime(at))} {printable(arguments.name)}  {printable(text)}"])
