"""The drawn regions of the documentation are what the code says now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.harness import Role, Row, Table
from benchmarks.page import draw_page, kept_runs, scenarios_of
from benchmarks.plot import draw
from benchmarks.report import as_markdown, as_text
from benchmarks.stores_page import SCENARIO, draw_stores_page
from leasehold.kit.options import FENCE_FLOOR, TLS_OPTIONS, duration, flag
from leasehold.testing import contract
from leasehold.values import Capability, LossReason
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


def test_every_reason_of_a_loss_is_explained_in_the_order_in_which_it_is_declared() -> None:
    assert list(draw_docs.LOSSES) == list(LossReason)
    assert all(happened and do for happened, do in draw_docs.LOSSES.values())


def test_an_option_is_drawn_with_its_default_as_a_url_writes_it() -> None:
    wait = duration("answer_timeout", 2.5, "how long one answer may take")
    rows = store_options.option_rows((wait, flag("strict", "whether to refuse"), FENCE_FLOOR, *TLS_OPTIONS))
    assert [row[0] for row in rows] == ["`answer_timeout`", "`strict`", "`fence_floor`", "`tls_*`"]
    assert [row[2] for row in rows] == ["`2.5s`", "`no`", "`0`", ""]


def test_every_store_with_options_has_a_table() -> None:
    drawn = draw_docs.DRAWINGS["options"]()
    for name, options, _ in store_options.stores():
        assert all(option in TLS_OPTIONS or f"| `{option.name}` |" in drawn for option in options), name


def test_the_figures_and_their_plots_are_drawn_from_what_is_stored() -> None:
    page = draw_docs.ROOT / "docs" / "reference" / "figures.md"
    runs = kept_runs(page)
    assert draw_page(runs) == page.read_text(), "run python -m benchmarks.page docs/reference/figures.md"
    compared = draw_stores_page(scenarios_of(runs)[SCENARIO])
    assert compared == page.with_name("stores.md").read_text(), (
        "run python -m benchmarks.page docs/reference/figures.md"
    )
    for name, tables in scenarios_of(runs).items():
        assert draw(tables) == (page.parents[1] / "plots" / f"{name}.svg").read_text(), name


def test_our_own_targets_are_no_concern_of_those_who_read_the_figures() -> None:
    table = Table("a pair", "µs", [Row("leasehold", Role.OURS, 2.0, 2.0)], notes=["twice the floor"], targets=["1 x"])
    assert "target: 1 x" in as_text(table)
    assert "twice the floor" in as_markdown(table)
    assert "1 x" not in as_markdown(table)
