"""On the resource's side, in a SQL database of the user's own: refusing a late writer, and work that was done before.

with database.transaction():        # psycopg, sqlite3, PyMySQL, SQLAlchemy, Django
    guard(database, lease)          # the first statement of the transaction
    database.execute("UPDATE ...")
"""

from leasehold.sql.columns import fenced_update, fenced_update_async
from leasehold.sql.errors import is_retryable
from leasehold.sql.guard import guard, guard_async, guard_schema
from leasehold.sql.idempotency import (
    AsyncTransactionAttempt,
    IdempotencyKeys,
    TransactionAttempt,
    idempotency_schema,
)
from leasehold.sql.register import DatabaseRegister
from leasehold.sql.store import store_schema
from leasehold.sql.transaction_lock import transaction_lock, transaction_lock_async
from leasehold.sql.triggers import fence_schema, fence_statements

__all__ = [
    "AsyncTransactionAttempt",
    "DatabaseRegister",
    "IdempotencyKeys",
    "TransactionAttempt",
    "fence_schema",
    "fence_statements",
    "fenced_update",
    "fenced_update_async",
    "guard",
    "guard_async",
    "guard_schema",
    "idempotency_schema",
    "is_retryable",
    "store_schema",
    "transaction_lock",
    "transaction_lock_async",
]
