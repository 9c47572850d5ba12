"""`break`: end a lease from outside. Needs a confirmation; the store and the log keep who did it and why."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.connection import open_client, refuse_absent_store
from leasehold.cli.inspect import holding_lines
from leasehold.cli.output import print_json, print_lines, printable

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold._blocking import Client
    from leasehold.cli.output import Console

__all__ = ["break_lock", "operator"]


def break_lock(arguments: Namespace, console: Console) -> int:
    """The verb: end the grant with the given fence, once confirmed."""
    with open_client(arguments) as client:
        console.note(f"store: {client.store}")
        refuse_absent_store(client)
        if not arguments.yes and not _is_confirmed(client, arguments, console):
            return exit_codes.PROBLEM if sys.stdin.isatty() else exit_codes.USAGE
        by = operator()
        broken = client.break_lock(
            arguments.name, fence=arguments.fence, reason=arguments.reason, by=by, now=arguments.now
        )
    if arguments.json:
        facts = {"name": arguments.name, "fence": arguments.fence, "reason": arguments.reason, "by": by}
        print_json({**facts, "broken": broken, "now": arguments.now})
    else:
        print_lines([_verdict(arguments, by, broken=broken)])
    return exit_codes.OK if broken else exit_codes.PROBLEM


def _verdict(arguments: Namespace, by: str, *, broken: bool) -> str:
    name = printable(repr(arguments.name))
    if not broken:
        return f"{name} is not held with fence {arguments.fence}; nothing was broken (`leasehold info` shows the fence)"
    when = "at once" if arguments.now else "when the ttl of the broken lease is over"
    return (
        f"broke {name} with fence {arguments.fence} (by {printable(by)}); its holder may still be running, "
        f"the next one gets the lock {when}"
    )


def _is_confirmed(client: Client, arguments: Namespace, console: Console) -> bool:
    """Confirm on the terminal; without a terminal --yes is needed."""
    if not sys.stdin.isatty():
        console.error("breaking a lock needs a confirmation: run it on a terminal, or add --yes; nothing was broken")
        return False
    state = client.inspect(arguments.name)
    for holding in state.holdings if state else ():
        if holding.fence == arguments.fence:
            console.error("\n".join([f"about to break {arguments.name!r}; the holder may still be running:",
                                  *holding_lines(holding)]))  # fmt: skip
    sys.stderr.write("end the lease? Type yes: ")
    sys.stderr.flush()
    confirmed = sys.stdin.readline().strip().lower() == "yes"
    if not confirmed:
        console.note("nothing was broken")
    return confirmed


def operator() -> str:
    """The user behind this command, for the audit."""
    import pwd  # noqa: PLC0415 - only here

    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"uid {os.getuid()}"
    caller = os.environ.get("SUDO_USER")
    return f"{user}@{os.uname().nodename}" + (f", sudo from {caller}" if caller else "")
