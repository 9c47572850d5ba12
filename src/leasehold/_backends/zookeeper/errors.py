"""What kazoo's errors mean for a lock."""

from __future__ import annotations

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    SessionExpiredError,
    SessionMovedError,
    UnimplementedError,
)

from leasehold.errors import BackendRejected, BackendUnavailable, LeaseholdError, OutcomeUnknown

__all__ = ["session_ended", "translated"]

_REJECTIONS = {
    NoAuthError: "this account may not do that below the store's root; give it the rights cdrw there",
    AuthFailedError: "ZooKeeper refused the credentials; check the user and password, or the client certificate",
    InvalidACLError: "ZooKeeper refused the acl; acl=creator needs a user and password, or a client certificate",
    UnimplementedError: "this ZooKeeper is too old; locks need container nodes, so use version 3.5.3 or newer",
}


def translated(error: Exception, label: str) -> LeaseholdError:
    """Our error for one of kazoo's; `label` names the ensemble."""
    if isinstance(error, LeaseholdError):
        return error
    if isinstance(error, SessionExpiredError):  # every node of the session is deleted with it
        return session_ended(label)
    if isinstance(error, (ConnectionLoss, SessionMovedError)):
        return OutcomeUnknown(f"the connection to {label} was lost before the answer arrived", backend=label)
    for kind, sentence in _REJECTIONS.items():
        if isinstance(error, kind):
            return BackendRejected(f"{label}: {sentence}", backend=label)
    if isinstance(error, KazooException):
        return BackendRejected(
            f"{label} refused the request with {type(error).__name__}; `leasehold doctor` checks the ensemble",
            backend=label,
        )
    return OutcomeUnknown(f"{label}: {type(error).__name__}: {error}", backend=label)


def session_ended(label: str) -> BackendUnavailable:
    """The ensemble ended the session before the request was done; a new one is opened with the next call."""
    return BackendUnavailable(f"{label} ended the session; try again", backend=label)
