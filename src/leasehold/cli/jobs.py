"""`pause`, `resume` and `forget`: the store and the log keep who did it, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.break_lock import operator
from leasehold.cli.connection import open_client, refuse_absent_store
from leasehold.cli.durations import show_duration
from leasehold.cli.inspect import command_line
from leasehold.cli.output import print_json, print_lines, printable, who

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold.cli.output import Console

__all__ = ["forget", "pause", "resume"]


def pause(arguments: Namespace, console: Console) -> int:
    """The verb: no more grants of the name."""
    with open_client(arguments) as client:
        console.note(f"store: {client.store}")
        refuse_absent_store(client)
        by = operator()
        client.pause(arguments.name, reason=arguments.reason, by=by, duration=arguments.duration)
        state = client.inspect(arguments.name)
    holders = () if state is None else state.holdings
    facts = {"name": arguments.name, "reason": arguments.reason, "by": by, "for": arguments.duration}
    if arguments.json:
        print_json({**facts, "paused": True, "holders": len(holders)})
        return exit_codes.OK
    until = f"until: {command_line(arguments, 'resume', arguments.name)}"
    if arguments.duration is not None:
        until = f"for {show_duration(arguments.duration)}, or {until}"
    lines = [f"paused {printable(repr(arguments.name))} {until}"]
    lines += [f"  still held by {printable(who(holding.holder))}, which goes on" for holding in holders]
    print_lines(lines)
    return exit_codes.OK


def resume(arguments: Namespace, console: Console) -> int:
    """The verb: end the pause; the exit code is 1 if there was none."""
    with open_client(arguments) as client:
        console.note(f"store: {client.store}")
        refuse_absent_store(client)
        by = operator()
        resumed = client.resume(arguments.name, by=by)
    name = printable(repr(arguments.name))
    if arguments.json:
        print_json({"name": arguments.name, "by": by, "resumed": resumed})
    else:
        print_lines([f"resumed {name}: the next waiter gets it" if resumed else f"{name} was not paused"])
    return exit_codes.OK if resumed else exit_codes.PROBLEM


def forget(arguments: Namespace, console: Console) -> int:
    """The verb: drop the record of a slot; the exit code is 1 if there was none, and 75 while the job runs."""
    from leasehold.errors import AlreadyRunning  # noqa: PLC0415 - loaded already

    with open_client(arguments) as client:
        console.note(f"store: {client.store}")
        refuse_absent_store(client)
        by = operator()
        try:
            forgotten = client.forget(arguments.name, slot=arguments.slot, reason=arguments.reason, by=by)
        except AlreadyRunning as running:
            console.error(running)
            return exit_codes.BUSY
    name, slot = printable(repr(arguments.name)), printable(arguments.slot)
    facts = {"name": arguments.name, "slot": arguments.slot, "reason": arguments.reason, "by": by}
    if arguments.json:
        print_json({**facts, "forgotten": forgotten})
    elif forgotten:
        print_lines([f"{name} forgot its run for slot {slot} (by {printable(by)}): the slot can run again"])
    else:
        print_lines([f"{name} has no run for slot {slot} to forget (`leasehold info` shows the last one)"])
    return exit_codes.OK if forgotten else exit_codes.PROBLEM
