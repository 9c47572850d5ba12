"""Small values beside the locks, written under a fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.testing.contract.registry import case
from leasehold.values import Capability, Record

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab


def _record(lab: Lab, value: bytes, fence: int, ttl: float = 3600.0) -> Record:
    return Record(lab.claim("record").key, value, fence, ttl)


def _store(lab: Lab) -> Any:
    return lab.backend()


@case(Capability.RECORD)
async def a_record_is_read_as_it_was_written(lab: Lab) -> None:
    store = _store(lab)
    assert await store.read(_record(lab, b"", 0).key) is None
    value = bytes(range(256)) * 4
    assert await store.write(_record(lab, value, 7)) is True
    kept = await _store(lab).read(_record(lab, b"", 0).key)
    assert kept.value == value
    assert kept.fence == 7
    assert 0 < kept.ttl <= 3600


@case(Capability.RECORD)
async def a_late_writer_with_an_older_fence_is_refused(lab: Lab) -> None:
    store = _store(lab)
    assert await store.write(_record(lab, b"new", 8)) is True
    assert await store.write(_record(lab, b"late", 7)) is False
    assert await store.write(_record(lab, b"again", 8)) is True
    assert (await store.read(_record(lab, b"", 0).key)).value == b"again"


@case(Capability.RECORD)
async def a_record_expires(lab: Lab) -> None:
    store = _store(lab)
    await store.write(_record(lab, b"short", 9, ttl=lab.ttl))
    await lab.pass_time(lab.ttl * 2.5)
    assert await store.read(_record(lab, b"", 0).key) is None


@case(Capability.RECORD)
async def a_record_and_a_lock_of_the_same_key_do_not_meet(lab: Lab) -> None:
    store = _store(lab)
    await store.write(_record(lab, b"value", 1))
    lease = await lab.client().lock("record").acquire(timeout=0)
    assert (await store.read(_record(lab, b"", 0).key)).value == b"value"
    await lease.release()
    assert (await store.read(_record(lab, b"", 0).key)).value == b"value"
