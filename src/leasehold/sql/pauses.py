"""How long an attempt still waits for another one. It sleeps in the server, so threads and asyncio do the same."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.sql.wires import Wire

__all__ = ["Pauses"]

_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2)


class Pauses:
    """Pauses until a deadline; `sleep` is the statement for one, of `%(pause)s` seconds."""

    def __init__(self, wire: Wire, wait: float | None, sleep: str) -> None:
        self._wire = wire
        self._sleep = sleep
        self._end = time.monotonic() + (wait or 0.0)
        self._pauses = itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1]))
        self.used: bool = False

    async def pause(self) -> bool:
        """False if there is no time left."""
        left = self._end - time.monotonic()
        if left <= 0:
            return False
        self.used = True
        await self._wire.query(self._sleep, {"pause": min(next(self._pauses), left)})
        return True
