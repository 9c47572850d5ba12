"""Every error that leasehold raises on purpose.

    LeaseholdError
      AcquireTimeout (TimeoutError)           waited; did not get it
        Paused                                an operator has paused the name
      LeaseLost                               the lease is over; raised by check, renew and the end of hold
      StaleFence                              a guard has seen a newer fence
        FenceAhead                            so much newer that the store itself seems to have gone back
      Conflict                                another holder was first, or wants something else
        ModeConflict                          the name is in use as another kind of lock
        AlreadyRun                            this slot of a `once` job has been run
        AlreadyRunning                        a `once` job is being run by another process
        InFlight                              another attempt with this idempotency key is running
        KeyReused                             this idempotency key was used with another payload
        AttemptExpired                        an attempt with this key vanished: its work may be done
        ResultNotKept                         the work of this key is done; its result could not be stored
        OutOfStock                            less is available than a reservation wants
        ReservationRefused                    a reservation that is not there, or is over
          ReservationExpired                  its time is over, and what it held belongs to others
        RetryTransaction                      the whole transaction has to be run again
        VersionConflict                       another writer has changed the row since it was read
        RowBusy                               another transaction has the row locked
        UniqueConflict                        the new row meets another one, by another unique constraint
      PreconditionError                       what an HTTP request asked for does not hold; carries a status
        PreconditionFailed                    412: the resource is not what the caller has seen
        PreconditionRequired                  428: the caller must say what it has seen
        PreconditionMalformed                 400: the header cannot be read
      BackendError
        BackendUnavailable (ConnectionError)  surely not applied
        OutcomeUnknown                        sent, no answer: may have been applied
        BackendRejected                       rights, version, schema, wrong kind of key
      ClientClosed (RuntimeError)             the client was closed; never worth another try
      UnsupportedCapability                   the store never promised this
      ConfigurationError (ValueError)         bad ttl, name or URL; raised before any I/O

Each error is one sentence that says what happened and what to do, and carries its facts as attributes. The sentence is
the only positional argument: a TimeoutError or ConnectionError that gets two prints as "[Errno ...]". All facts are
optional keywords kept in the instance's dictionary, so the pickling that exceptions come with keeps them. No error
contains a password or an owner value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._error_roots import Conflict, LeaseholdError
from leasehold._reservation_errors import OutOfStock, ReservationExpired, ReservationRefused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from leasehold.values import Holder, LossReason, Pause, Skipped

__all__ = [
    "AcquireTimeout",
    "AlreadyRun",
    "AlreadyRunning",
    "AttemptExpired",
    "BackendError",
    "BackendRejected",
    "BackendUnavailable",
    "ClientClosed",
    "ConfigurationError",
    "Conflict",
    "FenceAhead",
    "InFlight",
    "KeyReused",
    "LeaseLost",
    "LeaseholdError",
    "ModeConflict",
    "OutOfStock",
    "OutcomeUnknown",
    "Paused",
    "PreconditionError",
    "PreconditionFailed",
    "PreconditionMalformed",
    "PreconditionRequired",
    "ReservationExpired",
    "ReservationRefused",
    "ResultNotKept",
    "RetryTransaction",
    "RowBusy",
    "StaleFence",
    "UniqueConflict",
    "UnsupportedCapability",
    "VersionConflict",
]


class AcquireTimeout(LeaseholdError, TimeoutError):
    """The wait for a lock ran out; `holder` is the one that had it then, `waited` the seconds that this call waited.

    `retry_after`: the seconds until the grant in the way ends, as the store last said, unless it is renewed, or
    released before. None where the store does not say it: etcd, ZooKeeper.
    """

    def __init__(
        self,
        message: str,
        *,
        name: str | None = None,
        backend: str | None = None,
        holder: Holder | None = None,
        waited: float = 0.0,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, name=name, backend=backend)
        self.holder = holder
        self.waited = waited
        self.retry_after = retry_after


class Paused(AcquireTimeout):
    """An operator has paused the name; `pause` has why and by whom. A call that waits gets it when it is resumed."""

    def __init__(
        self,
        message: str,
        *,
        name: str | None = None,
        backend: str | None = None,
        holder: Holder | None = None,
        waited: float = 0.0,
        retry_after: float | None = None,
        pause: Pause | None = None,
    ) -> None:
        super().__init__(message, name=name, backend=backend, holder=holder, waited=waited, retry_after=retry_after)
        self.pause = pause


class LeaseLost(LeaseholdError):
    """The lease is over: another holder may have the lock by now.

    `reason` is how it ended. `completed` is True when a `hold` block had already run to its end, so that its work was
    done, but possibly not under the lock.
    """

    def __init__(
        self,
        message: str,
        *,
        name: str | None = None,
        backend: str | None = None,
        reason: LossReason | None = None,
        completed: bool = False,
    ) -> None:
        super().__init__(message, name=name, backend=backend)
        self.reason = reason
        self.completed = completed


class StaleFence(LeaseholdError):
    """A guard refused a write: `highest` was seen there already, and `fence` is older."""

    def __init__(
        self,
        message: str,
        *,
        name: str | None = None,
        backend: str | None = None,
        fence: int | None = None,
        highest: int | None = None,
    ) -> None:
        super().__init__(message, name=name, backend=backend)
        self.fence = fence
        self.highest = highest


class FenceAhead(StaleFence):
    """A guard refused the present holder: what it has seen is far above what the store gives out.

    The store was restored, replaced or has lost its state, or the guard was once given a wrong number. An operator
    heals it with `leasehold fence raise`.
    """


class ModeConflict(Conflict):
    """The name is in use as another kind of lock: a mutex or read/write lock here, a semaphore there."""


class _SlotTaken(Conflict):
    """What the two ways to come too late for a slot have in common."""

    def __init__(
        self,
        message: str,
        *,
        name: str | None = None,
        backend: str | None = None,
        skipped: Skipped | None = None,
    ) -> None:
        super().__init__(message, name=name, backend=backend)
        self.skipped = skipped


class AlreadyRun(_SlotTaken):
    """A `once` job was run for this slot before; `skipped` has by which process and when."""


class AlreadyRunning(_SlotTaken):
    """A `once` job is being run by another process; `skipped` has by which."""


class InFlight(Conflict):
    """The first attempt with this idempotency `key` is still running; ask again after `retry_after` seconds, same key.

    `holder` is the process that runs it, where that is known.
    """

    def __init__(
        self,
        message: str,
        *,
        name: str | None = None,
        backend: str | None = None,
        key: str | None = None,
        retry_after: float = 1.0,
        holder: Holder | None = None,
    ) -> None:
        super().__init__(message, name=name, backend=backend)
        self.key = key
        self.retry_after = retry_after
        self.holder = holder


class KeyReused(Conflict):
    """This idempotency `key` was used before with another payload: nothing was run, and nothing is replayed."""

    def __init__(
        self, message: str, *, name: str | None = None, backend: str | None = None, key: str | None = None
    ) -> None:
        super().__init__(message, name=name, backend=backend)
        self.key = key


class AttemptExpired(Conflict):
    """An earlier attempt with this idempotency key vanished, so its work may be done or not; see on_expired."""


class ResultNotKept(Conflict):
    """The work of this idempotency key is done, but its result was too large to be stored, or no JSON value."""


class RetryTransaction(Conflict):
    """The database could not bring two transactions into an order: roll back, and run the whole transaction again.

    The fence was not refused. The error of the database driver is the cause of this one.
    """


class VersionConflict(Conflict):
    """A row of `table` does not have the version that the writer has seen: nothing was written.

    `key` names the row, `expected` is the version that the writer had read, `current` the row as it is now and
    `version` its version. `gone` says that there is no such row. A row that this transaction cannot see any more,
    because the database shows it an earlier moment, has neither: `current` is None although it is not `gone`.
    """

    def __init__(
        self,
        message: str,
        *,
        name: str | None = None,
        backend: str | None = None,
        table: str | None = None,
        key: Mapping[str, Any] | None = None,
        expected: int | None = None,
        version: int | None = None,
        current: Mapping[str, Any] | None = None,
        gone: bool = False,
    ) -> None:
        super().__init__(message, name=name, backend=backend)
        self.table = table
        self.key = key
        self.expected = expected
        self.version = version
        self.current = current
        self.gone = gone


class RowBusy(Conflict):
    """Another transaction has the row locked, and had it for as long as this one would wait; no row was locked.

    `table` and `key` name the row, `waited` is how many seconds were spent, `limit` which limit that was.
    """

    def __init__(
        self,
        message: str,
        *,
        name: str | None = None,
        backend: str | None = None,
        table: str | None = None,
        key: Mapping[str, Any] | None = None,
        limit: str | None = None,
        waited: float = 0.0,
    ) -> None:
        super().__init__(message, name=name, backend=backend)
        self.table = table
        self.key = key
        self.limit = limit
        self.waited = waited


class UniqueConflict(Conflict):
    """`insert_once` wrote nothing: another unique constraint than that of its key forbids the new row.

    `constraint` and `columns` say which one of `table`, as far as the database does.
    """

    def __init__(
        self,
        message: str,
        *,
        name: str | None = None,
        backend: str | None = None,
        table: str | None = None,
        constraint: str | None = None,
        columns: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, name=name, backend=backend)
        self.table = table
        self.constraint = constraint
        self.columns = columns


class PreconditionError(LeaseholdError):
    """What a request says in If-Match or If-None-Match does not hold; `status` is what to answer.

    `etag` is the tag of the resource as it is; None if there is no such resource, or it does not matter.
    """

    status = 412

    def __init__(
        self, message: str, *, name: str | None = None, backend: str | None = None, etag: str | None = None
    ) -> None:
        super().__init__(message, name=name, backend=backend)
        self.etag = etag


class PreconditionFailed(PreconditionError):
    """The resource is not what the caller has seen: answer 412, and let it read again."""


class PreconditionRequired(PreconditionError):
    """The caller did not say what it has seen: answer 428."""

    status = 428


class PreconditionMalformed(PreconditionError):
    """The header is no list of entity tags: answer 400, for to ignore it would be to write unconditionally."""

    status = 400


class BackendError(LeaseholdError):
    """The store did not carry a request out.

    `back_in`: in how many seconds it can, where that is only a matter of time: nodes of Redlock that sit out.
    """

    back_in: float | None = None


class BackendUnavailable(BackendError, ConnectionError):
    """The store could not be reached, and the request was surely not applied."""


class OutcomeUnknown(BackendError):
    """The request was sent and no answer came: it may have been applied."""


class BackendRejected(BackendError):
    """The store answered and refused: rights, version, schema, or a key of another kind."""


class ClientClosed(LeaseholdError, RuntimeError):
    """The client was closed, before this call or while it waited; not a trouble of the store, so never tried again."""

    def __init__(
        self,
        message: str = "this client is closed; make a new one with connect()",
        *,
        name: str | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(message, name=name, backend=backend)


class UnsupportedCapability(LeaseholdError):
    """The store never promised this; the message names a store that does, or another way."""


class ConfigurationError(LeaseholdError, ValueError):
    """A ttl, name, option or URL cannot be used; raised before any I/O."""
