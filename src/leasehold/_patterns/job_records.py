"""The records of `once` jobs: where they are, what they say, and what operators do with them.

A job with periods or ticks has one record, of its last slot; a job with labels has one for each label. Beside it, one
record more tells of the last run of a job with labels, and of a run that failed and left its slot open: nothing decides
by it, it is for people.

A record is JSON. An operator who makes a job forget a slot rewrites its record rather than deleting it, so that who did
it and why can be seen; for readers of earlier versions its start is at the beginning of time.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from leasehold._core.capabilities import operating, require
from leasehold._core.names import key_for
from leasehold._patterns.retry import retry_until
from leasehold._patterns.slots import check_label
from leasehold.errors import AcquireTimeout, AlreadyRunning, BackendError, Paused
from leasehold.values import Capability, Holder, LastRun, Record, Skipped

if TYPE_CHECKING:
    from leasehold._core.open_client import OpenClient
    from leasehold._face.client import AsyncClient
    from leasehold._patterns.slots import Slot
    from leasehold.spi import Recording
    from leasehold.values import Reading

__all__ = ["LAST_KEPT", "finished_facts", "forget", "last_key", "last_run", "record_key", "skipped_by"]

LAST_KEPT = 30 * 86_400.0


# --- where they are, and what they say


def record_key(namespace: str, name: str, label: str | None) -> str:
    """Where the record is: one for the job, or where slots have no order, one for each label."""
    end = "" if label is None else f":{label}"
    return key_for(namespace, f"once:{len(name)}:{name}{end}")


def last_key(namespace: str, name: str) -> str:
    """Where the last run of a job is kept, if its own record does not have it."""
    return key_for(namespace, f"once-last:{name}")


def finished_facts(
    slot: Slot,
    runner: Holder,
    *,
    began: float,
    finished: float,
    fence: int,
    failed: bool,
    closed: bool,
    again: str | None,
) -> dict[str, Any]:
    """What is written when a run has ended."""
    return {
        "slot": slot.label,
        "start": slot.start,
        "runner": [runner.host, runner.pid, runner.label, runner.reason],
        "began": began,
        "finished": finished,
        "fence": fence,
        "failed": failed,
        "closed": closed,
        "again": again,
    }


def skipped_by(name: str, reading: Reading, slot: Slot) -> Skipped | None:
    """The run that had the slot, or a later one; None if the slot is open."""
    facts = _facts(reading)
    if facts is None or facts.get("forgotten") is not None:
        return None
    if slot.start is not None and facts["start"] < slot.start:
        return None
    return Skipped(name, facts["slot"], Holder(*facts["runner"]), facts["finished"], facts["failed"])


def _facts(reading: Reading) -> dict[str, Any] | None:
    return None if reading.record is None else json.loads(reading.record.value)


def _as_last_run(name: str, facts: dict[str, Any]) -> LastRun:
    return LastRun(
        name,
        facts["slot"],
        Holder(*facts["runner"]),
        facts["finished"],
        facts.get("began"),
        facts.get("fence"),
        facts["failed"],
        facts.get("closed", True),
        facts.get("again"),
        facts.get("forgotten"),
    )


# --- looking


async def last_run(client: AsyncClient, name: str, slot: str | None) -> LastRun | None:
    """The last run of the job that ended, or the last one for this slot."""
    opened, namespace = client._open(), client._namespace
    require(opened.backend, Capability.RECORD)
    keys = [record_key(namespace, name, None), last_key(namespace, name)]
    if slot is not None:
        keys.insert(0, record_key(namespace, name, check_label(slot)))
    found = [facts for key in keys if (facts := _facts(await _read(opened, name, key))) is not None]
    if slot is not None:
        found = [facts for facts in found if facts["slot"] == slot]
    latest = max(found, key=lambda facts: float(facts["finished"]), default=None)
    return None if latest is None else _as_last_run(name, latest)


async def _read(opened: OpenClient, name: str, key: str, fence: int = 0) -> Reading:
    store, until = cast("Recording", opened.backend), opened.runtime.now() + opened.connect_timeout
    return await retry_until(until, opened, name, lambda: store.read(key, fence))


# --- forgetting


async def forget(client: AsyncClient, name: str, slot: str, why: str) -> bool:
    """Drop the record of the slot; False if there is none."""
    order = _Forgetting(client, name, check_label(slot), why)
    keys = [record_key(client._namespace, name, label) for label in (slot, None)]
    keys = [key for key in keys if order.concerns(await order.read(key))]
    if not keys:
        return False
    try:
        lease = await client.lock(name, reason="forgetting a slot").acquire(0)
    except Paused as paused:
        return await order.drop_all(keys, await order.fence_beside_the_pause(paused))
    except AcquireTimeout as busy:
        raise order.is_running(busy.holder) from None
    async with lease:
        return await order.drop_all(keys, lease.fence)


class _Forgetting:
    """One order to drop the record of a slot. Records are rewritten under a fence, as every write of a record is."""

    def __init__(self, client: AsyncClient, name: str, slot: str, why: str) -> None:
        self._client = client
        self._opened = client._open()
        self._name = name
        self._slot = slot
        self._why = why
        require(self._opened.backend, Capability.RECORD)

    async def read(self, key: str, fence: int = 0) -> Reading:
        """The record, and with a fence no lower one writes there any more."""
        return await _read(self._opened, self._name, key, fence)

    def concerns(self, reading: Reading) -> bool:
        """Whether it is the record of this slot, and was not dropped before."""
        facts = _facts(reading)
        return facts is not None and facts["slot"] == self._slot and facts.get("forgotten") is None

    async def drop_all(self, keys: list[str], fence: int) -> bool:
        """Rewrite the records that count, then the one that is for people."""
        dropped = [await self._drop(key, fence) for key in keys]
        if any(dropped):
            with suppress(BackendError):  # the slot is open, whatever becomes of it
                await self._drop(last_key(self._client._namespace, self._name), fence)
        return any(dropped)

    async def _drop(self, key: str, fence: int) -> bool:
        """Rewrite a record; False if it is not of this slot any more, or a run with a higher fence has begun."""
        reading = await self.read(key, fence)
        facts, record = _facts(reading), reading.record
        if facts is None or record is None or not self.concerns(reading):
            return False
        facts |= {"forgotten": self._why, "start": None if facts["start"] is None else 0.0}
        fresh = Record(key, json.dumps(facts).encode(), fence, record.ttl)
        opened, store = self._opened, cast("Recording", self._opened.backend)
        until = opened.runtime.now() + opened.connect_timeout
        return await retry_until(until, opened, self._name, lambda: store.write(fresh))

    async def fence_beside_the_pause(self, paused: Paused) -> int:
        """A fence for an operator while the job is paused and does not run: above all before, and no grant gets it.

        The lock would give one, but it is not granted now; and that is what makes this safe.
        """
        state = await self._client.inspect(self._name)
        if state is None or state.paused is None:
            raise paused  # resumed meanwhile: the order has to be given again
        if state.holdings:
            raise self.is_running(state.holdings[0].holder)
        raise_fence, key = operating(self._opened.backend).raise_fence, key_for(self._client._namespace, self._name)
        while True:
            highest = await raise_fence(key, 1)
            if await raise_fence(key, highest + 1) == highest + 1:
                return highest + 1

    def is_running(self, holder: Holder | None) -> AlreadyRunning:
        """The error for a job that cannot forget now."""
        who = holder or "another holder"
        return AlreadyRunning(
            f"{self._name!r} is being run by {who}; nothing was forgotten, wait until it has ended",
            name=self._name,
            backend=self._opened.backend.label,
            skipped=Skipped(self._name, self._slot, holder),
        )
