"""The way between a process and a NATS server: the `Wire` that the shipped documents talk to.

Requests and answers are lost or late, and a request can be applied long after its caller gave up. A restart of the
server ends all that is under way without an answer. A message about a change can be lost, and so can all of them until
the process subscribes again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.errors import BackendUnavailable, ClientClosed, OutcomeUnknown
from verification.simulation.network import Fate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold._backends.nats.wire import Frame, Request
    from verification.simulation.nats.server import SimNats
    from verification.simulation.network import Link
    from verification.simulation.runtime import SimRuntime

__all__ = ["LABEL", "SimNatsWire"]

LABEL = "nats://simulated"
SUBSCRIBE_AGAIN = 0.3  # seconds after a restart


class SimNatsWire:
    """The connection of one process."""

    def __init__(self, link: Link, runtime: SimRuntime, server: SimNats) -> None:
        self.info: dict[str, Any] = {"jetstream": True}
        self._link = link
        self._runtime = runtime
        self._server = server
        self._watched: dict[int, tuple[str, Callable[[], None]]] = {}
        self._life = server.life
        self._closed = False

    async def request(self, requests: Sequence[Request], until: float) -> list[Frame]:
        """See `Wire`."""
        link, server, world = self._link, self._server, self._link.process.world
        if self._closed:
            raise ClientClosed(backend=LABEL)
        deadline = min(self._runtime.now() + link.timeout, until)
        if deadline <= self._runtime.now():
            raise BackendUnavailable("no time is left for a request", backend=LABEL)
        fate = link.fate()
        ambush, link.ambush = link.ambush, None
        if ambush is not None:
            ambush()
        if fate is Fate.REFUSED or server.is_down:
            await self._runtime.sleep(min(link.delay(), deadline - self._runtime.now()))
            raise BackendUnavailable("connection refused", backend=LABEL)
        self._subscribe_again()
        answered = self._runtime.signal()
        frames: list[Frame] = []
        life = server.life

        def arrive() -> None:
            if (link.cut and fate is not Fate.ZOMBIE) or server.life != life or server.is_down:
                return
            if server.stalled_until > world.now:
                world.at(server.stalled_until, arrive)
                return
            before = len(server.writes)
            frames.extend(server.answer(request) for request in requests)
            writes = server.writes[before:]
            if fate is Fate.REPLY_LOST or link.cut:
                return
            late = link.timeout * 2 * world.random.random() if fate is Fate.REPLY_LATE else 0.0
            world.after(link.delay() + late, lambda: come_back(writes))

        def come_back(writes: Any) -> None:
            if not link.cut and server.life == life:
                for write in writes:
                    write.is_acknowledged = True
                answered.set()

        if fate is not Fate.REQUEST_LOST and not link.cut:
            late = link.timeout * (0.5 + 4 * world.random.random()) if fate is Fate.ZOMBIE else 0.0
            world.after(link.delay() + late, arrive)
        if not await self._runtime.wait(answered, deadline):
            link.trouble()
            raise OutcomeUnknown("no answer in time", backend=LABEL)
        if self._closed:
            raise ClientClosed(backend=LABEL)
        return frames

    async def watch(self, subject: str, changed: Callable[[], None]) -> Callable[[], None]:
        """See `Wire`. What is announced is a subject of its own for every document."""
        number = self._link.process.world.next_number()
        self._watched[number] = (_document(subject), changed)
        self._subscribe(number)

        def end() -> None:
            self._watched.pop(number, None)
            self._server.watches.pop(number, None)

        return end

    async def close(self) -> None:
        """See `Wire`."""
        self._closed = True
        for number in self._watched:
            self._server.watches.pop(number, None)
        self._watched.clear()

    def _subscribe(self, number: int) -> None:
        link, world = self._link, self._link.process.world
        subject, changed = self._watched[number]

        def tell() -> None:
            if not link.cut and world.random.random() >= link.weather.reply_loss:
                world.after(link.delay(), changed)

        self._server.watches[number] = (subject, tell)

    def _subscribe_again(self) -> None:
        """After a restart the process finds out with its next request; whatever it missed, it looks again."""
        if self._life == self._server.life:
            return
        self._life = self._server.life
        for number, (_, changed) in list(self._watched.items()):
            self._subscribe(number)
            changed()


def _document(announced: str) -> str:
    """The subject of the document whose changes are announced under this one."""
    _, bucket, token = announced.split(".", 2)
    return f"$KV.{bucket}.{token}"
