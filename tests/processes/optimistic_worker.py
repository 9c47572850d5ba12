"""Processes that add to one counter: `python optimistic_worker.py URL WAY TIMES ISOLATION PROCESSES`.

Ways: `naive` reads and writes back, `optimistic` writes by `cas_update` and runs again, `locked` locks the row first,
`stale` uses the version that SQLAlchemy keeps, `once` wants slots. Each process adds so many times, and in the end it
is printed how often they ran again. A single process prints a line for everything that it has done.
"""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import sqlalchemy
from sqlalchemy import text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from leasehold import Backoff
from leasehold.sql import cas_update, insert_once, lock_row, retry_on_conflict

PATIENT = Backoff(("2ms", "10ms", "50ms"), longest="200ms", jitter="full")


class Base(DeclarativeBase):
    """Of the class below."""


class Counter(Base):
    """The row that all of them write."""

    __tablename__ = "counters"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    n: Mapped[int]
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - as SQLAlchemy declares it


def naive(tx: Session) -> None:
    """Lost updates."""
    (n,) = tx.execute(text("SELECT n FROM counters WHERE id = 1")).one()
    tx.execute(text("UPDATE counters SET n = :n WHERE id = 1"), {"n": n + 1})


def optimistic(tx: Session) -> None:
    """Whoever comes second is refused."""
    n, version = tx.execute(text("SELECT n, version FROM counters WHERE id = 1")).one()
    cas_update(tx, "counters", {"n": n + 1}, where={"id": 1}, version=version)


def locked(tx: Session) -> None:
    """Whoever comes second waits."""
    row = lock_row(tx, Counter, {"id": 1})
    assert row is not None
    tx.execute(text("UPDATE counters SET n = :n WHERE id = 1"), {"n": row["n"] + 1})


def stale(tx: Session) -> None:
    """SQLAlchemy's own version column."""
    tx.get_one(Counter, 1).n += 1


def once(tx: Session, slot: int) -> None:
    """Each slot is taken once, and counted by who took it."""
    if insert_once(tx, "slots", {"id": slot, "owner": "x"}, key="id").inserted:
        row = lock_row(tx, Counter, {"id": 1})
        assert row is not None
        tx.execute(text("UPDATE counters SET n = :n WHERE id = 1"), {"n": row["n"] + 1})


UNITS: dict[str, Any] = {"naive": naive, "optimistic": optimistic, "locked": locked, "stale": stale}


def add(url: str, way: str, times: int, isolation: str, *, loud: bool) -> int:
    """Add, and say how often it had to be done again."""
    engine = sqlalchemy.create_engine(url, connect_args={"timeout": 60} if url.startswith("sqlite") else {})
    if isolation != "default":
        engine = engine.execution_options(isolation_level=isolation)
    again: list[object] = []
    begin = sqlalchemy.orm.sessionmaker(engine).begin
    for number in range(times):
        unit = (lambda tx, slot=number: once(tx, slot)) if way == "once" else UNITS[way]
        retry_on_conflict(begin, unit, backoff=PATIENT, on_retry=lambda *words: again.append(words))
        if loud:
            say("+")
    return len(again)


def say(what: object) -> None:
    """A line for the test."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def race(words: tuple[str, str, int, str]) -> int:
    """One of several, which begin together."""
    START.wait()
    return add(*words, loud=False)


FORKS = multiprocessing.get_context("fork")


if __name__ == "__main__":
    URL, WAY, TIMES, ISOLATION, PROCESSES = sys.argv[1:]
    if PROCESSES == "1":
        say(add(URL, WAY, int(TIMES), ISOLATION, loud=True))
    else:
        START = FORKS.Barrier(int(PROCESSES))
        with FORKS.Pool(int(PROCESSES)) as pool:
            say(sum(pool.map(race, [(URL, WAY, int(TIMES), ISOLATION)] * int(PROCESSES), chunksize=1)))
