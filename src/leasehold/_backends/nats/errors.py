"""What NATS and JetStream answer, as our errors: surely not applied, perhaps applied, or refused for good."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CONFLICTS",
    "NO_MESSAGE",
    "NO_STREAM",
    "could_not_connect",
    "from_api",
    "from_server",
    "lost",
    "no_time",
    "not_enabled",
]

NO_MESSAGE, NO_STREAM, TAKEN_NAME = 10037, 10059, 10058
CONFLICTS = (10071, 10164)  # the document has another version: stored, or just being stored
_NOT_ENABLED = (10039, 10076)
_NO_RIGHT = "permissions violation"
_BAD_LOGIN = ("authorization violation", "authentication expired", "authentication revoked", "account authentication")


def not_enabled(label: str) -> BackendRejected:
    """JetStream is off, for the server or for this account."""
    return BackendRejected(
        f"{label} has no JetStream, which the locks are kept in; start nats-server with -js, or enable JetStream for "
        "the account of this user",
        backend=label,
    )


def from_api(error: Mapping[str, Any], label: str) -> BackendError:
    """The error behind an answer of JetStream: what it answers with an error was not applied."""
    number, code = error.get("err_code"), error.get("code")
    why = f"{error.get('description', 'no reason given')} (error {number})"
    if number in _NOT_ENABLED:
        return not_enabled(label)
    if code == 503:
        return BackendUnavailable(f"{label}: JetStream cannot answer now: {why}; try again", backend=label)
    return BackendRejected(
        f"{label}: JetStream refused the request: {why}; check the bucket, its limits and those of the account",
        backend=label,
    )


def from_server(text: str, label: str) -> BackendError | None:
    """The error behind a line `-ERR`; None if the connection just ends after it, which says the rest."""
    if _NO_RIGHT in text.lower():
        return BackendRejected(
            f"{label}: this user lacks a right: {text}; docs/explanation/nats.md lists the subjects to allow",
            backend=label,
        )
    if any(sign in text.lower() for sign in _BAD_LOGIN):
        return BackendRejected(
            f"{label} refused the login: {text}; check user and password, or the token, in the URL", backend=label
        )
    return None


def could_not_connect(error: Exception, label: str) -> BackendError:
    """Nothing was sent."""
    if isinstance(error, BackendError) and not isinstance(error, OutcomeUnknown):
        return error
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return BackendRejected(
            f"{label}: TLS failed, and nothing was sent: {error}; check the certificate, its names and tls_ca",
            backend=label,
        )
    return BackendUnavailable(
        f"{label} cannot be reached: {str(error) or type(error).__name__}; check the hosts in the URL, and whether "
        "nats-server is running",
        backend=label,
    )


def no_time(label: str) -> BackendUnavailable:
    """The time was over before anything was sent."""
    return BackendUnavailable(
        f"{label}: there was no time left to send the request; allow a longer timeout", backend=label
    )


def lost(label: str, why: str) -> OutcomeUnknown:
    """Something was sent, and its answer will not come."""
    return OutcomeUnknown(f"{label}: {why}; the request may have been applied", backend=label)
