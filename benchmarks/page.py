"""The page of all figures: `python -m benchmarks.page PAGE [RESULTS…]`, with the JSON files of new runs.

The figures of all runs are kept beside the page, in a file that is named like it. A scenario that was measured more
than once is shown as the last run has it, so that one can be measured again alone; without new runs, the page is drawn
as it would be now. Its plots are drawn beside the page's folder, in `plots`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Role, Row, Table
from benchmarks.report import as_markdown, write_plots
from benchmarks.scenarios import SCENARIOS
from benchmarks.stores_page import SCENARIO, draw_stores_page, write_stores_plots

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["TITLES", "draw_page", "kept_runs", "main", "scenarios_of"]

HEAD = """# Figures

Every figure of the benchmarks, drawn by `python -m benchmarks.page` from [what the runs wrote](figures.json). How they
are measured, what they mean and where we lose: [performance](../explanation/performance.md).
"""

TITLES = {
    "overhead": "What the library itself costs",
    "p1": "Redis: uncontended pair",
    "p2": "Redis: 64 tasks on 64 names",
    "p3": "Redlock: uncontended pair",
    "p4": "Redis: one name, four processes of four threads",
    "p5": "Redis: 10,000 leases held by one client",
    "p6": "Redis: 1,000 waiters of one process",
    "p7": "SQLite",
    "p8": "etcd: uncontended pair",
    "p9": "ZooKeeper: uncontended pair",
    "p10": "PostgreSQL: uncontended pair",
    "p11": "Start-up",
    "p12": "Growth",
    "p12-redlock": "Growth: Redlock",
    "p12-etcd": "Growth: etcd",
    "p12-zookeeper": "Growth: ZooKeeper",
    "p12-nats": "Growth: NATS",
    "p12-mariadb": "Growth: MariaDB",
    "p13": "Many waiters in one process",
    "linger": "A lock that lingers",
    "p14": "Distance: Redis",
    "p14-redlock": "Distance: Redlock",
    "p14-postgresql": "Distance: PostgreSQL",
    "p14-etcd": "Distance: etcd",
    "p14-zookeeper": "Distance: ZooKeeper",
    "p14-nats": "Distance: NATS",
    "p14-mariadb": "Distance: MariaDB",
    "p15": "NATS: uncontended pair",
    "p16": "MariaDB: uncontended pair",
    "p16-waiters": "MariaDB: one name in several processes, and idle waiters",
    "hand-over": "Hand-over and idle waiters",
    "stampede": "Cache: many readers of one value",
    "oversell": "The last tickets: ways to sell them",
    "election": "Elections: how long there is no leader",
    "stores": "Our stores side by side",
}


def draw_page(runs: Sequence[Mapping[str, Any]]) -> str:
    """The text of the page."""
    scenarios = scenarios_of(runs)
    parts = [HEAD, _machines(runs)]
    for name in sorted(scenarios, key=list(TITLES).index):
        parts.append(f"## {TITLES[name]} ({name})\n\n![{TITLES[name]}](../plots/{name}.svg)\n")
        parts += [as_markdown(table).rstrip() + "\n" for table in scenarios[name]]
    return "\n".join(parts)


def main(arguments: Sequence[str]) -> int:
    """Draw the page and its plots."""
    if not arguments:
        sys.stderr.write("usage: python -m benchmarks.page PAGE [RESULTS...]\n")
        return 2
    page, *files = map(Path, arguments)
    runs = _latest([*kept_runs(page), *(json.loads(file.read_text()) for file in files)])
    page.with_suffix(".json").write_text(json.dumps(runs, indent=1, ensure_ascii=False) + "\n")
    page.write_text(draw_page(runs))
    scenarios, plots = scenarios_of(runs), page.parent.parent / "plots"
    write_plots(plots, scenarios)
    if SCENARIO in scenarios:
        page.with_name("stores.md").write_text(draw_stores_page(scenarios[SCENARIO]))
        write_stores_plots(plots, scenarios[SCENARIO])
    return 0


def kept_runs(page: Path) -> list[dict[str, Any]]:
    """The runs whose figures the page shows."""
    file = page.with_suffix(".json")
    return json.loads(file.read_text()) if file.exists() else []


def _latest(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The runs without what a later one measured again."""
    last = {name: place for place, run in enumerate(runs) for name in run["scenarios"]}
    latest = [
        {**run, "scenarios": {name: tables for name, tables in run["scenarios"].items() if last[name] == place}}
        for place, run in enumerate(runs)
    ]
    return [run for run in latest if run["scenarios"]]


def scenarios_of(runs: Iterable[Mapping[str, Any]]) -> dict[str, list[Table]]:
    """The tables of each scenario."""
    found = {name: tables for run in runs for name, tables in run["scenarios"].items() if name in SCENARIOS}
    return {name: [_table(each) for each in tables] for name, tables in found.items()}


def _table(content: Mapping[str, Any]) -> Table:
    rows = [Row(**{**row, "role": Role(row["role"])}) for row in content["rows"]]
    return Table(**{**content, "rows": rows})


def _machines(runs: Iterable[Mapping[str, Any]]) -> str:
    lines = ["| command | Python | cores | load after it |", "| --- | --- | ---: | ---: |"]
    for run in runs:
        machine = run["machine"]
        lines.append(f"| `{run['command']}` | {machine['python']} | {machine['cores']} | {machine['load'][0]} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
