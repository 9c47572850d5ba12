"""What a failed call means: surely not applied, perhaps applied, or refused. It knows gRPC's codes and etcd's texts."""

from __future__ import annotations

from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown

__all__ = ["CallFailed", "LeaseGone", "is_elsewhere", "is_stale_token", "is_surely_not_applied", "translated"]

# Refused before anything was done, but another member may be able to.
_NOT_APPLIED = ("etcdserver: no leader", "etcdserver: too many requests", "etcdserver: server stopped")
_NOT_CONNECTED = (
    "failed to connect to all addresses",
    "errors resolving",
    "DNS resolution failed",
    "Cannot invoke RPC",
)
_BAD_TLS = (
    "CERTIFICATE_VERIFY_FAILED",
    "handshake failed",
    "Hostname Verification Check failed",
    "TSI_DATA_CORRUPTED",  # the server wants a client certificate
    "WRONG_VERSION_NUMBER",
)
_STALE_TOKEN = ("invalid auth token", "revision of auth store is old")
_ADVICE = {
    "PERMISSION_DENIED": "give this user read and write rights on all keys below the root",
    "UNAUTHENTICATED": "check user and password in the URL",
    "UNIMPLEMENTED": "this needs etcd 3.4 or newer with its version 3 interface",
    "RESOURCE_EXHAUSTED": "compact and defragment etcd, or raise its quota, then disarm the alarm",
}
_REJECTED = {*_ADVICE, "INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "OUT_OF_RANGE", "ALREADY_EXISTS"}


class CallFailed(Exception):
    """A call of a wire ended with an error; `code` is the name of gRPC's status code."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details


class LeaseGone(Exception):
    """The lease that a request names does not exist any more; nothing was applied."""


def is_surely_not_applied(failure: CallFailed) -> bool:
    """Whether the request never reached a member that would do it."""
    return failure.code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED") and any(
        text in failure.details for text in (*_NOT_APPLIED, *_NOT_CONNECTED)
    )


def is_elsewhere(failure: CallFailed) -> bool:
    """Whether another member may do better."""
    return failure.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "CANCELLED")


def is_stale_token(failure: CallFailed) -> bool:
    """Whether a new token would help; nothing was applied."""
    return any(text in failure.details for text in _STALE_TOKEN)


def translated(failure: CallFailed, label: str, *, reads: bool) -> BackendError | LeaseGone:
    """The error that says what happened. A request that only reads cannot have been applied."""
    details = failure.details
    if failure.code == "NOT_FOUND" and "lease not found" in details:
        return LeaseGone(details)
    if failure.code == "UNAVAILABLE" and any(text in details for text in _BAD_TLS):
        return BackendRejected(
            f"the TLS handshake with etcd failed: {_short(details)}; check ca=, cert=, and the host names",
            backend=label,
        )
    if is_surely_not_applied(failure):
        return BackendUnavailable(f"etcd cannot be reached: {_short(details)}", backend=label)
    if failure.code in _REJECTED:
        advice = _ADVICE.get(failure.code)
        return BackendRejected(
            f"etcd refused: {_short(details)}" + (f"; {advice}" if advice else ""),
            backend=label,
        )
    if reads:
        return BackendUnavailable(f"etcd did not answer: {_short(details)}", backend=label)
    return OutcomeUnknown(f"etcd did not answer: {_short(details)}; it may have been done", backend=label)


def _short(details: str) -> str:
    """The first line, and not too much of it: gRPC likes to tell long stories."""
    return details.partition("\n")[0][:200] or "no details"
