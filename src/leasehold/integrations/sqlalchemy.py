"""SQLAlchemy: a session whose every transaction begins with the guard.

    with lock.hold() as lease, Session() as session, fenced(session, lease):
        session.execute(...)
        session.commit()        # the next statement begins another transaction, which is guarded again

For a single transaction, `leasehold.sql.guard(session, lease)` as its first statement is all that is needed.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.orm import Session, scoped_session

from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.sql import guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import SessionTransaction

    from leasehold import AsyncLease, Lease

__all__ = ["fenced"]


@contextmanager
def fenced(session: Any, lease: Lease | AsyncLease | int, *, resource: str | None = None) -> Iterator[None]:
    """In this block, guard every transaction of the session: a late writer gets `StaleFence` at its first statement.

    `session` is a `Session` or an `AsyncSession`, which has not begun a transaction yet: what it has read before would
    be unguarded. `lease` and `resource` are those of `guard`.
    """
    blocking = _blocking(session)
    if blocking.in_transaction():
        raise ConfigurationError(
            "the session has begun a transaction already, whose reads are not guarded; commit or roll back first, and "
            "enter fenced() before the first statement"
        )

    def on_begin(_: Session, transaction: SessionTransaction, connection: Connection) -> None:
        if not transaction.nested:  # a savepoint is a part of a transaction that was guarded
            guard(connection, lease, resource=resource)

    event.listen(blocking, "after_begin", on_begin)
    try:
        yield
    finally:
        event.remove(blocking, "after_begin", on_begin)


def _blocking(session: Any) -> Session:
    """The session that has the events."""
    if isinstance(session, scoped_session):
        session = session()
    found = getattr(session, "sync_session", session)  # an AsyncSession
    if not isinstance(found, Session):
        raise ConfigurationError(f"fenced() takes a Session or AsyncSession, not {kind_of(session)}")
    return found
