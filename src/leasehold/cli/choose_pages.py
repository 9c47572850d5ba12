"""What `choose` prints: an advice, or the page without questions. All words come from the tables."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Any

from leasehold.cli.choose_table import BEFORE_A_LOCK, FENCES, HAVES, NEEDS, PATTERNS, STORES, TWICE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.cli.choose_decide import Advice

__all__ = ["advice_as_data", "advice_lines", "fence_of", "page_lines"]

INDENT = 9
WIDEST = 100


def advice_lines(advice: Advice, have: Sequence[str], twice: str) -> list[str]:
    """An advice for people."""
    pattern, there = PATTERNS[advice.pattern], ", ".join(HAVES[each] for each in have) or "nothing yet"
    lines = [
        *_block("you", NEEDS[advice.need].words, f"there is: {there}", f"twice: {TWICE[twice]}"),
        "",
        *_block("PATTERN", pattern.title, advice.why_pattern),
        *(" " * INDENT + "  " + call for call in (pattern.python, pattern.shell) if call),
        "",
        *_block("STORE", _store_title(advice), advice.why_store),
    ]  # fmt: skip
    if advice.store is not None:
        lines += [*_facts(advice.store), "", *_block("TTL", pattern.ttl), "", *_block("FENCE", fence_of(advice, twice)),
                  "", *_block("LATER", FENCES[STORES[advice.store].fences])]  # fmt: skip
    return [*lines, "", *_block("READ", ", ".join(f"docs/{page}" for page in _pages(advice)))]


def advice_as_data(advice: Advice) -> dict[str, Any]:
    """An advice for programs."""
    pattern = PATTERNS[advice.pattern]
    store = None if advice.store is None else {"name": advice.store, **STORES[advice.store]._asdict()}
    return {
        "need": advice.need,
        "pattern": advice.pattern,
        "locks": pattern.locks,
        "why_pattern": advice.why_pattern,
        "python": pattern.python,
        "shell": pattern.shell,
        "ttl": pattern.ttl or None,
        "store": store,
        "why_store": advice.why_store,
        "store_is_there": not advice.is_missing,
        "pages": [f"docs/{page}" for page in _pages(advice)],
    }


def fence_of(advice: Advice, twice: str) -> str:
    """What the fence is needed for here."""
    if advice.pattern == "semaphore":
        return "None: the holders of a semaphore have no order."
    if advice.pattern == "cache":
        return "Used inside: a late builder cannot overwrite a newer value."
    if twice == "costly":
        return (
            "Needed. A holder that is paused beyond its lease is a late writer: let the resource refuse it with "
            "guard(tx, lease), or pass lease.fence (LEASEHOLD_FENCE) on. What can check nothing gets an idempotency "
            "key, and lease.check(need=...) right before the side effect."
        )
    return "Worth one line, guard(tx, lease), where the result is in a database; otherwise you may go without."


def page_lines() -> list[str]:
    """The page: needs and ways, then the stores one by one."""
    lines = ["FIRST: DO YOU NEED A LOCK?", "", *_folded(BEFORE_A_LOCK, 2), ""]
    for key, need in NEEDS.items():
        lines += [*_folded(need.words, 2), *_folded(f"{PATTERNS[need.pattern].title}  (--need {key})", 6)]
    lines += ["", "THEN: WHICH STORE?", ""]
    for key, store in STORES.items():
        lines += [f"  {store.title}   {store.url}", *_facts(key, 6), ""]
    for kind in ("clock", "writes"):
        names = ", ".join(store.title for store in STORES.values() if store.fences == kind)
        lines += [*_folded(f"{names}: {FENCES[kind]}", 2), ""]
    advice = (
        "On a terminal `leasehold choose` asks three questions; `leasehold choose --need job --have redis` does not."
    )
    return [*lines, *_folded(f"{advice} `leasehold doctor URL` examines a store.", 2)]


def _store_title(advice: Advice) -> str:
    if advice.store is None:
        return "none"
    store = STORES[advice.store]
    return f"{store.title}: {store.url}" + (" (to be added)" if advice.is_missing else "")


def _facts(key: str, indent: int = INDENT) -> list[str]:
    store = STORES[key]
    facts = {
        "can be lost by": store.loses,
        "after a crash": f"free after {store.takes_over}",
        "fair queue": store.queue,
        "must not step": store.clock,
        "trap": store.trap,
        "a pair takes": store.latency,
    }
    return [line for name, fact in facts.items() for line in _folded(f"{name + ':':<16}{fact}", indent, indent + 16)]


def _pages(advice: Advice) -> list[str]:
    pages = [PATTERNS[advice.pattern].page, "explanation/what-is-promised.md"]
    return pages if advice.store is None else [pages[0], STORES[advice.store].page, "how-to/change-the-store.md"]


def _block(head: str, *paragraphs: str) -> list[str]:
    """A head in the margin, and text beside it."""
    lines = [line for paragraph in paragraphs for line in _folded(paragraph, INDENT)]
    return [f"{head:<{INDENT}}{lines[0][INDENT:]}", *lines[1:]] if lines else []


def _folded(text: str, indent: int, later: int | None = None) -> list[str]:
    width = min(shutil.get_terminal_size((80, 24)).columns, WIDEST)
    hanging = indent if later is None else later
    return textwrap.wrap(
        text, max(width, 60), initial_indent=" " * indent, subsequent_indent=" " * hanging, break_on_hyphens=False
    )
