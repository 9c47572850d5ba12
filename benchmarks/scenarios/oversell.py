"""Oversell: 500 buyers for 10 tickets over five processes of ten threads, and what each way of selling costs.

On PostgreSQL, MariaDB and SQLite: how many tickets are sold; then how many purchases a second a way makes, when
everybody wants the same item, and when each wants one of 200.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from benchmarks.harness import Candidate, Role, Sample, Settings, Table, measure, percentile
from benchmarks.redis_server import why_missing as why_no_redis
from benchmarks.ticket_sale import DATABASES, PROCESSES, THREADS, Databases, Sale, databases
from benchmarks.ticket_ways import NAIVE, WAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["run"]

TICKETS = 10
MANY_ITEMS = 200
MOST_ROUNDS = 3  # five ways in three tables on three databases: more would take longer than anybody waits
_PACKAGES = {"PostgreSQL": ("psycopg",), "MariaDB": ("pymysql",), "SQLite": ()}


def run(settings: Settings) -> Iterator[Table]:
    """Three tables for each database."""
    settings = replace(settings, rounds=min(settings.rounds, MOST_ROUNDS))
    with databases(settings.directory) as servers:
        for name in settings.pick(DATABASES, ("SQLite",)):
            offices = _Offices(name, servers, settings)
            try:
                yield from _tables(name, offices, settings, _why_missing(name))
            finally:
                offices.close()


class _Offices(dict[str, Sale]):
    """The processes of each way, started when it has its first turn."""

    def __init__(self, name: str, servers: Databases, settings: Settings) -> None:
        super().__init__()
        self._name = name
        self._servers = servers
        self._size = settings.pick((PROCESSES, THREADS), (1, 6))

    def __missing__(self, way: str) -> Sale:
        self[way] = Sale(way, self._servers.fresh(self._name), self._servers.locks(), *self._size)
        return self[way]

    def close(self) -> None:
        for sale in self.values():
            sale.close()


def _tables(name: str, offices: dict[str, Sale], settings: Settings, missing: str) -> Iterator[Table]:
    buyers = settings.pick(500, 40)
    yield _measured(
        f"{name}: tickets sold of {TICKETS}, to {buyers} buyers",
        "tickets, 10 is right",
        partial(partial, _sold, offices, buyers),
        settings,
        missing,
    )
    for items, crowd in ((1, "everybody wants the same item"), (MANY_ITEMS, f"each wants one of {MANY_ITEMS} items")):
        seconds = settings.pick(2.0, 0.2)
        sample = partial(partial, _load, offices, items, seconds)
        title = f"{name}: purchases, {crowd}"
        yield _measured(title, "purchases a second", sample, settings, missing, higher_is_better=True)


def _measured(
    title: str,
    unit: str,
    sample: Callable[[str], Callable[[], Sample]],
    settings: Settings,
    missing: str,
    *,
    higher_is_better: bool = False,
) -> Table:
    candidates = [
        Candidate(way, Role.FLOOR if way == NAIVE else Role.OURS, None if missing else sample(way), missing)
        for way in WAYS
    ]
    return measure(title, candidates, settings, unit=unit, by="median", higher_is_better=higher_is_better)


def _sold(offices: dict[str, Sale], buyers: int, way: str) -> Sample:
    outcome = offices[way].sell(TICKETS, buyers)
    offices[way].rest()
    retries = outcome.retries / buyers
    return Sample(outcome.sold, {"left over": outcome.left, "retries per buyer": retries, "seconds": outcome.seconds})


def _load(offices: dict[str, Sale], items: int, seconds: float, way: str) -> Sample:
    times, retries = offices[way].load(items, seconds)
    offices[way].rest()
    facts = {
        "retries per purchase": retries / max(1, len(times)),
        "p50 ms": 1000 * percentile(times or [0.0], 0.5),
        "p99 ms": 1000 * percentile(times or [0.0], 0.99),
    }
    return Sample(len(times) / seconds, facts)


def _why_missing(name: str) -> str:
    packages = ("sqlalchemy", *_PACKAGES[name])
    return why_no_redis() or ", ".join(f"{each} is not installed" for each in packages if find_spec(each) is None)
