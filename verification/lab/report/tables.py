"""The tables of the report as rows of text, for HTML and for Markdown alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.lab.adapters import OURS, PEERS
from verification.lab.faults import FAULTS
from verification.lab.report.table import Table, seconds, share, span
from verification.lab.stages import STORES
from verification.lab.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.report.results import Cell

__all__ = ["cell_table", "headline", "matrix_table", "peer_table", "settings_table", "store_table", "workload_table"]

MARKS = {"passed": "✓", "failed": "✗", "void": "void", "broken": "broken", "impossible": "-"}
TITLES = {
    "memory": "memory",
    "sqlite": "SQLite",
    "redis": "Redis",
    "sentinel": "Redis Sentinel",
    "cluster": "Redis Cluster",
    "redlock": "Redlock, 5 nodes",
    "postgresql": "PostgreSQL",
    "mariadb": "MariaDB",
    "etcd": "etcd, 3 members",
    "zookeeper": "ZooKeeper, 3 servers",
    "nats": "NATS JetStream",
}


def _of_ours(cells: Sequence[Cell], workload: str = "update") -> list[Cell]:
    return [
        cell for cell in cells if cell.plan.library == OURS and cell.plan.workload == workload and not cell.plan.updates
    ]


def headline(cells: Sequence[Cell]) -> list[str]:
    """The sums over all cells of ours."""
    ours = [cell for cell in cells if cell.plan.library == OURS and cell.ran]

    def total(name: str) -> int:
        return sum(cell.count(name) for cell in ours)

    verdicts = [cell.verdict for cell in cells if cell.plan.library == OURS]
    bad = [f"{verdicts.count(word)} {word}" for word in ("failed", "void", "broken") if word in verdicts]
    impossible = verdicts.count("impossible")
    return [
        f"{verdicts.count('passed')} cells passed, {', '.join(bad) or 'none failed'}; {impossible} make no sense.",
        f"{total('grants')} grants, {total('faults')} faults, {total('losses')} leases lost.",
        f"Fenced: {total('lost with fence')} of {total('fenced updates')} acknowledged updates lost.",
        f"{total('stale writes refused')} late writes were refused by the guard.",
        f"Unfenced, in the same sections: {share(total('lost without fence'), total('unfenced updates'))} lost.",
    ]


def matrix_table(cells: Sequence[Cell]) -> Table:
    """Stores by faults: the verdict, and double holders or lost unfenced updates where there were any."""
    found = {(cell.plan.store, cell.plan.fault): cell for cell in _of_ours(cells)}
    rows = []
    for store in STORES:
        row = [TITLES[store]]
        for fault in FAULTS:
            cell = found.get((store, fault))
            row.append("" if cell is None else _mark(cell))
        rows.append(row)
    return Table("Every store under every fault", ["store", *FAULTS], rows)


def _mark(cell: Cell) -> str:
    extra = []
    if cell.count("double holders"):
        extra.append(f"{cell.count('double holders')} double")
    if cell.count("lost without fence"):
        extra.append(f"{cell.count('lost without fence')} lost unfenced")
    return " ".join([MARKS[cell.verdict], *([f"({', '.join(extra)})"] if extra else [])])


def workload_table(cells: Sequence[Cell]) -> Table:
    """The other workloads, over all their faults: how many cells passed."""
    others = [workload for workload in WORKLOADS if workload != "update"]
    rows = [[TITLES[store], *(_passed(_of_ours(cells, each), store) for each in others)] for store in STORES]
    return Table("The other workloads, over all their faults", ["store", *others], rows)


def _passed(cells: Sequence[Cell], store: str) -> str:
    mine = [cell for cell in cells if cell.plan.store == store and cell.verdict != "impossible"]
    good = sum(cell.verdict == "passed" for cell in mine)
    double = sum(cell.count("double holders") for cell in mine)
    extra = f" ({double} double)" if double else ""
    return f"{'✓' if good == len(mine) else '✗'} {good} of {len(mine)}{extra}" if mine else "-"


def store_table(cells: Sequence[Cell]) -> Table:
    """What was measured on each store, over all its faults."""
    rows = []
    for store in STORES:
        mine = [cell for cell in _of_ours(cells) if cell.plan.store == store and cell.ran]
        if not mine:
            continue
        lost, of = (sum(cell.count(name) for cell in mine) for name in ("lost with fence", "fenced updates"))
        bare, of_bare = (sum(cell.count(name) for cell in mine) for name in ("lost without fence", "unfenced updates"))
        rows.append(
            [
                TITLES[store],
                f"{mine[0].ttl:g}\N{NO-BREAK SPACE}s",
                str(sum(cell.count("grants") for cell in mine)),
                str(sum(cell.count("double holders") for cell in mine)),
                str(sum(cell.count("stale writes refused") for cell in mine)),
                share(lost, of),
                share(bare, of_bare),
                seconds(_worst(mine, "notice loss")),
                seconds(_worst(mine, "next grant after a kill")),
                seconds(_worst(mine, "last client after healing")),
            ]
        )
    columns = ["store", "ttl", "grants", "double holders", "late writes refused", "lost, fenced", "lost, unfenced"]
    columns += ["cut off until known, at most", "killed holder until next grant", "healed until all served"]
    return Table("Stores compared, over all faults", columns, rows)


def _worst(cells: Sequence[Cell], name: str) -> float | None:
    return max((value for cell in cells if (value := cell.times.get(name)) is not None), default=None)


def cell_table(cells: Sequence[Cell], title: str) -> Table:
    """Every cell with its figures."""
    columns = ["store", "fault", "", "operations", "grants", "double", "refused", "lost, fenced", "lost, unfenced"]
    columns += ["jobs", "loss known after", "killed holder until next grant", "healed until served", "why"]
    rows = []
    for cell in cells:
        if not cell.ran:
            rows.append(
                [TITLES[cell.plan.store], cell.plan.fault, MARKS[cell.verdict], *[""] * (len(columns) - 4), cell.reason]
            )
            continue
        rows.append(
            [
                TITLES[cell.plan.store],
                cell.plan.fault,
                MARKS[cell.verdict],
                str(cell.count("operations")),
                str(cell.count("grants")),
                str(cell.count("double holders")),
                str(cell.count("stale writes refused")),
                share(cell.count("lost with fence"), cell.count("fenced updates")),
                share(cell.count("lost without fence"), cell.count("unfenced updates")),
                str(cell.count("jobs") or "-"),
                *_spans(cell),
                _why(cell),
            ]
        )
    return Table(title, columns, rows)


def _spans(cell: Cell) -> list[str]:
    """From the least to the most."""
    names = [
        ("notice loss, least", "notice loss"),
        ("next grant after a kill, least", "next grant after a kill"),
        ("first grant after healing", "last client after healing"),
    ]
    return [span(cell.times.get(least), cell.times.get(most)) for least, most in names]


def _why(cell: Cell) -> str:
    said = [f"{each['check']}: {each['detail']}" for each in cell.violations]
    return "; ".join(part for part in (*said, cell.reason, cell.before) if part)


def peer_table(cells: Sequence[Cell]) -> Table:
    """Each peer beside ours on the same store, fault by fault: double holders and lost updates."""
    ours = {(cell.plan.store, cell.plan.fault): cell for cell in _of_ours(cells)}
    rows = []
    for peer in PEERS.values():
        for store in peer.stores:
            mine = [c for c in cells if c.plan.library == peer.name and c.plan.store == store and c.ran]
            beside = [ours[store, c.plan.fault] for c in mine if (store, c.plan.fault) in ours]
            if mine:
                rows.append([f"{peer.name} {mine[0].version}", TITLES[store], *_sums(mine, fenced=False)])
            if mine and beside:
                rows.append([f"leasehold {beside[0].version}", "", *_sums(beside, fenced=True)])
    columns = ["library", "store", "cells", "grants", "double holders", "lost updates", "not recovered", "left behind"]
    return Table("Other libraries in the same cells", columns, rows)


def _sums(cells: Sequence[Cell], *, fenced: bool) -> list[str]:
    kind = "with fence" if fenced else "without fence"
    updates = "fenced updates" if fenced else "unfenced updates"
    checks = [each["check"] for cell in cells for each in cell.violations]
    return [
        str(len(cells)),
        str(sum(cell.count("grants") for cell in cells)),
        str(sum(cell.count("double holders") for cell in cells)),
        share(sum(cell.count(f"lost {kind}") for cell in cells), sum(cell.count(updates) for cell in cells)),
        str(checks.count("starvation")),
        str(checks.count("leak")),
    ]


def settings_table(cells: Sequence[Cell]) -> Table:
    """How each peer is used."""
    versions = {cell.plan.library: cell.version for cell in cells if cell.version}
    rows = [[peer.name, versions.get(peer.name, "not run"), peer.settings, peer.tells] for peer in PEERS.values()]
    return Table("How the others are used", ["library", "version", "settings", "how a holder learns of a loss"], rows)
