"""What is stored with a claim: facts for people, and the few that decide. It knows no key and no request.

The value is JSON, for whoever looks with etcdctl. One that begins with "~" belongs to a lock that was released and is
kept for its `min_hold`; the mark comes first, so that a condition of a transaction can see it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from leasehold.errors import BackendRejected
from leasehold.values import Holder

if TYPE_CHECKING:
    from leasehold.backends.etcd.answers import KeyValue
    from leasehold.values import Claim

__all__ = ["COOLING", "Seat", "encode", "read_seat"]

COOLING = b"~"
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Seat:
    """A claim as it is stored."""

    kept: KeyValue
    owner: str
    holder: Holder
    floor: int
    since: float  # wall clock of its client, for people
    broken: str | None
    cooling: bool
    facts: dict[str, Any]

    @property
    def fence(self) -> int:
        """The fencing token of its grant."""
        return self.floor + self.kept.created

    def with_(self, **changes: Any) -> bytes:
        """The same value with other facts, never cooling."""
        return _dumps({**self.facts, **changes}).encode()


def encode(claim: Claim, floor: int, since: float) -> bytes:
    """The value of a new claim."""
    return b'%s%.3f,"owner":%s}' % (_facts(claim.holder, floor), since, _dumps(claim.owner).encode())


@lru_cache(maxsize=1024)
def _facts(holder: Holder, floor: int) -> bytes:
    """All but the time, which differs from claim to claim."""
    facts: dict[str, Any] = {"host": holder.host, "pid": holder.pid, "floor": floor}
    if holder.label is not None:
        facts["label"] = holder.label
    if holder.reason is not None:
        facts["reason"] = holder.reason
    return _dumps(facts)[:-1].encode() + b',"since":'


def read_seat(kept: KeyValue) -> Seat:
    """Read what is stored, or refuse what is not ours."""
    cooling = kept.value.startswith(COOLING)
    try:
        facts = json.loads(kept.value[1:] if cooling else kept.value)
        holder = Holder(facts["host"], facts["pid"], facts.get("label"), facts.get("reason"))
        return Seat(kept, facts["owner"], holder, facts["floor"], facts["since"], facts.get("broken"), cooling, facts)
    except (ValueError, KeyError, TypeError):
        raise BackendRejected(f"{kept.key!r} has a value that is not ours; somebody else uses these keys") from None
