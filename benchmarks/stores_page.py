"""The page that compares our stores: one table with all columns, then a plot for each, drawn from the same run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.figures import number
from benchmarks.report import write_plots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.harness import Table

__all__ = ["SCENARIO", "draw_stores_page", "write_stores_plots"]

SCENARIO = "stores"

HEAD = """# Our stores side by side

The usual comparison of lock services, measured instead of repeated: every store with its real servers on one host of
two cores, without distance, in one run. Drawn by `python -m benchmarks.page` from what `python -m benchmarks stores`
wrote. Figures of another machine differ; how the stores compare to each other does so less.

What each column means for your choice: [choose](../how-to/choose.md). What each store promises, and under which
assumption: [what is promised](../explanation/what-is-promised.md). Ours beside other libraries: [figures](figures.md).
"""

# Of each table: its column here, the plot's name, and the facts that go along with the figure.
COLUMNS: Mapping[str, tuple[str, Sequence[str]]] = {
    "Throughput": ("throughput", ()),
    "Latency": ("latency", ("p99 ms",)),
    "Hand-over": ("hand-over", ("p99 ms",)),
    "Release after a crash": ("crash", ()),
    "Cut off": ("cut-off", ("next grant after s",)),
    "False safety": ("false-safety", ()),
}

NOTES = """
- **Throughput**: {tasks}. One name that goes from process to process is as fast as a
  hand-over.
- **Release after a crash**: a store with a ttl frees the lock when the ttl is over, counted from the last renewal; a
  store with sessions when the session is over, and with `mode=session` as soon as the connection is gone.
- **Cut off**: the holder's packets vanish without an error. First when the holder knew, by its own clock; behind it
  when the next one held the lock.
- **False safety**: for how long both believed to hold it. A process that is *paused* is another matter: it cannot know,
  on any store, and only a [fence](../explanation/fencing.md) keeps its late write out.
"""


def draw_stores_page(tables: Sequence[Table]) -> str:
    """The text of the page."""
    named = {_title(table): table for table in tables}
    columns = [title for title in COLUMNS if title in named]
    head = ["store", *(f"{title} ({named[title].unit})" for title in columns)]
    lines = [_line(head), _line(["---", *["---:"] * len(columns)])]
    names = dict.fromkeys(row.name for table in tables for row in table.rows)
    lines += [_line([name, *(_cell(named[title], name, COLUMNS[title][1]) for title in columns)]) for name in names]
    facts = "; ".join(f"{title}: then {', '.join(COLUMNS[title][1])}" for title in columns if COLUMNS[title][1])
    tasks = named[columns[0]].title.partition(": ")[2] if columns else ""
    parts = [HEAD, *lines, "", f"Medians. Behind a slash: {facts}.", NOTES.format(tasks=tasks)]
    parts += [f"## {title}\n\n![{named[title].title}](../plots/stores-{COLUMNS[title][0]}.svg)\n" for title in columns]
    return "\n".join(parts)


def write_stores_plots(directory: Path, tables: Sequence[Table]) -> None:
    """A plot for each column."""
    columns = [(COLUMNS[_title(table)][0], table) for table in tables if _title(table) in COLUMNS]
    write_plots(directory, {f"stores-{name}": [table] for name, table in columns})


def _title(table: Table) -> str:
    return table.title.partition(":")[0]


def _cell(table: Table, name: str, facts: Sequence[str]) -> str:
    row = next((row for row in table.rows if row.name == name), None)
    if row is None:
        return "one process only"
    if row.median is None:
        return row.missing
    return " / ".join([number(row.median), *(number(row.facts.get(fact)) for fact in facts)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
