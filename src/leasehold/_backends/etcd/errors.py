"""gRPC's and etcd's errors as ours: surely not applied, perhaps applied, or refused.

gRPC's status codes alone do not tell these apart. `UNAVAILABLE` covers a refused connection, to which nothing was sent,
and a broken one, over which everything may have been; only the text says which.
"""

from __future__ import annotations

from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown

__all__ = [
    "CallFailed",
    "LeaseGone",
    "is_stale_token",
    "is_surely_not_applied",
    "may_work_elsewhere",
    "to_backend_error",
]

# Refused before anything was applied; another member may be able to.
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
    "PERMISSION_DENIED": "grant this user READWRITE rights on the prefix of the root",
    "UNAUTHENTICATED": "check user and password in the URL",
    "UNIMPLEMENTED": "use etcd 3.4 or newer, with its version 3 API",
    "RESOURCE_EXHAUSTED": "compact and defragment etcd or raise its quota, then disarm the alarm",
}
_REJECTED = {*_ADVICE, "INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "OUT_OF_RANGE", "ALREADY_EXISTS"}


class CallFailed(Exception):
    """A call ended with an error; `code` is the name of gRPC's status code."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details


class LeaseGone(Exception):
    """The lease that a request names does not exist; nothing was applied."""


def is_surely_not_applied(failure: CallFailed) -> bool:
    """Whether the request never reached a member that would apply it."""
    return failure.code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED") and any(
        text in failure.details for text in (*_NOT_APPLIED, *_NOT_CONNECTED)
    )


def may_work_elsewhere(failure: CallFailed) -> bool:
    """Whether another member may answer where this one did not."""
    return failure.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "CANCELLED")


def is_stale_token(failure: CallFailed) -> bool:
    """Whether a new token is needed; nothing was applied."""
    return any(text in failure.details for text in _STALE_TOKEN)


def to_backend_error(failure: CallFailed, label: str, *, reads: bool) -> BackendError | LeaseGone:
    """The error to raise. A request that only reads cannot have been applied."""
    details = failure.details
    if failure.code == "NOT_FOUND" and "lease not found" in details:
        return LeaseGone(details)
    if failure.code == "UNAVAILABLE" and any(text in details for text in _BAD_TLS):
        return BackendRejected(
            f"{label}: the TLS handshake failed: {_short(details)}; check tls_ca, tls_cert and tls_key, "
            "and that the certificate has the host name of the URL",
            backend=label,
        )
    if is_surely_not_applied(failure):
        return BackendUnavailable(
            f"{label}: no etcd member can be reached, or none has a leader: {_short(details)}; check the hosts in "
            "the URL, and whether etcd is running",
            backend=label,
        )
    if failure.code in _REJECTED:
        advice = _ADVICE.get(failure.code, "look into etcd's log for the reason")
        return BackendRejected(f"{label}: etcd refused the request: {_short(details)}; {advice}", backend=label)
    if reads:
        return BackendUnavailable(f"{label}: etcd did not answer in time: {_short(details)}; try again", backend=label)
    return OutcomeUnknown(
        f"{label}: etcd did not answer in time: {_short(details)}; the request may have been applied", backend=label
    )


def _short(details: str) -> str:
    """The first line, cut off: gRPC adds lists of addresses and attempts."""
    return details.partition("\n")[0][:200] or "no details"
