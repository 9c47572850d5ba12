"""`fence raise`: lift the fences of a name above a number. Needs a confirmation; the log keeps who did it and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.break_lock import operator
from leasehold.cli.connection import open_client, refuse_absent_store
from leasehold.cli.output import print_json, print_lines, printable

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold.cli.output import Console

__all__ = ["raise_fence"]


def raise_fence(arguments: Namespace, console: Console) -> int:
    """The verb: raise the fence of the name, once confirmed."""
    with open_client(arguments) as client:
        console.note(f"store: {client.store}")
        refuse_absent_store(client)
        if not arguments.yes and not _is_confirmed(arguments, console):
            return exit_codes.PROBLEM if sys.stdin.isatty() else exit_codes.USAGE
        by = operator()
        highest = client.raise_fence(arguments.name, arguments.fence, reason=arguments.reason, by=by)
    if arguments.json:
        print_json({"name": arguments.name, "fence": highest, "reason": arguments.reason, "by": by})
    else:
        name = printable(repr(arguments.name))
        print_lines([f"every later grant of {name} has a fence above {highest} (by {printable(by)})"])
    return exit_codes.OK


def _is_confirmed(arguments: Namespace, console: Console) -> bool:
    """Confirm on the terminal; without a terminal --yes is needed."""
    if not sys.stdin.isatty():
        console.error("raising a fence needs a confirmation: run it on a terminal, or add --yes; nothing was changed")
        return False
    name = printable(repr(arguments.name))
    sys.stderr.write(f"raise the fence of {name} above {arguments.fence}? It cannot be lowered again. Type yes: ")
    sys.stderr.flush()
    confirmed = sys.stdin.readline().strip().lower() == "yes"
    if not confirmed:
        console.note("nothing was changed")
    return confirmed
