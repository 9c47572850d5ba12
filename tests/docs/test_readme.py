"""The README keeps its promise to a stranger: its first screen sells, and its comparison is whole and dated."""

from __future__ import annotations

import re

from tests.docs.test_snippets import PAGES, blocks

README = PAGES[0].read_text()
PEERS = (
    "redis-py",
    "python-redis-lock",
    "redlock-py",
    "filelock",
    "tooz",
    "kazoo",
    "DistributedLock",
    "Redisson",
)


def test_the_first_block_shows_hold_check_and_guard() -> None:
    _, first = blocks(README)[0]
    for call in (".hold(", ".check(", "guard("):
        assert call in first
    assert README.index("pip install") < README.index(first) < README.index("docs/pictures/demo.svg")


def test_the_comparison_has_a_row_for_every_peer_in_readme_and_page_and_the_same_date() -> None:
    page = (PAGES[0].parent / "docs" / "explanation" / "comparison.md").read_text()
    for text in (README, page):
        rows = re.findall(r"^\| (?:\*\*)?([\w-]+)", text, re.MULTILINE)
        assert set(PEERS) <= set(rows)
    dates = {re.search(r"\d+ November 2026", text)[0] for text in (README, page)}  # type: ignore[index]
    assert len(dates) == 1


def test_nothing_is_planned_in_a_table() -> None:
    assert "| planned |" not in README
