"""The decision of `leasehold choose`: every combination has an answer, and what its tables say is true."""

from __future__ import annotations

import itertools
import re
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import leasehold
from leasehold import sql
from leasehold.cli import verbs
from leasehold.cli.choose_decide import recommend
from leasehold.cli.choose_pages import advice_lines, page_lines
from leasehold.cli.choose_table import HAVES, NEEDS, PATTERNS, STORES, TWICE
from leasehold.testing.contract import REQUIRED

ROOT = Path(__file__).resolve().parents[2]
SUBSETS = [subset for size in range(len(HAVES) + 1) for subset in itertools.combinations(HAVES, size)]
EVERY_ADVICE = [
    (need, have, costly, recommend(need, have, costly=costly))
    for need in NEEDS
    for have in SUBSETS
    for costly in (True, False)
]
OF_HAVE = {"host": "sqlite", "redis-nodes": "redlock", "tests": "memory"}
DATABASES = {"host", "postgresql", "mysql"}


def test_every_combination_has_an_answer_that_the_store_can_carry() -> None:
    for _, have, _, advice in EVERY_ADVICE:
        pattern = PATTERNS[advice.pattern]
        assert (advice.store is not None) == pattern.locks
        if advice.store is not None:
            assert not set(pattern.wants) & set(STORES[advice.store].lacks), (advice, have)


def test_every_store_and_every_pattern_is_recommended_to_somebody() -> None:
    assert {advice.pattern for *_, advice in EVERY_ADVICE} == set(PATTERNS)
    assert {advice.store for *_, advice in EVERY_ADVICE} == {*STORES, None}


def test_store_that_is_not_there_is_recommended_only_where_nothing_will_do() -> None:
    for _, have, _, advice in EVERY_ADVICE:
        there = {OF_HAVE.get(each, each) for each in have} | ({"redis"} if "redis-nodes" in have else set())
        if advice.store is not None and advice.store not in there:
            wants = set(PATTERNS[advice.pattern].wants)
            assert not have or all(wants & set(STORES[store].lacks) for store in there), (advice, have)
            assert advice.is_missing == bool(have)


def test_database_that_can_decide_by_itself_is_preferred_to_a_lock() -> None:
    for need, have, _, advice in EVERY_ADVICE:
        if NEEDS[need].in_database or need == "request":
            assert PATTERNS[advice.pattern].locks == (not DATABASES & set(have))


@pytest.mark.parametrize(
    ("need", "have", "costly", "pattern", "store"),
    [
        ("work", ("redis", "etcd"), True, "lock", "etcd"),
        ("work", ("redis", "etcd"), False, "lock", "redis"),
        ("work", ("redis", "host"), False, "lock", "sqlite"),
        ("stock", ("postgresql",), True, "reservation", None),
        ("stock", ("redis",), True, "lock", "redis"),
        ("request", ("nats",), True, "idempotency key", "nats"),
        ("job", ("zookeeper",), True, "once per slot", "postgresql"),
        ("job", ("zookeeper",), False, "once per slot", "redis"),
        ("limit", ("redis-nodes",), True, "semaphore", "redis"),
        ("leader", ("redis-nodes",), True, "election", "redlock"),
        ("cache", (), False, "cache", "sqlite"),
    ],
)
def test_examples(need: str, have: tuple[str, ...], costly: bool, pattern: str, store: str | None) -> None:
    advice = recommend(need, have, costly=costly)
    assert (advice.pattern, advice.store) == (pattern, store)


def test_reason_names_what_is_lacking_also_among_several() -> None:
    advice = recommend("limit", ("redis-nodes", "zookeeper"), costly=False)
    assert advice.store == "zookeeper"
    assert "no semaphores" in recommend("limit", ("redis-nodes",), costly=False).why_store
    assert "no records" in recommend("job", ("zookeeper",), costly=False).why_store


def test_what_stores_lack_is_what_they_do_not_declare() -> None:
    wanted = {want for pattern in PATTERNS.values() for want in pattern.wants}
    for name, store in STORES.items():
        declared = {str(capability) for capability in REQUIRED[name]}
        assert set(store.lacks) & wanted == wanted - declared, name
        assert store.queue.startswith("yes") == ("fifo" in declared), name


def test_pages_exist_and_every_text_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for page in {pattern.page for pattern in PATTERNS.values()} | {store.page for store in STORES.values()}:
        assert (ROOT / "docs" / page).exists(), page
    printed = [line for _, have, _, advice in EVERY_ADVICE[::97] for line in advice_lines(advice, have, "costly")]
    calls = [call for pattern in PATTERNS.values() for call in (pattern.python, pattern.shell) if call]
    prose = [line for line in [*printed, *page_lines()] if line.strip() not in calls]
    assert max(map(len, prose)) <= 80
    assert max(map(len, calls)) <= 86


def test_words_of_the_command_line_are_those_of_the_tables() -> None:
    assert tuple(NEEDS) == verbs.NEEDS
    assert tuple(HAVES) == verbs.HAVES
    assert set(TWICE) == {"costly", "cheap"}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_python_line_of_a_pattern_runs(pattern: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        tx = stack.enter_context(closing(sqlite3.connect(tmp_path / "data.db")))
        client = stack.enter_context(leasehold.connect(f"sqlite:///{tmp_path}/locks.db"))
        tx.executescript(
            "CREATE TABLE account (id INTEGER PRIMARY KEY); INSERT INTO account VALUES (7);"
            "CREATE TABLE booking (room, day, guest, UNIQUE (room, day));"
            "CREATE TABLE page (id INTEGER PRIMARY KEY, text, version); INSERT INTO page VALUES (7, '', 3);"
        )
        tx.execute("BEGIN")
        sql.Stock("tickets").restock(tx, {"concert": 5})
        if pattern == "lock":
            tx.commit()  # the guard is the first statement of a transaction
        known: dict[str, Any] = {
            **{name: getattr(sql, name) for name in sql.__all__},
            "tx": tx,
            "client": client,
            "day": "monday",
            "text": "new",
            "key": "k",
            "payload": {"cents": 1},
            "build": lambda: 1,
        }
        exec(PATTERNS[pattern].python, known)


def test_measured_times_are_about_those_of_the_figures() -> None:
    """A run of the benchmarks on another day may differ; ten times as much would be a lie."""
    figures = (ROOT / "docs" / "reference" / "figures.md").read_text()
    rows = {
        "sqlite": r"synchronous=normal\*\*.*?\| leasehold \| \S+ \| (\S+) \|",
        "redis": r"Redis, uncontended pair, one thread\*\*.*?\| leasehold \| \S+ \| (\S+) \|",
        "redlock": r"\| leasehold, five nodes \| \S+ \| (\S+) \|",
        "postgresql": r"fsync on\*\*.*?\| leasehold \| \S+ \| (\S+) \|",
        "etcd": r"etcd, uncontended pair, one thread\*\*.*?\| leasehold \| \S+ \| (\S+) \|",
        "zookeeper": r"ZooKeeper, uncontended pair, one thread\*\*.*?\| leasehold \| \S+ \| (\S+) \|",
    }
    for store, row in rows.items():
        found = re.search(row, figures, re.DOTALL)
        assert found is not None, store
        measured = float(found[1].replace(",", "")) / 1000
        assert measured / 2 <= float(STORES[store].latency.split()[0]) <= measured * 2, store
