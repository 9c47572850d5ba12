"""An idempotency key and what is kept of it: checked, written and judged here, without a database."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

from leasehold._fingerprint import fingerprint_of
from leasehold.errors import ConfigurationError, InFlight, KeyReused, RetryTransaction
from leasehold.sql.json_text import json_text
from leasehold.sql.wires import Transaction, Wire

__all__ = [
    "Claim",
    "Dialect",
    "Kept",
    "Opened",
    "Rules",
    "check_text",
    "completed_inside",
    "ended_inside",
    "in_flight",
    "make_claim",
    "read_result",
    "replayable",
    "require_transaction",
    "retry",
    "write_result",
]

MAX_TEXT = 512  # bytes; a name, a principal and a key together have to fit into an index
NO_PRINCIPAL = ""  # how the absence of a principal is stored: no principal is an empty text


@dataclass(frozen=True, slots=True)
class Rules:
    """The options of `IdempotencyKeys`, in seconds."""

    keep: float
    wait: float | None
    retry_after: float
    schema: str | None


@dataclass(frozen=True, slots=True)
class Claim:
    """One key that a caller wants to use."""

    name: str
    principal: str
    key: str
    fingerprint: str | None

    def place(self) -> dict[str, object]:
        """The primary key of its row, as values of a statement."""
        return {"name": self.name, "principal": self.principal, "key": self.key}

    def number(self) -> int:
        """64 bits of a strong hash, for an advisory lock; each part is hashed first, so that no two look alike."""
        digest = blake2b(digest_size=8, person=b"leasehold idemp")
        for text in (self.name, self.principal, self.key):
            digest.update(blake2b(text.encode()).digest())
        return int.from_bytes(digest.digest(), "big", signed=True)


@dataclass(frozen=True, slots=True)
class Kept:
    """A key that was completed: its fingerprint, and its result as JSON."""

    fingerprint: str | None
    result: str


@dataclass(frozen=True, slots=True)
class Opened:
    """An attempt that is ours: what its database needs to complete it."""

    token: str  # tells this transaction from a later one on the same connection
    schema: str | None = None
    may_sweep: bool = True


class Dialect(Protocol):
    """A module that keeps keys in one kind of database."""

    def schema(self, schema: str | None) -> str:
        """The statements that make the table."""

    async def begin(self, wire: Wire, claim: Claim, rules: Rules) -> Kept | Opened:
        """Find the key completed, or take it until the end of the transaction."""

    async def complete(self, wire: Wire, claim: Claim, opened: Opened, result: str, rules: Rules) -> None:
        """Write the record into the transaction."""

    async def leave(self, wire: Wire, opened: Opened) -> None:
        """The block has ended without an error."""

    async def sweep(self, wire: Wire, limit: int, schema: str | None) -> int:
        """Remove records that are over, and say how many."""


def make_claim(name: str, principal: str | None, key: str, fingerprint: object) -> Claim:
    """Check all that comes from a request."""
    who = NO_PRINCIPAL if principal is None else check_text(principal, "principal")
    digest = None if fingerprint is None else fingerprint_of(fingerprint)
    return Claim(name, who, check_text(key, "an idempotency key"), digest)


def check_text(value: object, what: str) -> str:
    """A text that every database keeps as it is."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{what} must be text, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} contains a lone surrogate, which UTF-8 cannot store") from None
    if not 1 <= size <= MAX_TEXT or "\0" in value:
        raise ConfigurationError(f"{what} must have 1 to {MAX_TEXT} bytes of UTF-8 and no NUL, not {size}")
    return value


def write_result(result: object, limit: int) -> str:
    """A result as JSON that gives the same value whenever it is read."""
    parts = "complete the attempt with the parts that an answer needs"
    return json_text(result, "result", limit, parts=parts, reference="complete the attempt with its id")


def read_result(text: str) -> Any:
    """What was completed."""
    return json.loads(text)


def replayable(claim: Claim, kept: Kept) -> Kept:
    """The record, unless it belongs to another payload."""
    if claim.fingerprint is None or kept.fingerprint is None or claim.fingerprint == kept.fingerprint:
        return kept
    raise KeyReused(
        f"the idempotency key {claim.key!r} of {claim.name!r} was used before with another payload; nothing was done. "
        "A new request needs a new key",
        name=claim.name,
        key=claim.key,
    )


def require_transaction(wire: Wire) -> Transaction:
    """A record protects what is written in the same transaction, and nothing else."""
    state = wire.transaction()
    if state is Transaction.AUTOCOMMIT:
        raise ConfigurationError(
            "attempt() was called outside a transaction, on a connection that commits every statement by itself: the "
            "work and its record would not be one. Call it inside a transaction block"
        )
    return state


def in_flight(claim: Claim, rules: Rules, who: str) -> InFlight:
    """Another attempt is at it; `who` is what is known of it."""
    return InFlight(
        f"the idempotency key {claim.key!r} of {claim.name!r} cannot be used now: {who}. Roll back, and try again "
        f"after {rules.retry_after:g} s",
        name=claim.name,
        key=claim.key,
        retry_after=rules.retry_after,
    )


def retry(what: str) -> RetryTransaction:
    """The database asks for another try."""
    return RetryTransaction(f"{what}: roll back, and run the whole transaction again, attempt() included")


def ended_inside() -> ConfigurationError:
    """The work and the record would not be in one transaction."""
    return ConfigurationError(
        "the transaction in which this attempt began was committed or rolled back inside the attempt's block, so the "
        "work and its record may not be one: commit after the block, and let an error leave it"
    )


def completed_inside(claim: Claim) -> ConfigurationError:
    """Two attempts of one transaction wanted the same key."""
    return ConfigurationError(
        f"another attempt of this same transaction has completed the idempotency key {claim.key!r} of {claim.name!r}: "
        "one key stands for one piece of work"
    )
