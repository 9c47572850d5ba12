"""The drawn regions of the documentation are what the code says now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.testing import contract
from leasehold.values import Capability
from tools import draw_docs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", draw_docs.pages(), ids=lambda page: str(page.relative_to(draw_docs.ROOT)))
def test_the_drawn_tables_are_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert draw_docs.redrawn(text) == text, "run python tools/draw_docs.py"


def test_every_drawing_is_in_some_page() -> None:
    regions = {name for page in draw_docs.pages() for _, name, _ in draw_docs.REGION.findall(page.read_text())}
    assert regions == set(draw_docs.DRAWINGS)


def test_an_old_table_is_drawn_anew() -> None:
    old = "before\n<!-- drawn: errors -->\na stale row\n<!-- end -->\nafter\n"
    new = draw_docs.redrawn(old)
    assert "a stale row" not in new
    assert "BackendUnavailable (ConnectionError)" in new
    assert new.startswith("before\n")
    assert new.endswith("\nafter\n")


def test_every_capability_and_every_store_is_explained() -> None:
    assert set(draw_docs.PROMISES) == set(Capability)
    assert set(draw_docs.TITLES) == set(contract.REQUIRED)
