"""What an error of Redis means for a lock: surely not applied, perhaps applied, or refused for good."""

from __future__ import annotations

import re
import ssl

from leasehold.backends.redis.wire import load_driver
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable

__all__ = ["could_not_connect", "from_reply", "held_off", "is_not_logged_in", "prefix_of"]

# The server answered, did nothing, and may answer better in a moment.
NOT_NOW = {
    "LOADING": "it is still loading its data",
    "BUSY": "it is busy with a slow script",
    "MASTERDOWN": "it is a replica that has lost its primary",
    "READONLY": "it is a replica; a primary is needed",
    "CLUSTERDOWN": "the cluster does not serve this slot now",
    "TRYAGAIN": "the slot of this name is being moved",
    "MOVED": "the slot of this name is being moved",
    "ASK": "the slot of this name is being moved",
    "NOREPLICAS": "too few replicas are connected (min-replicas-to-write)",
    "MISCONF": "it cannot save its data to disk, and refuses writes",
    "OOM": "it has no memory left (maxmemory); free some, and keep maxmemory-policy at noeviction for locks",
    "UNBLOCKED": "it was told to stop waiting",
}

# The server answered, and will answer the same again.
FOR_GOOD = {
    "NOAUTH": "it wants a user name and password in the URL",
    "WRONGPASS": "it does not accept this user name and password",
    "NOPERM": "this account may not do that; `leasehold doctor` names the missing right, how-to/redis-acl.md lists all",
    "WRONGTYPE": "there is another program's value under a key of this lock; choose another namespace or prefix",
    "NOPROTO": "it does not speak this version of the protocol",
    "CROSSSLOT": "its keys are not in one slot of the Cluster; with compat=1 a name must not contain { or }",
}


# What a server says that wants a password first, when the request is long: Redis 6.2 and newer, and Valkey.
NOT_LOGGED_IN = ("unauthenticated multibulk length", "unauthenticated bulk length")

# What a denied command inside a script looks like: from Redis 6.2, 7.0, and 7.2 or Valkey on.
DENIED_IN_SCRIPT = ("NOPERM", "The user executing the script can't", "ACL failure in script")

# Redis 6.2 puts the word of an error inside a script behind its own.
WORD_IN_SCRIPT = re.compile(r"@user_script: ?\d+: -?([A-Z]+) ")


def prefix_of(text: str) -> str:
    """The word by which Redis tells its errors apart."""
    inside = WORD_IN_SCRIPT.search(text)
    if inside is not None:
        return inside[1]
    return text.split(maxsplit=1)[0] if text else ""


def is_not_logged_in(text: str) -> bool:
    """Whether a server that wants a password refused a request unread because it is long."""
    return any(sign in text for sign in NOT_LOGGED_IN)


def from_reply(text: str, label: str) -> BackendError:
    """What to raise for an error reply. An error inside a script says where it happened behind its own word."""
    word = prefix_of(text)
    if word in NOT_NOW:
        return BackendUnavailable(f"{label} cannot do it now: {NOT_NOW[word]} ({text})", backend=label)
    why = FOR_GOOD.get(word)
    if why is None and is_not_logged_in(text):
        why = FOR_GOOD["NOAUTH"]
    if why is None and any(sign in text for sign in DENIED_IN_SCRIPT):
        why = FOR_GOOD["NOPERM"]
    return BackendRejected(f"{label} refused: {why or 'it does not know this'} ({text})", backend=label)


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
                f"{label}: TLS failed, and nothing was sent: {part}; check the certificate, its names and ssl_ca_certs",
                backend=label,
            )
    for part in chain:
        refused = (exceptions.AuthenticationError, exceptions.NoPermissionError)
        if isinstance(part, refused) or prefix_of(str(part)) in FOR_GOOD:
            wants = "Authentication required" in str(part)
            said = f"{FOR_GOOD['NOAUTH']} ({part})" if wants else str(part)
            return BackendRejected(f"{label} refused the connection: {said}", backend=label)
    if isinstance(error, exceptions.ResponseError) and prefix_of(str(error)) not in NOT_NOW:
        return BackendRejected(f"{label} refused the greeting: {error}", backend=label)
    return BackendUnavailable(f"{label} cannot be reached: {str(error) or type(error).__name__}", backend=label)


def held_off(left_ms: int) -> str | None:
    """Why a lock is not granted that nobody is known to hold; None if the server is not the reason."""
    if left_ms <= 0:
        return None
    return (
        f"nobody is known to hold it, but strict= lets the server grant nothing for another {left_ms / 1000:.3g} s, "
        "because what it granted before it was started or promoted may be lost"
    )
