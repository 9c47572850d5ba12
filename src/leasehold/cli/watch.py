"""`watch`: the table of locks, kept up to date; without a terminal, a line for each change."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from leasehold.cli.connection import announce, open_client
from leasehold.cli.inspect import lock_table
from leasehold.cli.output import print_json, print_lines, printable, who
from leasehold.cli.style import DIM, RED, YELLOW, is_lively, paint, shorten
from leasehold.errors import BackendError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from leasehold._blocking import Client
    from leasehold.cli.output import Console
    from leasehold.values import LockState

__all__ = ["changes", "watch"]

SHORTEST_PAUSE = 0.05
NARROWEST_STORE = 12
COLOUR_OF = {"broken": RED, "paused": YELLOW, "waiting": DIM, "left": DIM}
CLEAR = "\x1b[H\x1b[J"  # home, and clear what is below


def watch(arguments: Namespace, console: Console) -> int:
    """The verb: look again and again, until interrupted."""
    with open_client(arguments) as client:
        announce(client, console)
        draws = is_lively(sys.stdout) and not arguments.json
        show = _Table(client.store, fences=arguments.verbose) if draws else _Lines(as_json=arguments.json)
        states: Sequence[LockState] | None = client.locks(arguments.prefix)  # the first look must succeed
        away = False
        while True:
            if states is not None:
                show.update(states)
            time.sleep(max(arguments.every, SHORTEST_PAUSE))
            states = _look(client, arguments.prefix, console, silent=away)
            away = states is None


def _look(client: Client, prefix: str, console: Console, *, silent: bool) -> Sequence[LockState] | None:
    """What is there now; an outage of the store is reported once and does not end the watch."""
    try:
        return client.locks(prefix)
    except BackendError as error:
        if not silent:
            console.error(f"{error}; watching on")
        return None


class _Table:
    """A screen that is drawn over."""

    def __init__(self, store: str, *, fences: bool) -> None:
        self._store = store
        self._fences = fences

    def update(self, states: Sequence[LockState]) -> None:
        """Draw what is there now, as much as fits."""
        width, height = shutil.get_terminal_size()
        facts = f"  {time.strftime('%H:%M:%S')}  {len(states)} in use  (Ctrl-C ends)"
        store = shorten(printable(self._store), max(width - len(facts), NARROWEST_STORE), middle=True)
        lines = [f"{store}{facts}"[:width], "", *lock_table(states, waiters=True, fences=self._fences)]
        if len(lines) > height - 1:
            lines = [*lines[: height - 2], f"... {len(lines) - height + 2} more; give a PREFIX"]
        sys.stdout.write(CLEAR + "\n".join(lines) + "\n")
        sys.stdout.flush()


class _Lines:
    """A line for each difference between two looks."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._seen: dict[tuple[Any, ...], dict[str, Any]] = {}

    def update(self, states: Sequence[LockState]) -> None:
        """Print what changed since the last look."""
        present = _facts(states)
        for change in changes(self._seen, present):
            if self._as_json:
                print_json(change)
            else:
                print_lines([_sentence(change)])
        self._seen = present


def _facts(states: Sequence[LockState]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Every holder and waiter, by what identifies it."""
    facts: dict[tuple[Any, ...], dict[str, Any]] = {}
    for state in states:
        for holding in state.holdings:
            change = "broken" if holding.broken is not None else "cooling" if holding.cooling else "held"
            fact = {"name": state.name, "fence": holding.fence, "who": who(holding.holder)}
            facts[state.name, holding.fence] = {"change": change, **fact}
        if state.paused is not None:
            facts[state.name, "paused", state.paused.by] = {
                "change": "paused",
                "name": state.name,
                "who": f"{state.paused.by}: {state.paused.reason}",
            }
        for waiter in state.waiting:
            facts[state.name, str(waiter)] = {"change": "waiting", "name": state.name, "who": who(waiter)}
    return facts


def changes(
    before: dict[tuple[Any, ...], dict[str, Any]], after: dict[tuple[Any, ...], dict[str, Any]]
) -> list[dict[str, Any]]:
    """What ended first, then what began or changed its state."""
    at = round(time.time(), 3)
    gone = [fact for key, fact in before.items() if key not in after]
    ends = {"waiting": "left", "paused": "resumed"}
    ended = [{**fact, "change": ends.get(fact["change"], "free"), "at": at} for fact in gone]
    return ended + [{**fact, "at": at} for key, fact in after.items() if before.get(key) != fact]


def _sentence(change: dict[str, Any]) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(change["at"]))
    fence = f" fence {change['fence']}" if "fence" in change else ""
    word = f"{change['change']:<8}"
    if change["change"] in COLOUR_OF:
        word = paint(word, COLOUR_OF[change["change"]])
    return f"{at} {word}{printable(change['name'])}{fence}  {printable(change['who'])}"
