"""`doctor`: examine a store before trusting it with locks. Every finding says why it matters and what to do."""

from __future__ import annotations

import platform
import sys
import time
import uuid
from statistics import median
from typing import TYPE_CHECKING

from leasehold import __version__
from leasehold.cli import exit_codes
from leasehold.cli.connection import open_client
from leasehold.cli.output import print_json, print_lines, printable
from leasehold.cli.style import GREEN, RED, YELLOW, fold_line, paint, terminal_width
from leasehold.errors import LeaseholdError
from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from leasehold._blocking import Client
    from leasehold.cli.output import Console

__all__ = ["doctor"]

PAIRS = 20
MARGIN = " " * 9
COLOUR_OF = {Level.OK: GREEN, Level.WARNING: YELLOW, Level.PROBLEM: RED}
SLOW = 0.05
TOO_SLOW = 1.0
BEFORE_ALL_THIS = 1_700_000_000  # November 2023; a clock that says less is wrong


def doctor(arguments: Namespace, console: Console) -> int:
    """Print the findings; the exit code says whether one of them is a problem."""
    if arguments.store is not None:
        arguments.url = arguments.store
    counts = dict.fromkeys(Level, 0)
    with open_client(arguments, label="leasehold doctor") as client:
        console.note(f"store: {client.store}")
        for finding in _examine(client, tries=arguments.tries):
            counts[finding.level] += 1
            if arguments.json:
                print_json(finding.as_data())
            elif arguments.verbose or finding.level is not Level.OK:
                print_lines(_lines(finding))
    if not arguments.json:
        print_lines([_summary(counts, arguments)])
    return exit_codes.PROBLEM if counts[Level.PROBLEM] else exit_codes.OK


def _examine(client: Client, *, tries: bool) -> Iterator[Finding]:
    yield _version()
    yield _clock()
    if not client.exists() and not tries:
        yield _absent(client)
        yield from _examined(client, opened=False)
        return
    opens = _opens(client)
    yield opens
    opened = opens.level is not Level.PROBLEM
    if opened and tries:
        yield from _try_a_lock(client)
    yield from _examined(client, opened=opened)


def _absent(client: Client) -> Finding:
    return Finding(
        "exists",
        Level.WARNING,
        f"{client.store} does not exist yet; it was not created",
        "its name may be misspelt; the first lock creates it",
        "check the name; --try creates it, and tries a lock",
    )


def _examined(client: Client, *, opened: bool) -> Iterator[Finding]:
    """What the store finds about itself: last, because a new file is there by now.

    A file has findings also when it does not open. A server that does not answer has none: "opens" says so already.
    """
    try:
        yield from client.examine()
    except LeaseholdError as error:
        if opened:
            found, why = f"the store could not be examined: {error}", "its settings decide what it keeps"
            yield Finding("settings", Level.WARNING, found, why, "see the message; then run doctor again")


def _version() -> Finding:
    import sqlite3  # noqa: PLC0415

    versions = f"leasehold {__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return Finding("version", Level.OK, versions, "all hosts that share a store should run the same leasehold")


def _clock() -> Finding:
    why = "leases are counted on a clock that must also run while the host sleeps; fences contain the date"
    if time.time() < BEFORE_ALL_THIS:
        return Finding("clock", Level.PROBLEM, f"it says {time.strftime('%Y-%m-%d')}", why, "set the clock; run NTP")
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return Finding(
            "clock",
            Level.WARNING,
            "this system has no clock that counts suspend",
            why,
            "do not let the host sleep while it holds locks",
        )
    return Finding("clock", Level.OK, f"boot-time clock, date {time.strftime('%Y-%m-%d')}", why)


def _opens(client: Client) -> Finding:
    why = "a store that does not open grants nothing: `run` would end with 69 or 77 and the job would not run"
    try:
        count = len(client.locks(""))
    except LeaseholdError as error:
        return Finding("opens", Level.PROBLEM, str(error), why, "see the message; then run doctor again")
    return Finding("opens", Level.OK, f"yes; locks in use in this namespace: {count}", why)


def _try_a_lock(client: Client) -> Iterator[Finding]:
    lock = client.lock(f"leasehold doctor {uuid.uuid4().hex}", ttl=5)
    fences, times = [], []
    try:
        for _ in range(PAIRS):
            started = time.perf_counter()
            lease = lock.acquire(5)
            lease.release()
            times.append(time.perf_counter() - started)
            fences.append(lease.fence)
    except LeaseholdError as error:
        why = "this is what every `run` does"
        yield Finding("acquire and release", Level.PROBLEM, str(error), why, "see the message; then run doctor again")
        return
    yield _fences(fences)
    yield _latency(median(times))


def _fences(fences: list[int]) -> Finding:
    why = "a resource refuses late writers by comparing fences, so each grant needs a higher one"
    if fences == sorted(set(fences)):
        return Finding("fences", Level.OK, f"rose {len(fences)} times, now {fences[-1]}", why)
    return Finding("fences", Level.PROBLEM, "did not rise from grant to grant", why, "do not use this store; report it")


def _latency(seconds: float) -> Finding:
    found = f"{seconds * 1000:.2g} ms for acquire and release (median of {PAIRS})"
    why = "a renewal must get through within the ttl, also on a bad day; and every run waits for this"
    if seconds < SLOW:
        return Finding("latency", Level.OK, found, why)
    level = Level.PROBLEM if seconds >= TOO_SLOW else Level.WARNING
    return Finding("latency", level, found, why, "look for a slow disk or a busy host; meanwhile use a longer --ttl")


def _lines(finding: Finding) -> list[str]:
    texts = [f"{finding.check}: {printable(finding.found)}", f"why: {finding.why}"]
    if finding.advice:
        texts.append(f"do:  {finding.advice}")
    width = terminal_width(sys.stdout)
    first, *others = (fold_line(MARGIN + text, width) for text in texts)
    level = finding.level.name.lower().ljust(len(MARGIN))
    return [paint(level, COLOUR_OF[finding.level]) + first[len(MARGIN) :], *others]


def _summary(counts: dict[Level, int], arguments: Namespace) -> str:
    worst = [
        paint(f"{count} {word}{'' if count == 1 else 's'}", COLOUR_OF[level])
        for level, word in ((Level.PROBLEM, "problem"), (Level.WARNING, "warning"))
        if (count := counts[level])
    ]
    fine = paint(f"{counts[Level.OK]} ok", GREEN)
    hints = [] if arguments.verbose else ["-v shows all"]
    hints += [] if arguments.tries else ["--try tries a lock, too"]
    return ", ".join([*worst, fine]) + (f" ({'; '.join(hints)})" if hints else "")
