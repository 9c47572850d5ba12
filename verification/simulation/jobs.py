"""The account of jobs that run once per slot, which says whether `once` kept its promise.

The promise: a slot whose run was recorded is not run again, and is refused only because of its record, or because
somebody has the job's lock. It is not that the work happens once: a run that ended well and was not recorded leaves its
slot open, and `repeated runs` counts how often its work was done again.

What a record says is looked up in the store itself after every step, and compared with what is known of the run that
wrote it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from leasehold._core.events import Released
from leasehold._core.names import key_for
from leasehold._patterns.pattern_events import RunEnded

if TYPE_CHECKING:
    from leasehold._core.events import Event
    from leasehold._patterns.once import AsyncAttempt, AsyncRun
    from leasehold.values import Skipped
    from verification.simulation.history import History
    from verification.simulation.stage import Stage
    from verification.simulation.world import World

__all__ = ["Asked", "End", "Jobs"]

NAMESPACE = "leasehold"
LONGEST_PERIOD = 3.0  # ttls
SHORTEST_PERIOD = 1.0  # seconds: the shortest that `once` takes
HALF_A_MICROSECOND = 5e-7  # labels of slots are whole microseconds


class End(StrEnum):
    """How the block of a run ended."""

    RUNS = "runs"
    WELL = "well"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(slots=True)
class Asked:
    """One attempt, from its beginning to its answer."""

    key: str  # of the record
    name: str
    is_ordered: bool  # by an operator, to run the slot again
    closes: bool  # the slot, also when its run fails
    time: float  # of the store, when it began
    in_use: bool = False  # whether somebody has had the lock, or stood in its queue


@dataclass(slots=True)
class _Run:
    """One run, by the fence of its lease."""

    asked: Asked
    fence: int
    slot: str
    start: float | None
    end: End = End.RUNS
    is_confirmed: bool = False
    is_released_early: bool = False  # its lock was given back, and no record was there

    @property
    def may_close(self) -> bool:
        """Whether its slot may be recorded as done."""
        return self.end is End.WELL or (self.end is End.FAILED and self.asked.closes)


@dataclass(slots=True)
class _Kept:
    """What is known of one record."""

    value: bytes = b""
    facts: dict[str, Any] | None = None
    past: dict[bytes, dict[str, Any]] = field(default_factory=dict)  # all that was ever read there
    runs: dict[int, _Run] = field(default_factory=dict)  # by fence
    begun: int = 0  # the highest fence of a run that has begun
    confirmed: int = 0  # the highest fence of a run that was told that it is recorded


class Jobs:
    """Watches all jobs of a run. Where the store forgets, only the lock and the register are left to be watched."""

    def __init__(self, world: World, history: History, stage: Stage, ttl: float) -> None:
        assert stage.records is not None
        self.records = stage.records
        self._world = world
        self._history = history
        self._model = stage.model
        self._forgets = stage.forgets
        self._longest = LONGEST_PERIOD * ttl
        self._periods: dict[str, float] = {}
        self._kept: dict[str, _Kept] = {}
        self._open: list[Asked] = []

    # --- slots

    def period(self, name: str) -> float:
        """How long a slot of this job is."""
        if name not in self._periods:
            self._periods[name] = max(SHORTEST_PERIOD, self._longest * (0.4 + 0.6 * self._world.random.random()))
        return self._periods[name]

    def next_start(self, name: str) -> float:
        """When the store's clock reaches the next slot."""
        return self._start(name, self.records.time()) + self.period(name)

    def _start(self, name: str, time: float) -> float:
        period = self.period(name)
        return math.floor(time / period) * period

    # --- what attempts report

    def ask(self, attempt: AsyncAttempt, *, closes: bool) -> Asked:
        """An attempt begins."""
        asked = Asked(attempt._key(), attempt._name, attempt._order is not None, closes, self.records.time())
        self._kept.setdefault(asked.key, _Kept())
        self._open.append(asked)
        return asked

    def answered(self, asked: Asked) -> None:
        """An attempt has its answer, or failed."""
        self._open.remove(asked)

    def begun(self, asked: Asked, run: AsyncRun) -> None:
        """The slot is ours, and the block begins."""
        kept = self._look_at(asked.key)
        slot, fence = run._slot, run.fence
        known = kept.runs[fence] = _Run(asked, fence, slot.label, slot.start)
        self._history.counts["runs"] += 1
        self._history.counts["repeated runs"] += any(
            each.end is End.WELL and each.slot == slot.label for each in kept.runs.values()
        )
        if slot.start is not None:
            self._check_clock(asked, slot.start)
        is_done = kept.facts is not None and kept.facts["fence"] < fence and not _is_open(kept.facts, known)
        if is_done and not asked.is_ordered:
            self._violate("a recorded slot ran again", f"{asked.name} slot {slot.label} fence {fence}")
        kept.begun = max(kept.begun, fence)

    def over(self, run: AsyncRun, key: str, end: End) -> None:
        """The block has ended, and the run is about to be recorded."""
        self._kept[key].runs[run.fence].end = end

    def left(self, run: AsyncRun, key: str) -> None:
        """The block was left without an error: what it was told is final."""
        kept = self._look_at(key)
        known = kept.runs[run.fence]
        if not known.may_close:
            return
        if known.is_released_early:
            self._violate("released before it was recorded", f"{run.name} slot {run.slot} fence {run.fence}")
        known.is_confirmed = True
        kept.confirmed = max(kept.confirmed, run.fence)
        self._history.counts["recorded runs"] += 1
        others = [each for each in kept.runs.values() if each.is_confirmed and each.slot == known.slot]
        if sum(not each.asked.is_ordered for each in others) > 1:
            self._violate("a slot was recorded twice", f"{run.name} slot {run.slot} {[each.fence for each in others]}")
        self._check_confirmed(key, kept)

    def skipped(self, asked: Asked, skipped: Skipped) -> None:
        """The slot is another's."""
        self._history.counts["skips"] += 1
        kept = self._look_at(asked.key)
        if skipped.finished is None:
            if not asked.in_use and not self._model.is_in_use(key_for(NAMESPACE, asked.name)):
                self._violate("skipped although nobody had the lock", str(skipped))
            return
        said = (skipped.slot, skipped.finished)
        facts = next((each for each in kept.past.values() if (each["slot"], each["finished"]) == said), None)
        if facts is None:
            self._violate("skipped because of a record that is not there", str(skipped))
        elif facts["start"] is not None and facts["start"] < self._earliest(asked) - HALF_A_MICROSECOND:
            self._violate("skipped although its slot was open", str(skipped))

    def heard(self, event: Event) -> None:
        """What a client tells its listeners: that a lock was given back, and how a run ended."""
        if not isinstance(event, Released | RunEnded):
            return
        for key, kept in self._kept.items():
            run = kept.runs.get(event.fence)
            if run is None or run.asked.name != event.name or not run.may_close:
                continue
            self._look_at(key)
            if isinstance(event, Released):
                run.is_released_early = kept.facts is None or kept.facts["fence"] < run.fence
            elif event.recorded:
                kept.confirmed = max(kept.confirmed, run.fence)
                self._check_confirmed(key, kept)

    def close(self) -> None:
        """From now on records may run out."""
        self._kept.clear()

    # --- what the store has

    def look(self) -> None:
        """Look at every record, and at the locks of those that wait for an answer."""
        for asked in self._open:
            asked.in_use = asked.in_use or self._model.is_in_use(key_for(NAMESPACE, asked.name))
        for key in self._kept:
            self._look_at(key)

    def _look_at(self, key: str) -> _Kept:
        kept = self._kept[key]
        value = self.records.value(key)
        if value != kept.value:
            self._changed(key, kept, value)
        return kept

    def _changed(self, key: str, kept: _Kept, value: bytes) -> None:
        before, facts = kept.facts, json.loads(value) if value else None
        is_new = bool(value) and value not in kept.past
        kept.value, kept.facts = value, facts
        if facts is not None:
            kept.past[value] = facts
            self._world.note("record", facts["slot"], facts["fence"], "failed" if facts["failed"] else "")
            if is_new:
                self._check_writer(kept, facts)
                self._check_order(kept, before, facts)
        self._check_confirmed(key, kept)

    def _check_writer(self, kept: _Kept, facts: dict[str, Any]) -> None:
        """It was written for a run that has ended, and says what became of it."""
        run, what = kept.runs.get(facts["fence"]), f"slot {facts['slot']} fence {facts['fence']}"
        if run is None:
            self._violate("a record of no run", what)
        elif not run.may_close:
            self._violate("an open slot was recorded as done", f"{what}: its run {run.end}")
        elif (facts["slot"], facts["start"], facts["failed"]) != (run.slot, run.start, run.end is End.FAILED):
            self._violate("a record says what is not so", f"{what}: {run.slot} {run.end}")

    def _check_order(self, kept: _Kept, before: dict[str, Any] | None, facts: dict[str, Any]) -> None:
        """From the moment at which a run begins, no earlier one writes."""
        if facts["fence"] < kept.begun:
            self._violate("recorded after a later run had begun", f"fence {facts['fence']} after {kept.begun}")
        if before is not None and facts["start"] is not None and facts["start"] < before["start"]:
            self._violate("a record went back", f"{facts['slot']} after {before['slot']}")

    def _check_confirmed(self, key: str, kept: _Kept) -> None:
        """What a run was told to be recorded is there, or what a later run wrote."""
        if kept.confirmed > (0 if kept.facts is None else kept.facts["fence"]):
            self._violate("a confirmed record is not in the store", f"{key} fence {kept.confirmed}")

    def _check_clock(self, asked: Asked, start: float) -> None:
        """The slot is one that the store's clock was in while the attempt was made."""
        latest = self._start(asked.name, self.records.time() + self.records.error)
        if not self._earliest(asked) - HALF_A_MICROSECOND <= start <= latest + HALF_A_MICROSECOND:
            self._violate("a slot that the store's clock was not in", f"{asked.name}: begins at {start}, now {latest}")

    def _earliest(self, asked: Asked) -> float:
        return self._start(asked.name, asked.time - self.records.error)

    def _violate(self, check: str, detail: str) -> None:
        if not self._forgets:
            self._history.violate(check, detail)


def _is_open(facts: dict[str, Any], run: _Run) -> bool:
    """Whether the record leaves the slot of this run open; that of a label is always of this label."""
    return run.start is not None and facts["start"] < run.start
