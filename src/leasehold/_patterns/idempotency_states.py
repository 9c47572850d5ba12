"""The states of an idempotency key, and what an attempt does next: pure functions over the stored record.

    absent       no record, or one that was dropped: an attempt may run
    in progress  a record without a result: its attempt holds the lock of the key, or has vanished (expired)
    completed    a record with a result: it is replayed until it has been kept long enough

Only the holder of the key's lock can tell an attempt that is in flight from one that has vanished, so an attempt that
finds a record in progress tries to take the lock. The payload of a request is stored as a hash only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from leasehold.errors import ConfigurationError

__all__ = [
    "Begin",
    "Entry",
    "OnExpired",
    "Phase",
    "Step",
    "decode",
    "encode",
    "fingerprint_of",
    "json_text",
    "next_step",
    "retry_after",
]

OnExpired: TypeAlias = Literal["run", "refuse"]

SHORTEST_RETRY = 1.0  # `Retry-After` counts whole seconds


class Phase(StrEnum):
    """What a record says about its key."""

    IN_PROGRESS = "in progress"
    COMPLETED = "completed"
    DROPPED = "dropped"  # an attempt ended without a result: the same as no record


class Step(StrEnum):
    """What an attempt does next."""

    TAKE = "take the lock"
    RUN = "run"
    RUN_AGAIN = "run again"  # an earlier attempt vanished, and its work may be done
    REPLAY = "replay"
    REUSED = "refuse another payload"
    REFUSE = "refuse because an earlier attempt vanished"


class Begin(StrEnum):
    """What became of the record that an attempt begins."""

    SURE = "it is written"
    TAKEN = "a later holder was there"
    IN_DOUBT = "it is written, and a copy of it may still arrive, after the result even"


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of a key, decoded. `since`: when it was written, on the store's clock."""

    phase: Phase
    fingerprint: str | None
    since: float
    result: Any = None
    kept: bool = True  # False: the work is done, but its result could not be stored
    attempt: str | None = None  # of one in progress: which attempt wrote it


def encode(entry: Entry) -> bytes:
    """The stored form."""
    facts = {"phase": entry.phase, "fingerprint": entry.fingerprint, "since": entry.since}
    if entry.phase is Phase.COMPLETED:
        facts |= {"kept": entry.kept, "result": entry.result}
    elif entry.attempt is not None:
        facts |= {"attempt": entry.attempt}
    return json.dumps(facts, separators=(",", ":")).encode()


def decode(value: bytes | None) -> Entry | None:
    """The record that was stored; None where there is none, or a dropped one."""
    if value is None:
        return None
    facts = json.loads(value)
    phase = Phase(facts["phase"])
    if phase is Phase.DROPPED:
        return None
    kept = facts.get("kept", True)
    return Entry(phase, facts["fingerprint"], facts["since"], facts.get("result"), kept, facts.get("attempt"))


def next_step(
    entry: Entry | None, fingerprint: str | None, on_expired: OnExpired, *, held: bool, attempt: str | None = None
) -> Step:
    """What an attempt does that found this entry; `held`: it read the entry under the lock of the key.

    What it finds in progress may be its own: it begins once more when it is not sure how its begin was stored.
    """
    if entry is None:
        return Step.RUN if held else Step.TAKE
    if None not in (fingerprint, entry.fingerprint) and fingerprint != entry.fingerprint:
        return Step.REUSED
    if entry.phase is Phase.COMPLETED:
        return Step.REPLAY
    if not held:
        return Step.TAKE
    if attempt is not None and entry.attempt == attempt:
        return Step.RUN
    return Step.RUN_AGAIN if on_expired == "run" else Step.REFUSE


def retry_after(entry: Entry | None, now: float, ttl: float) -> float:
    """When to ask again for a key in flight: after as long again as it has taken so far.

    At least a second, and at most the ttl, after which the key of an attempt that vanished is free.
    """
    elapsed = 0.0 if entry is None else now - entry.since
    return max(SHORTEST_RETRY, min(elapsed, ttl))


def fingerprint_of(key: str, payload: object) -> str | None:
    """A hash of a request's payload: bytes and text as they are, any other value as canonical JSON.

    The key goes into the hash, so that equal payloads of two keys cannot be seen to be equal in the store.
    """
    if payload is None:
        return None
    if isinstance(payload, str | bytes | bytearray | memoryview):
        kind, content = b"bytes", payload.encode(errors="surrogatepass") if isinstance(payload, str) else bytes(payload)
    else:
        kind, content = b"json", _canonical(payload)
    digest = hashlib.sha256(kind)
    for part in (key.encode(), content):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def json_text(value: object, what: str) -> str:
    """A value as JSON, or a `ConfigurationError` that says why it has no such form."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{what} must be a JSON value ({error}); convert it first") from None


def _canonical(payload: object) -> bytes:
    try:
        return json.dumps(payload, allow_nan=False, separators=(",", ":"), sort_keys=True).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"a fingerprint is made of bytes, text or a JSON value, not of {type(payload).__name__} ({error})"
        ) from None
