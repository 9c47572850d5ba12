"""`fence move`: let the fences of a new store begin above those of an old one, before programs change their URL.

A guarded resource remembers the highest fence it has seen and refuses lower ones. Stores count from different origins:
most from the clock, etcd and ZooKeeper from the number of their own writes. So after a change of the kind of store the
resource would refuse every holder, unless the new store begins above what the old one has given out.

Nothing may hold a name at the old store meanwhile: its next fence there would be above what was moved.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.break_lock import operator
from leasehold.cli.connection import open_client, refuse_absent_store, refuse_private_store
from leasehold.cli.fence import is_confirmed
from leasehold.cli.output import print_json, print_lines, printable, who
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold._blocking import Client
    from leasehold.cli.output import Console
    from leasehold.values import LockState

__all__ = ["move"]

EVERY_NAME = "leasehold/fences"  # raised with --all: where one floor serves all names, any name will do
SHOWN = 5  # of the names that are in use


def move(arguments: Namespace, console: Console) -> int:
    """Raise the fences of the names at the new store above those of the old one, unless a name is in use there."""
    with _open(arguments, arguments.old) as old, _open(arguments, arguments.new) as new:
        console.note(f"from {old.store} to {new.store}")
        for client in (old, new):
            refuse_private_store(client)
            refuse_absent_store(client)
        return _Move(arguments, console, old, new).run()


def _open(arguments: Namespace, url: str) -> Client:
    return open_client(Namespace(**{**vars(arguments), "url": url}))


class _Move:
    def __init__(self, arguments: Namespace, console: Console, old: Client, new: Client) -> None:
        self._names: Sequence[str] = arguments.words
        self._is_json = arguments.json
        self._is_sure = arguments.yes
        self._is_dry = arguments.dry_run
        self._console = console
        self._old = old
        self._new = new
        self._by = operator()
        self._reason = arguments.reason or f"moved from {old.store}"[:200]

    def run(self) -> int:
        if self._is_refused("nothing was changed; stop its programs, or wait for them, and try again"):
            return exit_codes.BUSY
        if self._is_dry:
            self._report_plan()
            return exit_codes.OK
        if not self._is_sure and not is_confirmed(self._question(), self._console):
            return exit_codes.PROBLEM if sys.stdin.isatty() else exit_codes.USAGE
        if self._names:
            for name in self._names:
                self._move_name(name)
        else:
            self._move_all()
        if self._is_refused(
            "it was taken meanwhile, with a higher fence than was moved; stop its programs, move again"
        ):
            return exit_codes.BUSY
        return exit_codes.OK

    # --- what is in the way

    def _is_refused(self, advice: str) -> bool:
        """Whether a name is in use at the old store, which is then printed; a pause does no harm."""
        in_use = [state for state in self._states() if state.holdings or state.waiting]
        for state in in_use[:SHOWN]:
            self._console.error(f"{state.name!r} is in use at {self._old.store}: {_users(state)}; {advice}")
        if len(in_use) > SHOWN:
            self._console.error(f"and {len(in_use) - SHOWN} more names are in use")
        return bool(in_use)

    def _states(self) -> list[LockState]:
        if not self._names:
            return list(self._old.locks())
        return [state for state in map(self._old.inspect, self._names) if state is not None]

    # --- moving

    def _move_name(self, name: str) -> None:
        given = self._old.highest_fence(name)
        self._report(name, given, self._new.raise_fence(name, given, reason=self._reason, by=self._by))

    def _move_all(self) -> None:
        given = self._old.highest_fence()
        highest = self._new.highest_fence()
        if highest <= given:
            self._new.raise_fence(EVERY_NAME, given, reason=self._reason, by=self._by)
            highest = self._new.highest_fence()
        if highest <= given:
            raise ConfigurationError(
                f"{self._new.store} counts the fences of each name by itself, and is behind {given}: name the locks to "
                f"move, or add fence_floor={given} to the options of its URL, in every program"
            )
        self._report(None, given, highest)

    # --- what is printed

    def _what(self) -> str:
        return ", ".join(printable(repr(name)) for name in self._names) or "all names"

    def _question(self) -> str:
        stores = f"at {self._new.store} above those of {self._old.store}"
        return f"raise the fences of {self._what()} {stores}? No fence can be lowered again."

    def _report_plan(self) -> None:
        if self._is_json:
            print_json({**self._facts(None), "names": list(self._names), "all": not self._names, "dry_run": True})
            return
        stores = f"at {self._new.store} would be raised above those of {self._old.store}"
        print_lines([f"nothing is in the way: the fences of {self._what()} {stores}; nothing was changed (--dry-run)"])

    def _report(self, name: str | None, given: int, floor: int) -> None:
        if self._is_json:
            print_json({**self._facts(name), "given": given, "fence": floor, "reason": self._reason, "by": self._by})
            return
        what = "all names" if name is None else printable(repr(name))
        later = f"every later one of {self._new.store} is above {floor if name else given}"
        print_lines([f"{what}: {self._old.store} has given fences up to {given}; {later}"])

    def _facts(self, name: str | None) -> dict[str, object]:
        return {"name": name, "from": self._old.store, "to": self._new.store}


def _users(state: LockState) -> str:
    if state.holdings:
        return f"held by {who(state.holdings[0].holder)}, fence {state.holdings[0].fence}"
    return f"{len(state.waiting)} wait for it"
