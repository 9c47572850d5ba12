"""On the resource's side, in a SQL database of the user's own: refusing a late writer, and work that was done before.

with database.transaction():        # psycopg, sqlite3, PyMySQL, SQLAlchemy, Django
    guard(database, lease)          # the first statement of the transaction
    database.execute("UPDATE ...")

Names are loaded when they are first used: a program that guards need not wait for queues and reservations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._lazy import LazyNames

if TYPE_CHECKING:
    from leasehold.sql.errors import is_retryable
    from leasehold.sql.guards.columns import fenced_update, fenced_update_async
    from leasehold.sql.guards.guard import guard, guard_async, guard_schema
    from leasehold.sql.guards.register import DatabaseRegister
    from leasehold.sql.guards.transaction_lock import transaction_lock, transaction_lock_async
    from leasehold.sql.guards.triggers import fence_schema, fence_statements
    from leasehold.sql.idempotency.keys import (
        AsyncTransactionAttempt,
        IdempotencyKeys,
        TransactionAttempt,
        idempotency_schema,
    )
    from leasehold.sql.inserts.insert_once import InsertedOnce, insert_once, insert_once_async
    from leasehold.sql.optimistic.cas import cas_update, cas_update_async
    from leasehold.sql.optimistic.etag import (
        ETag,
        ETags,
        etag_of,
        not_modified,
        parse_etags,
        require_match,
        require_none_match,
    )
    from leasehold.sql.optimistic.retry import retry_on_conflict
    from leasehold.sql.queue.job import GiveUp, Job, JobInfo, QueueCounts
    from leasehold.sql.queue.queue import Queue, find_job, find_job_async, list_queues, list_queues_async, queue_schema
    from leasehold.sql.reservations.stock import Reservation, Stock, StockLevel, reservations_schema
    from leasehold.sql.row_locks.locks import (
        lock_free_rows,
        lock_free_rows_async,
        lock_row,
        lock_row_async,
        lock_rows,
        lock_rows_async,
    )
    from leasehold.sql.store import store_schema

_HOMES = {
    "leasehold.sql.errors": ["is_retryable"],
    "leasehold.sql.guards.columns": ["fenced_update", "fenced_update_async"],
    "leasehold.sql.guards.guard": ["guard", "guard_async", "guard_schema"],
    "leasehold.sql.guards.register": ["DatabaseRegister"],
    "leasehold.sql.guards.transaction_lock": ["transaction_lock", "transaction_lock_async"],
    "leasehold.sql.guards.triggers": ["fence_schema", "fence_statements"],
    "leasehold.sql.idempotency.keys": [
        "AsyncTransactionAttempt", "IdempotencyKeys", "TransactionAttempt", "idempotency_schema",
    ],
    "leasehold.sql.inserts.insert_once": ["InsertedOnce", "insert_once", "insert_once_async"],
    "leasehold.sql.optimistic.cas": ["cas_update", "cas_update_async"],
    "leasehold.sql.optimistic.etag": [
        "ETag", "ETags", "etag_of", "not_modified", "parse_etags", "require_match", "require_none_match",
    ],
    "leasehold.sql.optimistic.retry": ["retry_on_conflict"],
    "leasehold.sql.queue.job": ["GiveUp", "Job", "JobInfo", "QueueCounts"],
    "leasehold.sql.queue.queue": [
        "Queue", "find_job", "find_job_async", "list_queues", "list_queues_async", "queue_schema",
    ],
    "leasehold.sql.reservations.stock": ["Reservation", "Stock", "StockLevel", "reservations_schema"],
    "leasehold.sql.row_locks.locks": [
        "lock_free_rows", "lock_free_rows_async", "lock_row", "lock_row_async", "lock_rows", "lock_rows_async",
    ],
    "leasehold.sql.store": ["store_schema"],
}  # fmt: skip

__all__ = [
    "AsyncTransactionAttempt",
    "DatabaseRegister",
    "ETag",
    "ETags",
    "GiveUp",
    "IdempotencyKeys",
    "InsertedOnce",
    "Job",
    "JobInfo",
    "Queue",
    "QueueCounts",
    "Reservation",
    "Stock",
    "StockLevel",
    "TransactionAttempt",
    "cas_update",
    "cas_update_async",
    "etag_of",
    "fence_schema",
    "fence_statements",
    "fenced_update",
    "fenced_update_async",
    "find_job",
    "find_job_async",
    "guard",
    "guard_async",
    "guard_schema",
    "idempotency_schema",
    "insert_once",
    "insert_once_async",
    "is_retryable",
    "list_queues",
    "list_queues_async",
    "lock_free_rows",
    "lock_free_rows_async",
    "lock_row",
    "lock_row_async",
    "lock_rows",
    "lock_rows_async",
    "not_modified",
    "parse_etags",
    "queue_schema",
    "require_match",
    "require_none_match",
    "reservations_schema",
    "retry_on_conflict",
    "store_schema",
    "transaction_lock",
    "transaction_lock_async",
]

if not TYPE_CHECKING:  # so that type checkers refuse a name that is not there
    __getattr__ = LazyNames(__name__, _HOMES).find


def __dir__() -> list[str]:
    return __all__
