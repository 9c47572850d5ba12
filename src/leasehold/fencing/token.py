"""What a guard must know about a lease: its fence, its lock, and which grant it is. No resource in here.

The rule, per resource, with two registers W (the highest fence of an exclusive holder) and R (of a shared one):

    exclusive   passes iff t > W, or t = W and it set W itself; and t > R. Then W := t
    shared      passes iff t > W. Then R := max(R, t)

An order of fences cannot protect a resource from the holders of a semaphore, so those are refused.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from leasehold._fence_command import raise_command
from leasehold.errors import ConfigurationError, FenceAhead, StaleFence
from leasehold.fencing.checks import note_stale
from leasehold.values import MAX_FENCE, Mode

if TYPE_CHECKING:
    from leasehold._blocking import Lease
    from leasehold._face.lease import AsyncLease

__all__ = ["Token", "checked_fence", "feed_back", "refused", "token_of", "wrong_lock"]

ABSURD = 10**12  # two stores that count from different origins, rather than two grants of one store
AN_HOUR = 3_600_000_000  # in the microseconds that most stores count their fences in


@dataclass(frozen=True, slots=True)
class Token:
    """A fence with what it belongs to."""

    fence: int
    resource: str
    lock: str | None  # namespace and name; None when only the number is known
    shared: bool
    grant: str | None  # distinguishes grants without giving the owner away; None when only the number is known

    @property
    def name(self) -> str | None:
        """What the user calls the lock."""
        return None if self.lock is None else self.lock.partition(":")[2]


def token_of(lease: Lease | AsyncLease | int, resource: str | None) -> Token:
    """Read a lease, or the number that another process was given."""
    if resource == "":
        raise ConfigurationError("resource must not be empty; leave it out to use the name of the lock")
    if isinstance(lease, int):
        return _token_of_number(lease, resource)
    claim = _async_face(lease)._tenure.grant.claim  # noqa: SLF001 - a friend: no public name would be used by others
    if claim.mode is Mode.PERMIT:
        raise ConfigurationError(
            "this is the lease of a semaphore: several hold it at once, and an order of fences cannot keep a late one "
            "out; protect the resource with a lock"
        )
    grant = hashlib.sha256(claim.owner.encode()).hexdigest()[:32]
    return Token(checked_fence(lease.fence), resource or claim.key, claim.key, claim.mode is Mode.SHARED, grant)


def checked_fence(fence: int) -> int:
    """A number that a store may have given out, or an error."""
    if isinstance(fence, bool) or not 1 <= fence <= MAX_FENCE:
        raise ConfigurationError(f"a fence is a whole number from 1 to {MAX_FENCE}, not {fence!r}")
    return fence


def _token_of_number(number: int, resource: str | None) -> Token:
    if resource is None:
        raise ConfigurationError("a fence alone does not name what it protects; pass resource= as well, or the lease")
    return Token(checked_fence(number), resource, None, shared=False, grant=None)


def _async_face(lease: Lease | AsyncLease) -> AsyncLease:
    if hasattr(lease, "fences"):
        raise ConfigurationError("these are several leases; guard each resource with its own: leases.leases[name]")
    twin = getattr(lease, "_twin", lease)  # the blocking face wraps the async one
    if not hasattr(twin, "_tenure"):
        raise ConfigurationError(f"guard() needs a lease or the number of its fence, not {type(lease).__name__}")
    return cast("AsyncLease", twin)


def refused(token: Token, highest: int, name: str | None = None) -> StaleFence:
    """The error for a late writer."""
    note_stale()
    hint = ""
    if highest - token.fence > ABSURD:
        hint = (
            "; the gap is so large that the fences seem to come from another store than before: see `leasehold fence`"
        )
    return StaleFence(
        f"the write was refused: {token.resource!r} has seen fence {highest}, and this one is {token.fence}. Another "
        f"holder came later; stop, and do not repeat the write{hint}",
        name=token.name or name,
        fence=token.fence,
        highest=highest,
    )


def wrong_lock(token: Token, bound_to: str) -> ConfigurationError:
    """The error for a resource that is guarded by another lock."""
    return ConfigurationError(
        f"the resource {token.resource!r} is guarded by the lock {bound_to!r}, and this lease is of {token.lock!r}: "
        "fences compare only within one lock"
    )


def feed_back(lease: Lease | AsyncLease | int, refusal: StaleFence) -> StaleFence:
    """Pass on to the lease's client what the resource has seen, so that its next grant is higher; the error to raise.

    A lease that is still ours by its own clock and yet far behind what the resource has seen is not late: its store
    has gone back, or the resource was given a number from elsewhere.
    """
    highest = refusal.highest
    if isinstance(lease, int) or highest is None:
        return refusal
    face = _async_face(lease)
    opened, tenure = face._opened, face._tenure  # noqa: SLF001 - a friend, as above
    opened.note_fence(tenure.grant.claim.key, highest)
    if highest - lease.fence <= AN_HOUR or face.remaining() == 0:
        return refusal
    return FenceAhead(
        f"the write was refused: the resource has seen fence {highest}, and the store of {lease.name!r} gives "
        f"{lease.fence} although the lease is held. If no process was frozen meanwhile, the store has gone back or was "
        f"replaced; run: {raise_command(tenure.grant.claim.key, highest, opened.backend.label)}",
        name=lease.name,
        backend=opened.backend.label,
        fence=lease.fence,
        highest=highest,
    )
