"""A value of a cache as it is stored, and the decisions about it: fresh, due, stale or gone. No I/O, no clock.

A record holds a line of JSON and the encoded value behind it. The line has when the value expires (on the store's wall
clock, the one that all readers share), how long its build took, and the fence that it was written under.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.values import Record

__all__ = ["FORGOTTEN", "Entry", "Freshness", "Policy", "freshness", "is_due", "lifetime", "pack", "readable"]

FORM = 1
FORGOTTEN = b'{"form":1,"forgotten":true}\n'


class Freshness(Enum):
    """What a reader may do with a value."""

    FRESH = auto()  # give it out
    DUE = auto()  # give it out, and build it again if no other does
    GONE = auto()  # wait for a new one


@dataclass(frozen=True, slots=True)
class Policy:
    """The options of a cache, checked; durations in seconds."""

    ttl: float
    stale: float
    stale_if_error: float
    beta: float
    jitter: float
    max_size: int
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    @property
    def longest_stale(self) -> float:
        """How long a value is kept after it has expired."""
        return max(self.stale, self.stale_if_error)


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored value."""

    payload: bytes
    value: Any  # the payload, decoded for this reader alone
    expires: float  # on the store's wall clock
    took: float  # seconds that its build took


def pack(payload: bytes, *, expires: float, took: float, fence: int) -> bytes:
    """The stored form. The fence makes two builds of the same value differ."""
    head = {"form": FORM, "expires": expires, "took": took, "fence": fence}
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + payload


def readable(record: Record | None, policy: Policy) -> Entry | None:
    """The value in a record; None if there is none, or none that this program can read: then it is built again."""
    if record is None:
        return None
    head, _, payload = record.value.partition(b"\n")
    try:
        facts = json.loads(head)
        if facts["form"] != FORM or "forgotten" in facts:
            return None
        return Entry(payload, policy.decode(payload), float(facts["expires"]), float(facts["took"]))
    except Exception:  # noqa: BLE001 - a decoder of the user's own may raise anything at what another version wrote
        return None


def is_due(now: float, expires: float, took: float, beta: float, draw: float) -> bool:
    """Whether this reader should build again, although others may not: early, by a time that is drawn by lot.

    `draw` is from (0, 1]. The nearer the expiry and the longer the build, the likelier it is; so of many readers one
    begins about as early as a build takes, and not all of them when the value expires.
    """
    return now - took * beta * math.log(draw) >= expires


def freshness(entry: Entry | None, now: float, policy: Policy, draw: float) -> Freshness:
    """What a reader may do with what it found."""
    if entry is None or now >= entry.expires + policy.stale:
        return Freshness.GONE
    # Never in the first half of its life: else a source that gets slower would be asked more and more often.
    is_young = now < entry.expires - policy.ttl / 2
    is_built_again = not is_young and is_due(now, entry.expires, entry.took, policy.beta, draw)
    return Freshness.DUE if is_built_again else Freshness.FRESH


def lifetime(policy: Policy, draw: float) -> float:
    """For how long a value is fresh: up to `jitter` of the ttl less, so that values made together do not end so."""
    return policy.ttl * (1.0 - policy.jitter * draw)
