"""Values in etcd itself that refuse a late writer: the condition "my grant still exists", for a transaction of yours.

    held = still_held(lease)
    etcd3gw_client.transaction({"compare": [held.as_json()], "success": [...], "failure": []})

A transaction under this condition is applied only while the lock is held, in the same step: no clock and no fence has
to be compared. It protects what is in the same etcd cluster as the lock, and nothing else. The condition is etcd's own,
so it fits any client of etcd.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from leasehold.errors import ConfigurationError, LeaseLost
from leasehold.spi import Conditioning

if TYPE_CHECKING:
    from leasehold._blocking import Lease
    from leasehold._face.lease import AsyncLease

__all__ = ["StillHeld", "still_held"]


@dataclass(frozen=True, slots=True)
class StillHeld:
    """The condition that a grant still exists: its key was created by this revision, and not deleted since.

    Build your client's own comparison of `key` and `create_revision`, or use one of the two ready forms.
    """

    key: bytes
    create_revision: int
    _message: bytes = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        """For etcd's JSON gateway, and so for etcd3gw."""
        key = base64.b64encode(self.key).decode()
        return {"key": key, "result": "EQUAL", "target": "CREATE", "create_revision": str(self.create_revision)}

    def as_message(self) -> bytes:
        """As a serialised `etcdserverpb.Compare`, which the class of any gRPC client reads with `FromString`."""
        return self._message


def still_held(lease: Lease | AsyncLease) -> StillHeld:
    """The condition for this lease. Does no I/O: whether it holds is decided in the transaction.

    Raises `LeaseLost` if the lease is known to be over, and `ConfigurationError` for a lease of another store.
    """
    face = cast("AsyncLease", getattr(lease, "_twin", lease))  # the blocking face wraps the async one
    tenure = getattr(face, "_tenure", None)
    if tenure is None:
        raise ConfigurationError(
            f"still_held() needs a lease, not {type(lease).__name__}; pass what acquire() or hold() returned"
        )
    backend = face._opened.backend  # noqa: SLF001 - a friend, as the guards are
    if not isinstance(backend, Conditioning):
        raise ConfigurationError(f"{backend.label} is no etcd store; guard its resources by the fence of the lease")
    found = backend.grant_condition(tenure.grant)
    if found is None:
        raise LeaseLost(
            f"the lock {lease.name!r} is not held any more; stop what it protects, or acquire it again",
            name=lease.name,
            backend=backend.label,
        )
    return StillHeld(*found)
