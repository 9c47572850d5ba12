"""Draws the tables of the documentation from the code: `python tools/draw_docs.py` rewrites them, `--check` compares.

A page marks a region with `<!-- drawn: NAME -->` and `<!-- end -->`; what is between them is written here and nowhere
else. Knows the library's public names and its tables; must not know what the pages say around them.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re
import sys
import textwrap
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import leasehold
from leasehold import errors, events
from leasehold._core.states import TRANSITIONS, State
from leasehold.telemetry.instruments import INSTRUMENTS
from leasehold.testing.contract import REQUIRED
from leasehold.values import Capability, LossReason
from tools import draw_lab, interface
from tools.advice_tables import draw_explanations, draw_needs, draw_stores_compared
from tools.interface import first_paragraph
from tools.store_options import draw_options
from tools.store_urls import draw_store_urls
from verification.models.catalogue import GROUPS, INSTANCES, Instance, recorded
from verification.mutants.table import drawn as draw_bugs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["DRAWINGS", "main", "pages", "redrawn"]

ROOT = Path(__file__).resolve().parents[1]
REGION = re.compile(r"(<!-- drawn: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

# How a store is named, by row of the capability table.
OPENED_BY = {
    "memory": "`memory://NAME`",
    "sqlite": "`local:`, `sqlite:////path`",
    "redis": "`redis://`, `valkey://`, `redis+sentinel://`, `redis+cluster://`",
    "redlock": "`redlock://h1,h2,h3,h4,h5`",
    "etcd": "`etcd://h1,h2,h3`, `etcds://`",
    "zookeeper": "`zk://h1,h2,h3/root`, `zks://`",
    "nats": "`nats://h1,h2,h3`, `nats+tls://`",
    "postgresql": "`postgresql://`",
    "postgresql session": "`postgresql://...?mode=session`",
    "mysql": "`mysql://`, `mariadb://`",
    "mysql session": "`mysql://...?mode=session`",
}
TITLES = {
    "memory": "memory",
    "sqlite": "SQLite",
    "redis": "Redis",
    "postgresql": "PostgreSQL rows",
    "mysql": "MySQL rows",
    "redlock": "Redlock",
    "etcd": "etcd",
    "zookeeper": "ZooKeeper",
    "nats": "NATS JetStream",
    "postgresql session": "PostgreSQL `mode=session`",
    "mysql session": "MySQL `mode=session`",
}
# The groups of the decisions, by the last number of each.
DECISIONS = {
    14: "The core",
    19: "Redis and SQLite",
    29: "PostgreSQL and guards",
    39: "etcd and ZooKeeper",
    49: "Redlock",
    59: "The kit and NATS",
    69: "Patterns",
    79: "Databases",
    99: "Operation, integrations and tools",
    129: "Speed and proof",
}
PROMISES = {
    Capability.EXCLUSIVE: "at most one owner per name on the store's side",
    Capability.FENCING: "every grant has a number that is higher than all before it, and never used again",
    Capability.INSPECT: "holders can be shown, listed and broken",
    Capability.SHARED: "read/write locks",
    Capability.PERMITS: "semaphores",
    Capability.FIFO: "waiters are served in the order in which they came; with `ranges`, a process in batches",
    Capability.PUSH: "a waiter is woken by the release, not by asking again",
    Capability.RECORD: "small values that expire, written under a fence",
    Capability.MIN_HOLD: "a lock can be kept for a least time after an early release",
    Capability.ABANDONED: "the next holder learns that the last one did not release",
    Capability.SESSION: "a crash frees the lock when the store ends the session, without waiting for the ttl",
    Capability.PAUSE: "an operator can keep a name from being granted, without a process",
    Capability.RANGES: "waiters of one process hand the lock on without the store, each under its own fence",
}
# What happened to a lease that was lost, and what to do about it.
LOSSES = {
    LossReason.EXPIRED: (
        "its time ran out without a renewal: the process or its event loop stood still, or the lock has `renew=False`",
        "acquire again, and look at the state of the work first; a ttl that is longer than the pauses",
    ),
    LossReason.UNCONFIRMED: (
        "its time ran out while the store did not confirm a renewal: the store or the way to it is down or slow",
        "the same; `leasehold doctor URL` looks at the store",
    ),
    LossReason.TAKEN: (
        (
            "the store does not know this grant any more: another holder came after it, or the store has lost its "
            "data, as one that was restarted empty, flushed, or failed over to a copy that lags"
        ),
        "stop writing, for another may hold the lock now; make the store keep its data, and guard what is written",
    ),
    LossReason.SESSION_ENDED: (
        "the store ended the session that the grant lived in: etcd, ZooKeeper, `mode=session`",
        "acquire again; if it happens often, look at the network and at pauses, or take a longer ttl",
    ),
    LossReason.BROKEN: ("an operator broke the lock", "read `lease.loss.detail`, which has the operator's reason"),
    LossReason.MAX_HOLD: (
        "it was held for as long as `max_hold` allows; a partition: for its grace time",
        "find out what the work hung on; a longer `max_hold` if it only takes so long",
    ),
    LossReason.FORKED: (
        "this is a child process, and the lease belongs to its parent, which still has it",
        "connect and acquire in the child",
    ),
    LossReason.CLOSED: (
        "the client was closed while it was held, or its event loop ended; the store keeps it until its ttl is over",
        "release before you close, or close with `release=True`",
    ),
    LossReason.GIVEN_BACK: (
        "the client was closed with `release=True`, or by a signal: another may hold the lock already",
        "nothing, in a process that ends; let the work end before that",
    ),
    LossReason.RELEASED: (
        "the holder itself released it, and then asked for it, as with `check()`; a leader: it stepped down",
        "use a lease only until its release",
    ),
}


def _errors() -> str:
    """The tree, as the module's own docstring draws it, and what each error carries."""
    drawing = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    tree = "```text\n" + textwrap.dedent(drawing) + "\n```"
    rows = [
        (f"`{name}`", first_paragraph(getattr(errors, name)), ", ".join(f"`{fact}`" for fact in _facts(name)))
        for name in errors.__all__
    ]
    return f"{tree}\n\n{_table(('error', 'means', 'carries'), rows)}"


def _facts(name: str) -> list[str]:
    parameters = inspect.signature(getattr(errors, name).__init__).parameters
    return [fact for fact in parameters if fact not in ("self", "message")]


def _events() -> str:
    """Every event with its level and its fields."""
    rows = []
    for name in events.__all__:
        event = getattr(events, name)
        if event is not events.Event:
            fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(event))
            rows.append((f"`{name}`", logging.getLevelName(event.level), first_paragraph(event), fields))
    return _table(("event", "level", "means", "fields"), rows)


def _metrics() -> str:
    """Every metric of a process, under both of its names."""
    rows = [
        (
            f"`{item.name}`",
            f"`{item.series[0] if item.kind != 'histogram' else item.prometheus_name}`",
            item.kind if item.kind != "updown" else "gauge",
            ", ".join(f"`{label}`" for label in item.labels),
            item.description,
        )
        for item in INSTRUMENTS.values()
    ]
    return _table(("OpenTelemetry", "Prometheus", "kind", "labels", "means"), rows)


def _capabilities() -> str:
    """The whole table: what each store must declare, no more and no less."""
    heads = ("store", *(str(capability) for capability in Capability))
    rows = [(TITLES[store], *_marks(declared)) for store, declared in REQUIRED.items()]
    meanings = _table(("capability", "promise"), [(f"`{each}`", PROMISES[each]) for each in Capability])
    return f"{_table(heads, rows)}\n\n{meanings}"


def _stores() -> str:
    """The short table of the README."""
    heads = (
        "store",
        "URL",
        "fence",
        "r/w lock",
        "semaphore",
        "fair queue",
        "`once`",
        "`min_hold`",
        "crash frees after",
    )
    rows = [
        (
            TITLES[store],
            OPENED_BY[store],
            _mark(Capability.FENCING in declared),
            _mark(Capability.SHARED in declared),
            _mark(Capability.PERMITS in declared),
            _mark({Capability.FIFO, Capability.PUSH} <= declared),
            _mark(Capability.RECORD in declared),
            _mark(Capability.MIN_HOLD in declared),
            "session" if Capability.SESSION in declared else "ttl",
        )
        for store, declared in REQUIRED.items()
    ]
    return _table(heads, rows)


def _states() -> str:
    """The life of a lease, as a diagram and as the table that decides."""
    lines = ["stateDiagram-v2", "    [*] --> held: granted"]
    lines += [
        f"    {before.value} --> {after.value}: {event.value}"
        for (before, event), after in TRANSITIONS.items()
        if before is not after
    ]
    ends = [
        state for state in State if all(after is state for (before, _), after in TRANSITIONS.items() if before is state)
    ]
    lines += [f"    {state.value} --> [*]" for state in ends]
    rows = [(before.value, event.value, after.value) for (before, event), after in TRANSITIONS.items()]
    return "```mermaid\n" + "\n".join(lines) + f"\n```\n\n{_table(('a lease that is', 'on', 'becomes'), rows)}"


def _losses() -> str:
    """Every reason of a loss, with what to do."""
    rows = [(f"`{reason}`", *LOSSES[reason]) for reason in LossReason]
    return _table(("reason", "what happened", "what to do"), rows)


def _names() -> str:
    """Every public name with its first sentence."""
    rows = [(f"`{name}`", first_paragraph(getattr(leasehold, name))) for name in leasehold.__all__]
    return _table(("name", "is"), rows)


def _decisions() -> str:
    """Every decision record, by its heading, in groups."""
    pages = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
    groups = [f"## {title}\n\n" + "\n".join(map(_decision, found)) for title, found in groupby(pages, _subject)]
    return "\n\n".join(groups)


def _subject(page: Path) -> str:
    return next(title for last, title in DECISIONS.items() if int(page.name[:4]) <= last)


def _decision(page: Path) -> str:
    heading = page.read_text().partition("\n")[0].lstrip("# ").partition(". ")[2]
    return f"- [{page.name[:4]} {heading}]({page.name})"


def _models() -> str:
    """Every search with what it found, by group; the grid of the hybrid clock as one row each."""
    tables = []
    for group, title in GROUPS.items():
        rows = [_searched(each) for each in INSTANCES if each.group == group and each.shown]
        tables.append(f"**{title}**\n\n{_table(('searched', 'states', 'depth', 'result'), rows)}")
    return "\n\n".join(tables)


def _searched(instance: Instance) -> tuple[str, str, str, str]:
    found = recorded()[instance.id]
    result = "**holds**" if instance.holds else f"breaks in {found['steps']} steps"
    return instance.words + ("" if instance.fast else " †"), f"{found['states']:,}", str(found["depth"]), result


def _options() -> str:
    """What each store's URL may say."""
    return draw_options({**TITLES, "postgres": "PostgreSQL", "mysql": "MySQL and MariaDB"})


DRAWINGS: dict[str, Callable[[], str]] = {
    "bugs": draw_bugs,
    "capabilities": _capabilities,
    "decisions": _decisions,
    "errors": _errors,
    "errors-explained": draw_explanations,
    "events": _events,
    **draw_lab.DRAWINGS,
    "losses": _losses,
    "metrics": _metrics,
    "models": _models,
    "names": _names,
    "needs": draw_needs,
    "options": _options,
    "states": _states,
    "store-urls": draw_store_urls,
    "stores": _stores,
    "stores-compared": draw_stores_compared,
}


def pages() -> list[Path]:
    """Every page that may have a region."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def redrawn(text: str) -> str:
    """A page with all its regions drawn anew."""
    drawn = REGION.sub(lambda region: f"{region[1]}{DRAWINGS[region['name']]()}\n{region[3]}", text)
    return interface.REGION.sub(interface.table, drawn)


def main(arguments: list[str]) -> int:
    """Rewrite the pages; with `--check`, only say which ones are out of date."""
    stale = [page for page in pages() if redrawn(page.read_text()) != page.read_text()]
    for page in stale:
        if "--check" in arguments:
            print(f"{page.relative_to(ROOT)} is out of date; run python tools/draw_docs.py", file=sys.stderr)
        else:
            page.write_text(redrawn(page.read_text()))
    return 1 if stale and "--check" in arguments else 0


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _marks(declared: frozenset[Capability]) -> list[str]:
    return [_mark(capability in declared) for capability in Capability]


def _mark(there: bool) -> str:  # noqa: FBT001 - a cell of a table
    return "yes" if there else "no"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
