"""`hold`: hold a lock without a command, in the foreground, for an operator at work by hand. Reads as `run` does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.connection import open_client, refuse_private_store
from leasehold.cli.durations import show_duration
from leasehold.cli.held import shown_names
from leasehold.cli.output import print_json, print_lines, printable
from leasehold.cli.renewal_notices import RenewalNotices
from leasehold.cli.run import Job, acquire, conflict, is_nested, release
from leasehold.cli.signals import ENDING, Interrupted, Signals
from leasehold.cli.watchdog import now

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold import Client
    from leasehold.cli.held import Held
    from leasehold.cli.output import Console

__all__ = ["hold"]

LONGEST_SLEEP = 1.0


def hold(arguments: Namespace, console: Console) -> int:
    """The verb: hold until --for is over or a signal comes; both are the expected end, and give 0."""
    job = Job(arguments, console)
    if is_nested(job):
        return exit_codes.USAGE
    job.signals = Signals()
    try:
        with open_client(arguments, label="leasehold hold") as client:
            refuse_private_store(client)
            console.note(f"store: {client.store}")
            return _under_lock(job, client)
    except Interrupted as interruption:
        console.interrupted(f"{interruption} ended the wait for the lock")
        return exit_codes.for_signal(interruption.number)
    finally:
        job.signals.restore()


def _under_lock(job: Job, client: Client) -> int:
    held = acquire(job, client)
    if held is None:
        return conflict(job, client)
    try:
        _announce(job.arguments, held)
        return _until_the_end(job, client, held)
    finally:
        release(job, held)


def _announce(arguments: Namespace, held: Held) -> None:
    """On stdout, so that a script can wait for the line."""
    if arguments.json:
        print_json({"held": True, "fences": held.fences, "for": arguments.duration})
        return
    end = "Ctrl-C gives it back"
    if arguments.duration is not None:
        clock = time.strftime("%H:%M:%S", time.localtime(time.time() + arguments.duration))
        end = f"until {clock} ({show_duration(arguments.duration)}); {end} before"
    fences = ", ".join(f"{printable(repr(name))} with fence {fence}" for name, fence in held.fences.items())
    print_lines([f"holding {fences}: {end}"])


def _until_the_end(job: Job, client: Client, held: Held) -> int:
    end = float("inf") if job.arguments.duration is None else now() + job.arguments.duration
    renewals = RenewalNotices(held, job.arguments.ttl, job.console)
    client.on_event(renewals.note)
    client.on_event(lambda _: job.signals.wake())
    title = shown_names(list(held.fences))
    while True:
        if (loss := held.loss) is not None:
            job.console.error(f"lost the lease of {title} ({loss.reason}): {loss.detail}")
            return exit_codes.LEASE_LOST
        instant, remaining = now(), held.remaining()
        renewals.look(instant, remaining)
        if instant >= end:
            job.console.note(f"--for is over; {title} is given back")
            return exit_codes.OK
        patience = min(LONGEST_SLEEP, end - instant, max(remaining, 0.01))
        if any(number in ENDING for number in job.signals.collect(patience)):
            job.console.interrupted(f"{title} is given back")
            return exit_codes.OK
