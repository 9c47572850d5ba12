"""The report as one page of HTML that needs nothing else: styles and pictures are inside."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from verification.lab.adapters import OURS, PEERS
from verification.lab.matrix import may_overlap
from verification.lab.report.goals import goal_table
from verification.lab.report.picture import draw
from verification.lab.report.tables import (
    TITLES,
    cell_table,
    headline,
    matrix_table,
    peer_table,
    settings_table,
    store_table,
    workload_table,
)
from verification.lab.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from verification.lab.report.results import Cell
    from verification.lab.report.table import Table

__all__ = ["draw_page"]

STYLE = """
:root { color-scheme: light dark; --line: #d0d7de; --soft: #f6f8fa; --good: #1a7f37; --bad: #cf222e; --warn: #9a6700 }
@media (prefers-color-scheme: dark) {
  :root { --line: #3d444d; --soft: #161b22; --good: #3fb950; --bad: #f85149; --warn: #d29922 }
}
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1280px; margin: 2em auto; padding: 0 1em }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: 13px; margin: .5em 0 1.5em }
th, td { border: 1px solid var(--line); padding: .25em .5em; text-align: left; vertical-align: top }
th { background: var(--soft); position: sticky; top: 0 } td.good { color: var(--good) } td.bad { color: var(--bad);
font-weight: bold } td.warn { color: var(--warn) } td.off { opacity: .5 } ul.sum { font-size: 17px }
figure { margin: 1em 0 } svg { max-width: 760px; width: 100%; border: 1px solid var(--line); border-radius: 6px }
code { font-size: 12px } .void { border: 2px solid var(--bad); padding: .5em 1em }
"""
WHAT = (
    "Real servers, client processes, and faults. Each client reads a counter, thinks, and writes it back under the "
    "lock, one counter behind the guard and one without, in the same section."
)
OTHERS = (
    "Updates of the others are unfenced, because they have no fences; ours are those behind the guard. A holder whose "
    "library knows no deadline believes until it is told, also while it is stopped."
)
LEGEND = (
    "✓ every check passed · ✗ a check failed · - makes no sense, the reason is in the tables below · <i>n</i> double: "
    "so often two holders believed at once, which the store cannot exclude there · <i>n</i> lost unfenced: the control"
)


def draw_page(cells: Sequence[Cell], when: str) -> str:
    """The whole page."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>leasehold: the fault lab</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{STYLE}</style></head><body><h1>The fault lab</h1>",
        f"<p>{WHAT} {escape(when)}</p>",
        *_void(cells),
        f'<ul class="sum">{"".join(f"<li>{escape(line)}</li>" for line in headline(cells))}</ul>',
        _table(goal_table(cells)),
        _table(matrix_table(cells)),
        f"<p>{LEGEND}</p>",
        _table(store_table(cells)),
        _table(workload_table(cells)),
        *_peers(cells),
        *_pictures(cells),
        *_details(cells),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _void(cells: Sequence[Cell]) -> Iterator[str]:
    void = [cell for cell in cells if cell.verdict == "void"]
    if void:
        names = "; ".join(f"{cell.plan.name}: {cell.reason}" for cell in void)
        yield f'<p class="void"><b>Void.</b> {escape(names)}</p>'


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    body = "".join(f"<tr>{''.join(map(_field, row))}</tr>" for row in table.rows)
    return f'<h2>{escape(table.title)}</h2><div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _field(text: str) -> str:
    style = {"✓": "good", "✗": "bad", "-": "off"}.get(text[:1], "")
    if text.startswith("✓ (") and "double" in text:
        style = "warn"
    if text.startswith(("void", "broken")):
        style = "bad"
    if text == "too few":
        style = "warn"
    return f'<td class="{style}">{escape(text)}</td>' if style else f"<td>{escape(text)}</td>"


def _peers(cells: Sequence[Cell]) -> Iterator[str]:
    if any(cell.plan.library != OURS for cell in cells):
        yield _table(peer_table(cells))
        yield f"<p>{OTHERS}</p>"
        yield _table(settings_table(cells))


def _pictures(cells: Sequence[Cell]) -> Iterator[str]:
    yield "<h2>Timelines</h2>"
    for cell in cells:
        if cell.timeline and cell.plan.library == OURS and cell.plan.fault != "none" and cell.plan.workload == "update":
            title = f"{TITLES[cell.plan.store]}, {cell.plan.fault}"
            yield f"<figure>{draw(cell, title)}<figcaption><code>{escape(cell.command)}</code></figcaption></figure>"


def _ours(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.plan.library == OURS]


def _details(cells: Sequence[Cell]) -> Iterator[str]:
    for workload, words in WORKLOADS.items():
        mine = [cell for cell in _ours(cells) if cell.plan.workload == workload and not cell.plan.updates]
        if mine:
            yield _table(cell_table(mine, f"Every cell, workload “{workload}”: {words}"))
    if many := [cell for cell in _ours(cells) if cell.plan.updates]:
        yield _table(cell_table(many, "Many updates"))
    for name in PEERS:
        mine = [cell for cell in cells if cell.plan.library == name]
        if mine:
            yield _table(cell_table(mine, f"{name} {mine[0].version}"))
    yield "<h2>Commands</h2><p>Any cell again:</p><pre>"
    yield from (escape(cell.command) for cell in cells if cell.ran)
    yield "</pre>"
    reasons = {may_overlap(cell.plan) for cell in cells} - {""}
    if reasons:
        items = "".join(f"<li>{escape(each)}</li>" for each in sorted(reasons))
        yield f"<h2>Where two owners are possible</h2><ul>{items}</ul>"
