"""`fence raise`: lift the fences of a name above a number. Asks a person, and leaves a trace in the log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.break_lock import operator
from leasehold.cli.connection import open_client
from leasehold.cli.output import print_json, print_lines, printable

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold.cli.output import Console

__all__ = ["raise_fence"]


def raise_fence(arguments: Namespace, console: Console) -> int:
    """Raise the fence of the name, if a person agrees."""
    with open_client(arguments) as client:
        console.note(f"store: {client.store}")
        if not arguments.yes and not _agreed(arguments, console):
            return exit_codes.PROBLEM if sys.stdin.isatty() else exit_codes.USAGE
        by = operator()
        highest = client.raise_fence(arguments.name, arguments.fence, reason=arguments.reason, by=by)
    if arguments.json:
        print_json({"name": arguments.name, "fence": highest, "reason": arguments.reason, "by": by})
    else:
        name = printable(repr(arguments.name))
        print_lines([f"every later grant of {name} has a fence above {highest} (by {printable(by)})"])
    return exit_codes.OK


def _agreed(arguments: Namespace, console: Console) -> bool:
    """Ask on the terminal; without one there is nobody to ask."""
    if not sys.stdin.isatty():
        console.error("raising a fence needs a person or --yes; there is no terminal to ask on")
        return False
    sys.stderr.write(
        f"raise the fence of {printable(repr(arguments.name))} above {arguments.fence}, for good? type yes: "
    )
    sys.stderr.flush()
    agreed = sys.stdin.readline().strip().lower() == "yes"
    if not agreed:
        console.note("nothing was changed")
    return agreed
