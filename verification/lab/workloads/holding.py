"""Taking the lock again and again, and what a holder writes down while it has it."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from verification.lab.adapters import open_adapter
from verification.lab.history import Kind, now

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.lab.adapters import Adapter, Grant
    from verification.lab.workloads import Client

__all__ = ["Watch", "take_turns"]

LOOK = 0.02
LOCK = "lab"
PATIENCE = 2.0  # ttls that a call waits for its turn before it is made anew
REST = (0.005, 0.03)  # after a release, so that on a store without a queue others have a chance
BREATH = 0.05  # after an error, so that a store that is down is not asked in a tight loop


class Watch:
    """Looks at the lease of a holder, from a thread of its own, and writes down its belief and its loss."""

    def __init__(self, client: Client, grant: Grant, call: int) -> None:
        self._client = client
        self._grant = grant
        self._call = call
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._thread.start()

    def _look_on(self) -> None:
        said = 0.0
        while not self._done.wait(LOOK):
            with suppress(Exception):  # a renewal that fails shows in `remaining`
                self._grant.tick()
            before = now()
            left = self._grant.remaining()
            if self._done.is_set():
                return
            if left <= 0:
                self._client.pen.note(Kind.LOST, call=self._call, fence=self._grant.fence)
                return
            if before - said > 2 * LOOK:
                said = self._client.pen.note(Kind.TICK, t=before, call=self._call, until=before + left)

    def end(self) -> None:
        """Before the release."""
        self._done.set()
        self._thread.join()


def take_turns(client: Client, section: Callable[[Grant, int], None]) -> None:
    """Until the client shall stop: acquire, run the section, release."""
    order = client.order
    adapter: Adapter | None = None
    call = 0
    while not client.stop.is_set():
        call += 1
        try:
            if adapter is None:
                adapter = open_adapter(order.library, order.store, order.url, LOCK, order.ttl)
            _one_turn(client, adapter, call, section)
            client.stop.wait(client.random.uniform(*REST))
        except Exception as error:
            client.pen.note(Kind.FAILED, call=call, detail=f"{type(error).__name__}: {error}")
            client.stop.wait(BREATH)
    if adapter is not None:
        with suppress(Exception):
            adapter.close()


def _one_turn(client: Client, adapter: Adapter, call: int, section: Callable[[Grant, int], None]) -> None:
    pen = client.pen
    asked = pen.note(Kind.ACQUIRE, call=call)
    grant = adapter.acquire(PATIENCE * client.order.ttl)
    if grant is None:
        pen.note(Kind.BUSY, call=call)
        return
    before = now()
    left = grant.remaining()
    pen.note(Kind.GRANTED, t=max(before, asked), call=call, fence=grant.fence, until=before + left)
    watch = Watch(client, grant, call)
    try:
        section(grant, call)
    finally:
        watch.end()
        pen.note(Kind.RELEASE, call=call, fence=grant.fence)
        freed = grant.release()
        pen.note(Kind.RELEASED, call=call, fence=grant.fence, detail="yes" if freed else "no")
