"""Known bugs of runs once per slot, hunted by the simulation, whose processes run jobs."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["ONCE_MUTANTS"]

_ONCE = "_patterns/once.py"
_RUN = "_patterns/once_run.py"


def _jobs(name: str, description: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(f"once-{name}", description, file, old, new, program="jobs")


ONCE_MUTANTS: tuple[Mutant, ...] = (
    _jobs(
        "local-clock",
        "the slot is that of the process' own clock",
        _ONCE,
        "        slot = self._slots.at(reading.time)\n",
        "        slot = self._slots.at(opened.runtime.now())\n",
    ),
    _jobs(
        "not-read-again",
        "the record is read before the lock is taken, and not under it",
        _ONCE,
        "            skipped = skipped_by(self._name, reading, slot)\n            repeats",
        "            skipped = None\n            repeats",
    ),
    _jobs(
        "read-without-fence",
        "the record is read again without raising its fence, so that a late run still writes",
        _ONCE,
        "await self._read(opened, lease.fence, opened",
        "await self._read(opened, 0, opened",
    ),
    _jobs(
        "begins-without-lease",
        "a run begins although its lease was lost while the record was read again",
        _ONCE,
        "                if (loss := lease.loss) is not None:  #",
        "                if (loss := None) is not None:  #",
    ),
    _jobs(
        "used-up-grant-is-another",
        "a grant that ran out before it arrived counts as the lock of another, and the slot is skipped",
        _ONCE,
        "                if busy.holder is not None or runtime.now() < trusted:\n",
        "                if trusted:\n",
    ),
    _jobs(
        "recorded-after-release",
        "the run is recorded after its lock was released",
        "_face/hold.py",
        "        found = await before_release()\n",
        "        await _give_back(lease, error)\n        found = await before_release()\n",
    ),
    _jobs(
        "failed-is-done",
        "a run that failed closes its slot",
        _RUN,
        '        closed = not failed or self._job._on_failure == "close"\n',
        "        closed = True\n",
    ),
    _jobs(
        "interrupted-is-done",
        "a run that was cancelled in its work closes its slot",
        _RUN,
        "            if interrupted:\n",
        "            if interrupted and not self._opened:\n",
    ),
    _jobs(
        "refusal-not-told",
        "a run is not told that its record was refused, because another had begun",
        _RUN,
        "        return None if self._recorded else TAKEN\n",
        "        return None\n",
    ),
    _jobs(
        "unknown-is-recorded",
        "listeners are told that a run is recorded although the store did not answer",
        _RUN,
        "            self._recorded = await opened.runtime.shielded(write)\n",
        "            self._recorded = True\n            self._recorded = await opened.runtime.shielded(write)\n",
    ),
    _jobs(
        "record-above-fence",
        "a run is recorded under a fence above its own, and no later one can be",
        _RUN,
        "        record = Record(self._key, facts, self.fence, max(",
        "        record = Record(self._key, facts, self.fence + 1_000_000, max(",
    ),
    _jobs(
        "older-slot-counts",
        "a slot counts as done because of the slot before it",
        "_patterns/job_records.py",
        '    if slot.start is not None and facts["start"] < slot.start:\n',
        '    if slot.start is not None and facts["start"] + slot.keep < slot.start:\n',
    ),
    _jobs(
        "record-fence-ignored",
        "a record is written under a lower fence than another was read under",
        "kit/records.py",
        "        if record.fence < self.fence:\n            return False\n",
        "",
    ),
)
