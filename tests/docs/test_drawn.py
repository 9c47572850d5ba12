"""The drawn regions of the documentation are what the code says now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold.kit.options import FENCE_FLOOR, TLS_OPTIONS, duration, flag
from leasehold.testing import contract
from leasehold.values import Capability
from tools import draw_docs, store_options

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


def test_an_option_is_drawn_with_its_default_as_a_url_writes_it() -> None:
    wait = duration("answer_timeout", 2.5, "how long one answer may take")
    rows = store_options.option_rows((wait, flag("strict", "whether to refuse"), FENCE_FLOOR, *TLS_OPTIONS))
    assert [row[0] for row in rows] == ["`answer_timeout`", "`strict`", "`fence_floor`", "`tls_*`"]
    assert [row[2] for row in rows] == ["`2.5s`", "`no`", "`0`", ""]


def test_every_store_with_options_has_a_table() -> None:
    drawn = draw_docs.DRAWINGS["options"]()
    for name, options, _ in store_options.stores():
        assert all(option in TLS_OPTIONS or f"| `{option.name}` |" in drawn for option in options), name
