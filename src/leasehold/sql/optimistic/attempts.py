"""What follows from the error of an attempt: a pause and another one, or the end. It decides, and does not wait."""

from __future__ import annotations

import sqlite3
import sys
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from leasehold._runtimes.randomness import jitter
from leasehold.errors import LeaseholdError, OutcomeUnknown, RowBusy, VersionConflict
from leasehold.sql.errors import error_chain, is_retryable, mysql_code, sqlite_code, sqlstate

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backoff import Backoff

__all__ = ["Attempts", "Rules", "commit_is_unknown", "is_conflict"]

# Answers that do not say what became of the commit: the connection (08) or the server (57P) went away meanwhile.
_UNKNOWN_STATES = ("08", "57P", "40003", "58", "XX")
# MySQL and MariaDB: what the client says when it lost the server, and what the server says when it is going away
_UNKNOWN_NUMBERS = range(2000, 3000)
_GOING_AWAY = {1053, 1152, 1317, 1927, 3024, 4031, 0}
# SQLite: the file was full, could not be written or is damaged
_UNKNOWN_CODES = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_PROTOCOL}


@dataclass(frozen=True, slots=True)
class Rules:
    """The options of `retry_on_conflict`."""

    backoff: Backoff
    timeout: float | None
    idempotent: bool
    on_retry: Callable[[int, Exception, float], object] | None


def is_conflict(error: BaseException) -> bool:
    """Whether the unit met another writer, and surely has not been committed."""
    if isinstance(error, (VersionConflict, RowBusy)) or is_retryable(error):
        return True
    # Where it is not loaded, or another thread is loading it just now, it was not raised.
    stale = getattr(sys.modules.get("sqlalchemy.orm.exc"), "StaleDataError", None)
    return stale is not None and any(isinstance(each, stale) for each in error_chain(error))


def commit_is_unknown(error: BaseException) -> bool:
    """Whether an error of the commit leaves open what became of it. An answer of the database that says no does not."""
    if isinstance(error, LeaseholdError):
        return isinstance(error, OutcomeUnknown)
    state = sqlstate(error)
    if state is not None:
        return state.startswith(_UNKNOWN_STATES)
    code = sqlite_code(error)
    if code is not None:
        return code & 0xFF in _UNKNOWN_CODES
    number = mysql_code(error)
    if number is not None:
        return number in _UNKNOWN_NUMBERS or number in _GOING_AWAY
    return any(_is_of_a_driver(each) for each in error_chain(error))


def _is_of_a_driver(error: BaseException) -> bool:
    """An error of the connection: neither the program's own, nor one with a code of the database."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, OSError) or bool(names & {"OperationalError", "InterfaceError", "DBAPIError"})


class Attempts:
    """The attempts of one call."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._made = 0
        self._begun = monotonic()
        self._unknown = False  # what became of an earlier attempt

    def after(self, error: Exception, *, committing: bool) -> float:
        """The pause before the next attempt; raises the error if there is none."""
        unknown = committing and not is_conflict(error) and commit_is_unknown(error)
        if not unknown and not is_conflict(error):
            raise self._with_notes(error)
        pause = self._rules.backoff.delay(self._made, jitter())
        if unknown and (not self._rules.idempotent or self._is_over(pause)):
            raise OutcomeUnknown(
                f"the connection failed while the transaction was being committed ({error}): the unit may have been "
                "done or not. Look whether it was; or make it idempotent, for example with IdempotencyKeys, and say so "
                "with idempotent=True"
            ) from error
        if self._is_over(pause):
            raise self._with_notes(error, "gave up")
        self._unknown = self._unknown or unknown
        self._made += 1
        if self._rules.on_retry is not None:
            self._rules.on_retry(self._made, error, pause)
        return pause

    def _is_over(self, pause: float) -> bool:
        if self._rules.backoff.is_last(self._made):
            return True
        return self._rules.timeout is not None and monotonic() + pause >= self._begun + self._rules.timeout

    def _with_notes(self, error: Exception, what: str | None = None) -> Exception:
        if what is not None:
            error.add_note(
                f"retry_on_conflict {what} after {self._made + 1} tries in {monotonic() - self._begun:.2f} s"
            )
        if self._unknown:
            error.add_note(
                "the connection failed while an earlier try was being committed: that one may have been done or not"
            )
        return error
