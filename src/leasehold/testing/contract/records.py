"""Small values beside the locks, written under a fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.errors import OutcomeUnknown
from leasehold.testing.contract.expect import raises
from leasehold.testing.contract.registry import store_case
from leasehold.testing.faults import Faults
from leasehold.values import Capability, Reading, Record

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab


def _record(lab: Lab, value: bytes, fence: int, ttl: float = 3600.0) -> Record:
    return Record(lab.claim("record").key, value, fence, ttl)


def _store(lab: Lab) -> Any:
    return lab.backend()


async def _reading(store: Any, lab: Lab, fence: int = 0) -> Reading:
    reading = await store.read(_record(lab, b"", 0).key, fence)
    assert isinstance(reading, Reading), f"expected a reading, got {reading!r}"
    return reading


async def _read(store: Any, lab: Lab) -> Record | None:
    return (await _reading(store, lab)).record


async def _value(store: Any, lab: Lab) -> bytes | None:
    record = await _read(store, lab)
    return None if record is None else record.value


@store_case(Capability.RECORD)
async def a_record_is_read_as_it_was_written(lab: Lab) -> None:
    store = _store(lab)
    assert await _read(store, lab) is None
    value = bytes(range(256)) * 4
    assert await store.write(_record(lab, value, 7)) is True
    kept = await _read(_store(lab), lab)
    assert kept is not None
    assert kept.value == value
    assert kept.fence == 7
    assert 0 < kept.ttl <= 3600


@store_case(Capability.RECORD)
async def a_late_writer_with_an_older_fence_is_refused(lab: Lab) -> None:
    store = _store(lab)
    assert await store.write(_record(lab, b"new", 8)) is True
    assert await store.write(_record(lab, b"late", 7)) is False
    assert await store.write(_record(lab, b"again", 8)) is True
    assert await _value(store, lab) == b"again"


@store_case(Capability.RECORD)
async def a_record_expires(lab: Lab) -> None:
    store = _store(lab)
    await store.write(_record(lab, b"short", 9, ttl=lab.ttl))
    await lab.pass_time(lab.ttl * 2.5)
    assert await _read(store, lab) is None


@store_case(Capability.RECORD)
async def a_record_and_a_lock_of_the_same_key_do_not_meet(lab: Lab) -> None:
    store = _store(lab)
    await store.write(_record(lab, b"value", 1))
    lease = await lab.client().lock("record").acquire(timeout=0)
    assert await _value(store, lab) == b"value"
    await lease.release()
    assert await _value(store, lab) == b"value"


@store_case(Capability.RECORD)
async def reading_under_a_fence_refuses_older_writers_even_where_no_record_is(lab: Lab) -> None:
    store = _store(lab)
    reading = await _reading(store, lab, fence=8)
    assert (reading.record, reading.fence) == (None, 8)
    assert await store.write(_record(lab, b"late", 7)) is False
    assert await _read(store, lab) is None
    assert await store.write(_record(lab, b"ours", 8)) is True
    assert await _value(store, lab) == b"ours"


@store_case(Capability.RECORD)
async def reading_under_a_fence_keeps_the_record_and_refuses_its_late_writer(lab: Lab) -> None:
    store = _store(lab)
    await store.write(_record(lab, b"first", 7))
    reading = await _reading(store, lab, fence=8)
    assert reading.record is not None
    assert (reading.record.value, reading.record.fence, reading.fence) == (b"first", 8, 8)
    assert 0 < reading.record.ttl <= 3600
    assert await store.write(_record(lab, b"late", 7)) is False
    assert await _value(store, lab) == b"first"


@store_case(Capability.RECORD)
async def a_late_reader_learns_that_a_higher_fence_was_seen_and_lowers_nothing(lab: Lab) -> None:
    store = _store(lab)
    await _reading(store, lab, fence=8)
    assert (await _reading(store, lab, fence=7)).fence == 8
    assert (await _reading(store, lab)).fence == 8
    assert await store.write(_record(lab, b"late", 7)) is False


@store_case(Capability.RECORD)
async def a_fence_is_remembered_longer_than_a_short_record(lab: Lab) -> None:
    store, client = _store(lab), lab.client()
    older = await client.lock("record").acquire(timeout=0)
    await older.release()
    newer = await client.lock("record").acquire(timeout=0)
    await newer.release()
    assert await store.write(_record(lab, b"short", newer.fence, ttl=lab.ttl)) is True
    await lab.pass_time(lab.ttl * 2.5)
    assert await _read(store, lab) is None
    assert await store.write(_record(lab, b"late", older.fence)) is False
    assert await store.write(_record(lab, b"again", newer.fence)) is True


@store_case(Capability.RECORD)
async def fences_of_one_record_say_nothing_about_another(lab: Lab) -> None:
    store = _store(lab)
    await _reading(store, lab, fence=8)
    other = Record(lab.claim("another record").key, b"value", 1, 3600.0)
    assert await store.write(other) is True


@store_case(Capability.RECORD)
async def the_store_tells_one_time_that_goes_on(lab: Lab) -> None:
    first = await _reading(_store(lab), lab)
    await lab.pass_time(lab.ttl)
    later = await _reading(_store(lab), lab)
    assert first.time > 1_500_000_000, "the time is in seconds since 1970"
    assert later.time - first.time >= lab.ttl * 0.9


@store_case(Capability.RECORD)
async def a_repeated_write_after_an_unknown_outcome_is_one_write(lab: Lab) -> None:
    faults = Faults()
    store: Any = lab.backend(faults)
    faults.drop_next_reply("write")
    await raises(OutcomeUnknown, store.write(_record(lab, b"value", 7)))
    assert await store.write(_record(lab, b"value", 7)) is True
    assert await _value(store, lab) == b"value"
