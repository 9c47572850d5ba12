"""`fence raise` and `fence move`: lift the fences of names, above a number or above those of another store.

Both need a confirmation, because no fence can be lowered again; the log keeps who did it and why.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from leasehold.cli import exit_codes
from leasehold.cli.break_lock import operator
from leasehold.cli.connection import open_client, refuse_absent_store
from leasehold.cli.output import print_json, print_lines, printable
from leasehold.cli.parser import Usage

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold.cli.output import Console

__all__ = ["fence", "is_confirmed"]


def fence(arguments: Namespace, console: Console) -> int:
    """The verb: one of its two actions, with the words that belong to it."""
    if arguments.action == "move":
        _check_move(arguments)
        from leasehold.cli.fence_move import move  # noqa: PLC0415 - rarely needed

        return move(arguments, console)
    return _raise(arguments, console)


def _check_move(arguments: Namespace) -> None:
    if not arguments.old or not arguments.new:
        _refuse("move needs --from URL, the store that the locks were in, and --to URL, the one they are in now")
    if arguments.url:
        _refuse("move takes its stores from --from and --to, not from --url")
    if arguments.old == arguments.new:
        _refuse("--from and --to name the same store")
    if arguments.all == bool(arguments.words):
        _refuse("say which locks: their names, or --all for all names of the namespace")


def _raise(arguments: Namespace, console: Console) -> int:
    if arguments.old or arguments.new or arguments.all or arguments.dry_run:
        _refuse("--from, --to, --all and --dry-run belong to `leasehold fence move`")
    if len(arguments.words) != 2 or not arguments.reason:
        _refuse("raise needs NAME, F and --reason TEXT")
    name, number = arguments.words[0], _number(arguments.words[1])
    with open_client(arguments) as client:
        console.note(f"store: {client.store}")
        refuse_absent_store(client)
        question = f"raise the fence of {printable(repr(name))} above {number}? It cannot be lowered again."
        if not arguments.yes and not is_confirmed(question, console):
            return exit_codes.PROBLEM if sys.stdin.isatty() else exit_codes.USAGE
        by = operator()
        highest = client.raise_fence(name, number, reason=arguments.reason, by=by)
    if arguments.json:
        print_json({"name": name, "fence": highest, "reason": arguments.reason, "by": by})
    else:
        print_lines([f"every later grant of {printable(repr(name))} has a fence above {highest} (by {printable(by)})"])
    return exit_codes.OK


def is_confirmed(question: str, console: Console) -> bool:
    """Confirm on the terminal; without a terminal --yes is needed."""
    if not sys.stdin.isatty():
        console.error("raising a fence needs a confirmation: run it on a terminal, or add --yes; nothing was changed")
        return False
    sys.stderr.write(f"{question} Type yes: ")
    sys.stderr.flush()
    confirmed = sys.stdin.readline().strip().lower() == "yes"
    if not confirmed:
        console.note("nothing was changed")
    return confirmed


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) < 2**53:
        _refuse(f"F must be a whole number from 1 to {2**53 - 1}, not {text!r}")
    return int(text)


def _refuse(message: str) -> NoReturn:
    raise Usage(message, "see leasehold fence --help")
