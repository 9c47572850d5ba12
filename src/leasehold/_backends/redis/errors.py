"""What an error of Redis means for a lock: surely not applied, perhaps applied, or refused for good."""

from __future__ import annotations

import re
import ssl

from leasehold._backends.redis.wire import load_driver
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable

__all__ = ["could_not_connect", "error_code", "error_from_reply", "hold_off_reason", "is_not_logged_in"]

# The server answered, did nothing, and may answer better in a moment.
NOT_NOW = {
    "LOADING": "it is still loading its data; wait until that is done",
    "BUSY": "it is busy with a slow script; SCRIPT KILL ends one that has not written yet",
    "MASTERDOWN": "it is a replica that has lost its primary; use the primary, or redis+sentinel://",
    "READONLY": "it is a replica; use its primary, or redis+sentinel://",
    "CLUSTERDOWN": "the Cluster does not serve this slot now; `redis-cli --cluster check` names what is missing",
    "TRYAGAIN": "the slot of this name is being moved; wait until that is done",
    "MOVED": "the slot of this name is being moved; wait until that is done",
    "ASK": "the slot of this name is being moved; wait until that is done",
    "NOREPLICAS": "too few replicas are connected for its min-replicas-to-write; see INFO replication",
    "MISCONF": "it cannot save its data to disk and refuses writes; see its log and the disk",
    "OOM": "it has no memory left (maxmemory); free some, and keep maxmemory-policy at noeviction for locks",
    "UNBLOCKED": "CLIENT UNBLOCK ended this call; try again",
}

# The server answered, and will answer the same again.
FOR_GOOD = {
    "NOAUTH": "it wants a user name and password in the URL",
    "WRONGPASS": "it does not accept this user name and password",
    "NOPERM": "this account may not do that; `leasehold doctor` names the missing right, how-to/redis-acl.md lists all",
    "WRONGTYPE": "there is another program's value under a key of this lock; choose another namespace or prefix",
    "NOPROTO": "it does not know this version of the protocol; leave `protocol` out of the URL",
    "CROSSSLOT": "its keys are not in one slot of the Cluster; with compat=1 a name must not contain { or }",
}

NOT_UNDERSTOOD = "it cannot run this call; `leasehold doctor` checks its version and the rights of this account"

# The reply to a long request from a server that wants a password first: Redis 6.2 and newer, and Valkey.
NOT_LOGGED_IN = ("unauthenticated multibulk length", "unauthenticated bulk length")

# What a denied command inside a script looks like: from Redis 6.2, 7.0, and 7.2 or Valkey on.
DENIED_IN_SCRIPT = ("NOPERM", "The user executing the script can't", "ACL failure in script")

# Redis 6.2 puts the code of an error inside a script behind its own.
CODE_IN_SCRIPT = re.compile(r"@user_script: ?\d+: -?([A-Z]+) ")


def error_code(text: str) -> str:
    """The first word of an error reply, which is its kind."""
    inside = CODE_IN_SCRIPT.search(text)
    if inside is not None:
        return inside[1]
    return text.split(maxsplit=1)[0] if text else ""


def is_not_logged_in(text: str) -> bool:
    """Whether a server that wants a password refused a request unread because it is long."""
    return any(sign in text for sign in NOT_LOGGED_IN)


def error_from_reply(text: str, label: str) -> BackendError:
    """What to raise for an error reply. An error inside a script has its place in the script behind its code."""
    code = error_code(text)
    if code in NOT_NOW:
        return BackendUnavailable(f"{label} cannot do it now: {NOT_NOW[code]} ({text})", backend=label)
    why = FOR_GOOD.get(code)
    if why is None and is_not_logged_in(text):
        why = FOR_GOOD["NOAUTH"]
    if why is None and any(sign in text for sign in DENIED_IN_SCRIPT):
        why = FOR_GOOD["NOPERM"]
    return BackendRejected(f"{label} refused: {why or NOT_UNDERSTOOD} ({text})", backend=label)


def could_not_connect(error: Exception, label: str) -> BackendError:
    """What to raise when there is no connection: nothing was sent."""
    exceptions = load_driver().exceptions
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    for part in chain:
        if isinstance(part, ssl.SSLError) and not isinstance(part, ssl.SSLEOFError):
            return BackendRejected(
                f"{label}: TLS failed, and nothing was sent: {part}; check the certificate, its names and tls_ca",
                backend=label,
            )
    for part in chain:
        refused = (exceptions.AuthenticationError, exceptions.NoPermissionError)
        if isinstance(part, refused) or error_code(str(part)) in FOR_GOOD:
            wants_password = "Authentication required" in str(part)
            why = f"{FOR_GOOD['NOAUTH']} ({part})" if wants_password else str(part)
            return BackendRejected(f"{label} refused the connection: {why}", backend=label)
    if isinstance(error, exceptions.ResponseError) and error_code(str(error)) not in NOT_NOW:
        return BackendRejected(
            f"{label} refused the greeting: {error}; check the options of the URL and the server's version",
            backend=label,
        )
    return BackendUnavailable(f"{label} cannot be reached: {str(error) or type(error).__name__}", backend=label)


def hold_off_reason(left_ms: int) -> str | None:
    """Why a lock without a known holder is not granted; None if `strict` is not the reason."""
    if left_ms <= 0:
        return None
    return (
        f"it has no known holder, but strict= lets the server grant nothing for another {left_ms / 1000:.3g} s, "
        "because what it granted before it was started or promoted may be lost"
    )
