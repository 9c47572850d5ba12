"""The idioms of guards and of the other ways in a database, of telemetry, and of help for tests, for type checkers."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, assert_type

import leasehold
from leasehold import AsyncLease, Lease, fleet, kit, sql, telemetry
from leasehold.fencing import asgi, etcd, http, redis
from leasehold.findings import Finding, Level
from leasehold.spi import Backend, Runtime, Store
from leasehold.store_url import StoreURL
from leasehold.testing import Faults, FaultyBackend, ManualClock, ManualStore, contract, lose

TABLE = "account"
WHERE = {"id": 7}


def guarded(tx: sqlite3.Connection, lease: Lease) -> None:
    sql.guard(tx, lease, resource="account 7")
    assert_type(sql.fenced_update(tx, lease, TABLE, {"balance": 1}, where=WHERE), bool)
    assert_type(sql.transaction_lock(tx, "stock", wait=False), bool)
    assert_type(sql.cas_update(tx, TABLE, {"balance": 1}, where=WHERE, version=3), int)
    inserted = sql.insert_once(tx, TABLE, {"id": 7}, key="id")
    assert_type(inserted, sql.InsertedOnce)
    assert_type(inserted.inserted, bool)
    rows = sql.lock_rows(tx, TABLE, [WHERE], wait=1)
    sql.lock_row(tx, TABLE, WHERE)
    sql.lock_free_rows(tx, TABLE, {"state": "new"}, order_by="id")
    assert_type(len(rows), int)


def schemas() -> list[str]:
    return [
        sql.fence_schema(TABLE, "id"),
        *sql.fence_statements(TABLE, "id"),
        sql.guard_schema(),
        sql.idempotency_schema(),
        sql.queue_schema(),
        sql.reservations_schema(),
        sql.store_schema(),
    ]


def preconditions(header: str | None, version: int) -> str:
    sql.require_match(version, header)
    sql.require_none_match(version, None)
    if sql.not_modified(version, header):
        return ""
    tags = sql.parse_etags(header or "*")
    assert_type(tags, sql.ETags)
    assert_type(tags.tags, tuple[sql.ETag, ...])
    return sql.etag_of(version)


def kept(tx: sqlite3.Connection) -> None:
    keys = sql.IdempotencyKeys("payments")
    with keys.attempt(tx, "key", fingerprint=7) as attempt:
        assert_type(attempt, sql.TransactionAttempt)
        if not attempt.replayed:
            attempt.complete(8)
    stock = sql.Stock("tickets")
    reservation = stock.reserve(tx, {"seat": 1}, key="order 7")
    assert_type(reservation, sql.Reservation)
    assert_type(stock.levels(tx), list[sql.StockLevel])
    assert_type(stock.confirm(tx, reservation.key), sql.Reservation)


def handle(job: sql.Job) -> None:
    if job.attempt > 3:
        raise sql.GiveUp("it will never work")


def queued(tx: sqlite3.Connection) -> None:
    queue = sql.Queue("mail", visibility="1m")
    number = queue.enqueue(tx, {"to": "you"}, key="7")
    for job in queue.claim(tx):
        assert_type(job, sql.Job)
        queue.complete(tx, job)
    found = sql.find_job(tx, number)
    assert_type(found, sql.JobInfo | None)
    assert_type(sql.list_queues(tx), list[sql.QueueCounts])
    queue.run(handle, lambda: tx, until_idle=True)


def repeated(begin: Any) -> None:
    @sql.retry_on_conflict(begin, timeout=5)
    def ship(tx: sqlite3.Connection, order: int) -> str:
        return f"{tx} {order}"

    assert_type(ship(7), str)
    assert_type(sql.retry_on_conflict(begin, lambda _: 7), int)
    assert_type(sql.is_retryable(OSError()), bool)


async def guarded_async(tx: Any, lease: AsyncLease) -> None:
    await sql.guard_async(tx, lease)
    assert_type(await sql.fenced_update_async(tx, lease, TABLE, {"balance": 1}, where=WHERE), bool)
    assert_type(await sql.transaction_lock_async(tx, "stock"), bool)
    assert_type(await sql.cas_update_async(tx, TABLE, {}, where=WHERE, version=3), int)
    assert_type(await sql.insert_once_async(tx, TABLE, {"id": 7}, key=["id"]), sql.InsertedOnce)
    await sql.lock_row_async(tx, TABLE, WHERE)
    await sql.lock_rows_async(tx, TABLE, [WHERE])
    await sql.lock_free_rows_async(tx, TABLE, {}, order_by="id")
    async with sql.IdempotencyKeys("payments").attempt_async(tx, "key", fingerprint=7) as attempt:
        assert_type(attempt, sql.AsyncTransactionAttempt)
    assert_type(await sql.find_job_async(tx, 7), sql.JobInfo | None)
    assert_type(await sql.list_queues_async(tx), list[sql.QueueCounts])


def other_resources(client: Any, lease: Lease, response: Any, begin: Any) -> None:
    redis.FencedRedis(client, lease, resource="stock")
    redis.AsyncFencedRedis(client, lease)
    assert_type(etcd.still_held(lease), etcd.StillHeld)
    assert_type(http.fence_headers(lease)[http.HEADER], str)
    http.fence_hooks(lease)
    http.fence_hooks_async(lease)
    http.raise_if_stale(response, lease)
    assert_type(http.parse_fence("7"), int | None)
    registers: list[asgi.Register] = [asgi.MemoryRegister(), asgi.RedisRegister(client), sql.DatabaseRegister(begin)]
    asgi.FenceMiddleware(
        client, resource=lambda scope: scope["path"], authenticated=lambda _: True, register=registers[0]
    )
    assert_type(asgi.fence_of({}), int)


def observed(client: leasehold.Client) -> None:
    stop = telemetry.prometheus(client, groups=["order:{order}"])
    telemetry.opentelemetry(client, spans=False)
    stop()
    reader = fleet.FleetReader(client)
    state = reader.read()
    assert_type(state, fleet.FleetState)
    assert_type(fleet.summary(state, fleet.Groups()), dict[str, fleet.GroupState])
    findings: Sequence[Finding] = client.examine()
    assert_type(findings[0].level, Level)


def tested() -> None:
    store = ManualStore(autojump=0.1)
    assert_type(store.clock, ManualClock)
    assert_type(store.faults, Faults)
    with store.connect().lock("x").hold() as lease:
        store.clock.advance(1)
        store.pass_time("1m")
        store.lose(lease)
        lose(lease)
    store.faults.drop_next_reply("release")
    contract.check(contract.CASES[0], contract.MemoryHarness(), contract.ThreadDriver())


class OwnStore:
    """A store of one's own, over documents: `connect` takes it in place of a URL."""

    def __init__(self, url: StoreURL, documents: kit.Documents) -> None:
        self.values = kit.read_options(url.options, [kit.flag("quick", "answer sooner")], "own://")
        self.documents = documents

    def open_backend(self, runtime: Runtime) -> Backend:
        backend = kit.DocumentBackend(self.documents, runtime, "own://")
        return FaultyBackend(backend, runtime, Faults())


def own(url: StoreURL, documents: kit.Documents) -> leasehold.Client:
    store: Store = OwnStore(url, documents)
    return leasehold.connect(store)
