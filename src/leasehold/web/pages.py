"""The pages: what each is called, what it asks for, and the facts it is drawn from.

The facts of a page are plain data. `GET /api/v1/NAME` answers with the same data, so there is nothing on a page that a
program cannot have.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError
from leasehold.values import Capability, Mode
from leasehold.web.facts import TableQuery, holder_facts, lock_facts, lock_table, pause_facts
from leasehold.web.partitions import partition_groups

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from leasehold.fleet import FleetState
    from leasehold.values import LastRun
    from leasehold.web.board import Board

__all__ = ["PAGES", "Page"]

KEY_PREFIX = "idempotency:"
SHOWN = 200  # rows of a page that has no pages
EXAMINED_FOR = 30.0
LONG_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Page:
    """One page. `parameters` are those of its query, with a sentence for each."""

    name: str
    title: str
    collect: Callable[[Board, Mapping[str, str]], Awaitable[dict[str, Any]]]
    parameters: Mapping[str, str]
    in_menu: bool = True
    live: bool = True


async def _locks(board: Board, query: Mapping[str, str]) -> dict[str, Any]:
    state = await board.source.fleet()
    return {
        **_reading(state),
        "queues": board.source.has(Capability.FIFO),
        **lock_table(state, board.source.history, TableQuery.of(query)),
    }


def _reading(state: FleetState) -> dict[str, Any]:
    return {"error": state.error, "age": round(max(0.0, time.monotonic() - state.read_at), 3)}


async def _lock(board: Board, query: Mapping[str, str]) -> dict[str, Any]:
    name = query.get("name", "")
    if not name:
        raise ConfigurationError("which lock? Add its name to the address: lock?name=NAME")
    source = board.source
    state = await source.lock(name)
    runs = await board.jobs.look([name], []) if source.has(Capability.RECORD) else {}
    last = runs.get(name)
    return {
        "error": None,
        "name": name,
        "lock": None if state is None else lock_facts(state, source.history),
        "queues": source.has(Capability.FIFO),
        "pausable": source.has(Capability.PAUSE),
        "last_run": None if last is None else _run_facts(last),
        "grants": [asdict(grant) for grant in source.history.of(name)],
        "seen_since": source.history.since,
    }


async def _leaders(board: Board, _: Mapping[str, str]) -> dict[str, Any]:
    state = await board.source.fleet()
    locks = {lock.name: lock for lock in state.locks}
    names = board.chosen(board.elections, locks)
    rows = []
    for name in sorted(names)[:SHOWN]:
        lock = locks.get(name)
        facts = None if lock is None else lock_facts(lock, board.source.history)
        terms = board.source.history.of(name)
        rows.append({
            "name": name,
            "leader": facts["holdings"][0] if facts and facts["holdings"] else None,
            "candidates": 0 if lock is None else len(lock.waiting),
            "terms_seen": len(terms),
        })  # fmt: skip
    return {**_reading(state), "patterns": list(board.elections), "leaders": rows, "found": len(names)}


async def _jobs(board: Board, _: Mapping[str, str]) -> dict[str, Any]:
    source = board.source
    if not source.has(Capability.RECORD):
        return {"error": None, "supported": False, "pausable": False, "jobs": []}
    state = await source.fleet()
    locks = {lock.name: lock for lock in state.locks}
    seen = (lock.name for lock in state.locks if lock.mode is Mode.EXCLUSIVE and not lock.name.startswith(KEY_PREFIX))
    runs = await board.jobs.look(board.chosen(board.job_names, locks), seen) if state.error is None else {}
    rows = []
    for name, last in tuple(runs.items())[:SHOWN]:
        lock = locks.get(name)
        running = None if lock is None or not lock.holdings else lock.holdings[0]
        paused = None if lock is None else lock.paused
        rows.append({
            "name": name,
            "running": None if running is None else {**holder_facts(running.holder), "held_for": running.held_for},
            "paused": None if paused is None else pause_facts(paused),
            "last_run": None if last is None else _run_facts(last),
        })  # fmt: skip
    return {**_reading(state), "supported": True, "pausable": source.has(Capability.PAUSE), "jobs": rows}


def _run_facts(last: LastRun) -> dict[str, Any]:
    return {
        "slot": last.slot,
        "outcome": last.outcome,
        "runner": holder_facts(last.runner),
        "finished": last.finished,
        "began": last.began,
        "fence": last.fence,
        "closed": last.closed,
        "again": last.again,
        "forgotten": last.forgotten,
    }


async def _keys(board: Board, query: Mapping[str, str]) -> dict[str, Any]:
    source = board.source
    if not source.has(Capability.RECORD):
        return {"error": None, "supported": False, "running": [], "asked": None, "answer": None}
    state = await source.fleet()
    running = []
    for lock in state.locks:
        parts = _scope_and_key(lock.name)
        if parts is not None and lock.holdings:
            facts = lock_facts(lock, source.history)
            running.append({"scope": parts[0], "key": parts[1], "name": lock.name, **facts["holdings"][0]})
    scope, key = query.get("scope", ""), query.get("key", "")
    answer: dict[str, Any] | None = None
    if scope and key:
        found = await source.shared(("key", scope, key), lambda: source.client.idempotency(scope).inspect(key))
        answer = {"found": False}
        if found is not None:
            answer = {"found": True, "state": found.state, "since": found.since, "expires_in": found.expires_in}
    return {
        **_reading(state),
        "supported": True,
        "running": running[:SHOWN],
        "found": len(running),
        "asked": {"scope": scope, "key": key} if scope and key else None,
        "answer": answer,
    }


def _scope_and_key(name: str) -> tuple[str, str] | None:
    """From the name of a key's lock, `idempotency:SIZE:SCOPE:KEY`."""
    size, found, rest = name.removeprefix(KEY_PREFIX).partition(":")
    if not name.startswith(KEY_PREFIX) or not found or not size.isascii() or not size.isdigit():
        return None
    scope, key = rest[: int(size)], rest[int(size) + 1 :]
    return (scope, key) if key else None


async def _queue(board: Board, query: Mapping[str, str]) -> dict[str, Any]:
    from leasehold.sql import Queue, list_queues  # noqa: PLC0415 - only for users of queues
    from leasehold.sql.database_url import database_name  # noqa: PLC0415

    source = board.source
    if source.database is None:
        return {"error": None, "supported": False, "database": None, "queues": [], "queue": None, "jobs": []}
    name, state = query.get("queue", ""), query.get("state", "dead")
    wanted: Any = state if state in ("ready", "claimed", "done", "dead") else "dead"

    def ask(database: Any) -> tuple[list[Any], list[Any]]:
        jobs = Queue(name).jobs(database, state=wanted, limit=SHOWN) if name else []
        return list_queues(database), jobs

    queues, jobs = await source.with_database(ask)
    return {
        "error": None,
        "supported": True,
        "database": database_name(source.database),
        "queues": [asdict(each) for each in queues],
        "queue": name or None,
        "state": wanted,
        "jobs": [{field: value for field, value in asdict(job).items() if field != "payload"} for job in jobs],
    }


async def _partitions(board: Board, _: Mapping[str, str]) -> dict[str, Any]:
    state = await board.source.fleet()
    supported = board.source.has(Capability.PERMITS)
    return {**_reading(state), "supported": supported, "groups": partition_groups(state.locks)}


async def _doctor(board: Board, _: Mapping[str, str]) -> dict[str, Any]:
    source = board.source
    findings = await source.shared("doctor", source.client.examine, EXAMINED_FOR, LONG_PATIENCE)
    ordered = sorted(findings, key=lambda finding: -finding.level)
    capabilities = source.client.capabilities
    return {
        "error": None,
        "findings": [finding.as_data() for finding in ordered],
        "capabilities": {str(each): each in capabilities for each in Capability},
    }


async def _audit(board: Board, _: Mapping[str, str]) -> dict[str, Any]:
    return {
        "error": None,
        "file": None if board.audit.path is None else str(board.audit.path),
        "entries": [asdict(entry) for entry in board.audit.entries()[:SHOWN]],
    }


_SEARCH = {
    "q": "only locks whose name, holder or reason contains this",
    "long": "1: only locks that are held for longer than a minute",
    "waiters": "1: only locks with waiters",
    "sort": "name, held, left, fence or waiters",
    "order": "asc or desc",
    "page": "which page of 100 locks, from 1",
}

PAGES = {
    page.name: page
    for page in (
        Page("locks", "Locks", _locks, _SEARCH),
        Page("lock", "Lock", _lock, {"name": "the lock"}, in_menu=False),
        Page("leaders", "Leaders", _leaders, {}),
        Page("jobs", "Jobs", _jobs, {}),
        Page("keys", "Keys", _keys, {"scope": "of a key to look up", "key": "the key to look up"}),
        Page("queue", "Queue", _queue, {"queue": "whose jobs to list", "state": "ready, claimed, done or dead"}),
        Page("partitions", "Partitions", _partitions, {}),
        Page("doctor", "Doctor", _doctor, {}),
        Page("audit", "Audit", _audit, {}),
    )
}
