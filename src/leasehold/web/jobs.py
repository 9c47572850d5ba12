"""The `once` jobs that are known, and their last runs. A store has no list of jobs, and no mark on the lock of one.

A job is a name that was declared, or one that was seen and has a record of a run. Each look asks for a few names, those
first that have waited longest, so that the store is asked in bounded steps.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leasehold.values import LastRun
    from leasehold.web.source import Source

__all__ = ["JobBook"]

STEP = 25  # names for each look
REMEMBERED = 5_000
NOT_A_JOB = 60.0  # seconds after which a name without a record is asked for again


class JobBook:
    """Remembers which names are jobs, and what was last read about each."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._asked: OrderedDict[str, tuple[float, LastRun | None]] = OrderedDict()  # longest ago first

    async def look(self, declared: Iterable[str], seen: Iterable[str]) -> dict[str, LastRun | None]:
        """The jobs, after another step: every declared name, and each name seen that has a record."""
        declared = tuple(declared)
        if not self._source.has(Capability.RECORD):
            return dict.fromkeys(declared)
        batch = self._due({*declared, *seen}, set(declared))
        if batch:
            last_run = self._source.client.last_run
            runs = await self._source.shared(("runs", batch), lambda: {name: last_run(name) for name in batch})
            self._note(runs)
        return {name: last for name, (_, last) in sorted(self._asked.items()) if last is not None or name in declared}

    def _due(self, names: set[str], declared: set[str]) -> tuple[str, ...]:
        now = time.monotonic()

        def waited(name: str) -> float:
            asked, last = self._asked.get(name, (0.0, None))
            is_job = last is not None or name in declared
            return now - asked if asked == 0.0 or is_job or now - asked > NOT_A_JOB else 0.0

        candidates = names | {name for name, (_, last) in self._asked.items() if last is not None}
        longest = sorted(((waited(name), name) for name in candidates), reverse=True)
        return tuple(name for wait, name in longest[:STEP] if wait > 1.0)

    def _note(self, runs: Mapping[str, LastRun | None]) -> None:
        for name, last in runs.items():
            self._asked[name] = (time.monotonic(), last)
            self._asked.move_to_end(name)
        while len(self._asked) > REMEMBERED:
            self._asked.popitem(last=False)
