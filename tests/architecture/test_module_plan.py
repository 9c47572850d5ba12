"""Every store has the same modules under the same names: a reader who knows one store knows them all.

The plan is explained in `docs/explanation/design.md`. A module outside it is named here, with its reason.
"""

from __future__ import annotations

from pathlib import Path

import pytest

BACKENDS = Path(__file__).parents[2] / "src" / "leasehold" / "_backends"
STORES = sorted(path for path in BACKENDS.iterdir() if path.is_dir() and path.name != "__pycache__")

PLAN = {
    "__init__",
    "store",  # from a URL, or a client of the user's own, to a backend
    "options",  # what the URL may say
    "backend",  # the port, as thin dispatch
    "acquire", "queue", "renew", "release",  # the protocol, where backend.py would outgrow a page
    "keys", "schema",  # how names become keys, nodes, rows
    "fences",  # where the numbers come from
    "inspect", "doctor", "records",  # the optional ports
    "notifications",  # being woken
    "connection", "pool", "wire", "blocking_wire", "asyncio_wire",  # talking to servers
    "errors",  # the driver's errors into ours
}  # fmt: skip

EXTRAS: dict[str, dict[str, str]] = {
    "etcd": {
        "claims": "a claim as it is stored, and as its client remembers it: one object with a state",
        "protobuf": "etcd's wire format, so that no generated code is needed",
        "rpc": "its messages, as bytes and back",
        "sessions": "the leases of etcd that claims live on",
        "transactions": "the conditions of the protocol; keys.py would outgrow a page",
    },
    "mysql": {
        "base": "what both modes share",
        "ddl": "the text of the tables; printed without a driver",
        "maintenance": "old rows, removed a slice at a time",
        "packets": "the text protocol, as bytes and back",
        "rows": "the rows of one name while they are decided upon, and their difference as SQL",
        "session": "the other mode: grants that end with a connection",
        "statements": "the SQL",
    },
    "postgres": {
        "adopted_pool": "connections of a pool or an engine of the user's own",
        "asyncpg_connection": "a connection of the other driver",
        "asyncpg_lender": "pools and engines that lend such",
        "base": "what both modes share",
        "ddl": "the text of tables and functions; printed without a driver",
        "deadlines": "giving up in time on what is slow to cancel",
        "driver": "what a connection of either driver must do",
        "executor": "single requests, and the tables that they need",
        "lender": "what lends connections",
        "maintenance": "the background work of a client",
        "psycopg_lender": "pools and engines over psycopg that lend connections",
        "session": "the other mode: grants that end with a connection",
        "statements": "values into parameters, rows into values",
    },
    "redis": {
        "calls": "script calls as bytes of Redis' protocol",
        "doctor_rights": "the part of the doctor that tries what an account may do",
        "router": "which connection a call takes, and redirections",
        "topology": "which server has a lock: one, Sentinel's primary, the owner of a slot",
    },
    "redlock": {
        "calls": "script calls as bytes, the same for all nodes",
        "node": "one node as a client sees it",
        "nodes": "all of them together",
        "undelivered": "releases that a node may have missed",
    },
    "sqlite": {
        "host": "the host's clocks, which are the store's",
        "ledger": "each request as one transaction",
        "lock_file": "where the file is, and whether SQLite can keep a promise there",
        "maintenance": "old rows, removed a slice at a time",
        "rows": "the kit's `Rows` over the tables",
        "statements": "the SQL",
    },
    "zookeeper": {
        "calls": "every wait for an answer, bounded",
        "claim_node": "one claim and its node",
        "session": "one session and the claims in it",
        "session_worker": "the thread that keeps sessions alive",
        "validity": "how long a session proves its grants",
    },
    "nats": {"documents": "the bucket as the kit's Documents, on which the whole store stands"},
}


def modules(store: Path) -> set[str]:
    return {path.stem for path in store.glob("*.py")}


@pytest.mark.parametrize("store", STORES, ids=lambda path: path.name)
def test_a_store_has_only_modules_of_the_plan(store: Path) -> None:
    assert modules(store) - PLAN - set(EXTRAS.get(store.name, {})) == set()


@pytest.mark.parametrize("store", STORES, ids=lambda path: path.name)
def test_an_extra_is_there_and_outside_the_plan(store: Path) -> None:
    extras = EXTRAS.get(store.name, {})
    assert set(extras) <= modules(store)
    assert not set(extras) & PLAN
    assert all(extras.values())


@pytest.mark.parametrize("store", STORES, ids=lambda path: path.name)
def test_every_store_has_the_modules_that_a_reader_looks_for_first(store: Path) -> None:
    without_options = {"memory"}  # a memory store has none
    assert {"store", "backend"} <= modules(store)
    assert "options" in modules(store) or store.name in without_options


def test_only_stores_are_in_the_folder_of_stores() -> None:
    assert {path.stem for path in BACKENDS.glob("*.py")} == {"__init__"}
