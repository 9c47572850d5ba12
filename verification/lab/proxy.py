"""A TCP proxy that misbehaves on command. It runs on a thread of its own and knows no store.

A client is pointed at `port`; what it sends reaches the real server and back, until a fault is ordered.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from verification.lab.process import free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["FaultProxy"]

T = TypeVar("T")
CUT, SILENCE = "cut", "silence"


@dataclass(eq=False)
class _Link:
    """One connection of a client, and ours to the server for it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    passes_requests: bool = True  # what the client sends is passed on
    passes_answers: bool = True  # what the server sends is passed on
    swallowing: bool = False  # the next answer is dropped
    kept_back: bytes = b""  # a request that waits for `deliver`
    pumps: list[asyncio.Task[None]] = field(default_factory=list)

    def cut(self, *, abruptly: bool = True) -> None:
        """Close both sides."""
        for side in (self.client, self.server):
            if abruptly:
                side.transport.abort()
            else:
                side.close()


@dataclass
class _Order:
    """A fault for the next requests that contain `word`."""

    kind: str
    word: bytes
    left: int
    then: str
    skip: int = 0


class FaultProxy:
    """Between clients and one server; use it as a context manager. `heal` ends every fault but `cut`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self.port = free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)
        self._listener: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}  # by who serves them, from the first moment
        self._links: set[_Link] = set()
        self._orders: list[_Order] = []
        self._delays = (0.0, 0.0)
        self._is_hole = False
        self._refuses = False
        self.done = 0  # how many ordered faults have happened
        self.accepted = 0  # how many connections were made through it

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect to."""
        return ("127.0.0.1", self.port)

    @property
    def links(self) -> int:
        """How many connections there are now."""
        return len(self._links)

    # --- faults

    def delay(self, to_server: float = 0.0, to_client: float = 0.0) -> None:
        """Let everything take longer, each way; in seconds."""
        self._delays = (to_server, to_client)

    def cut(self) -> None:
        """Close every connection, as a crash of the server would; new ones work."""
        self._run(self._cut())

    def aim(self, target: tuple[str, int]) -> None:
        """Lead to another server from now on, as an address does that moves: connections to the old one are closed."""
        self._target = target
        self.cut()

    def refuse(self) -> None:
        """Close every connection, and refuse new ones."""
        self._run(self._refuse())

    def accept(self) -> None:
        """Take new connections again."""
        self._run(self._listen())

    def black_hole(self) -> None:
        """Drop everything silently, on connections that exist and on new ones."""
        self._run(self._black_hole())

    def half_open(self) -> None:
        """Close the server's side of every connection while the client's stays open; new connections work."""
        self._run(self._half_open())

    def swallow(self, word: bytes = b"", *, count: int = 1, skip: int = 0, then: str = CUT) -> None:
        """Pass on the next `count` requests that contain `word`, but not their answers: they were applied.

        `skip`: leave so many alone first. `then`: "cut" the connection after it, or keep it open in "silence".
        """
        self._order(_Order("swallow", word, count, then, skip))

    def lose(self, word: bytes = b"", *, count: int = 1, skip: int = 0, then: str = CUT) -> None:
        """Do not pass on the next `count` requests that contain `word`: they are not applied."""
        self._order(_Order("lose", word, count, then, skip))

    def keep_back(self, word: bytes = b"", *, skip: int = 0, then: str = CUT) -> None:
        """Keep the next request that contains `word` until `deliver`; the client's side is cut or silent meanwhile."""
        self._order(_Order("keep", word, 1, then, skip))

    def deliver(self) -> None:
        """Send what was kept back, as a slow network would."""
        self._run(self._deliver())

    def heal(self) -> None:
        """No more faults: what was silenced stays silent, because its connection has lost bytes; new ones work."""
        self._delays = (0.0, 0.0)
        self._run(self._heal())

    def wait_done(self, count: int = 1, limit: float = 60.0) -> None:
        """Wait until so many ordered faults have happened since the start."""
        wait_until(lambda: self.done >= count, f"{count} faults did not happen", limit)

    # --- life

    def start(self) -> None:
        """Start the thread and listen."""
        self._thread.start()
        self._run(self._listen())

    def stop(self) -> None:
        """Close everything and end the thread."""
        self._run(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> FaultProxy:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- on the thread

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def _order(self, order: _Order) -> None:
        self._loop.call_soon_threadsafe(self._orders.append, order)

    async def _listen(self) -> None:
        self._refuses = False
        if self._listener is None:
            self._listener = await asyncio.start_server(self._accept, *self.address)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:  # it was in the listener's hands already
            writer.transport.abort()
            return
        self.accepted += 1
        task = asyncio.create_task(self._serve(reader, writer))
        self._clients[task] = writer
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        """Leave no connection of a client behind, however its service ended, or if it never began."""
        self._clients.pop(task).transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(*self._target)
        except OSError:
            return
        if writer.transport.is_closing():  # cut meanwhile
            to_server.transport.abort()
            return
        link = _Link(writer, to_server)
        link.passes_requests = link.passes_answers = not self._is_hole
        self._links.add(link)
        link.pumps = [
            asyncio.create_task(self._pump(link, reader, self._on_request, to_server)),
            asyncio.create_task(self._pump(link, from_server, self._on_answer, writer)),
        ]
        try:
            await asyncio.wait(link.pumps)
        finally:
            self._links.discard(link)
            link.cut()  # both sides have ended: nothing that was kept back can be delivered any more

    async def _pump(
        self,
        link: _Link,
        reader: asyncio.StreamReader,
        passes: Callable[[_Link, bytes], bool],
        writer: asyncio.StreamWriter,
    ) -> None:
        delay = 0 if passes == self._on_request else 1
        with suppress(OSError):
            while chunk := await reader.read(65536):
                if passes(link, chunk):
                    self._loop.call_later(self._delays[delay], _write, writer, chunk)
        passing = link.passes_answers if delay else link.passes_requests
        if passing:
            self._loop.call_later(self._delays[delay], writer.close)

    def _on_request(self, link: _Link, chunk: bytes) -> bool:
        """Whether the server shall see what a client sent."""
        if not link.passes_requests:
            return False
        order = next((order for order in self._orders if order.word in chunk), None)
        if order is None:
            return True
        if order.skip:
            order.skip -= 1
            return True
        order.left -= 1
        if not order.left:
            self._orders.remove(order)
        if order.kind == "swallow":
            link.swallowing, link.passes_requests = True, order.then != SILENCE
            link.passes_answers = order.then != SILENCE
            if order.then == SILENCE:
                self.done += 1
            return True
        self.done += 1
        if order.kind == "keep":
            link.kept_back = chunk
        link.passes_requests = link.passes_answers = False
        if order.then == CUT:
            link.client.transport.abort()
            if order.kind != "keep":
                link.server.transport.abort()
        return False

    def _on_answer(self, link: _Link, _: bytes) -> bool:
        """Whether the client shall see what the server sent."""
        if link.passes_answers and link.swallowing:
            self.done += 1
            link.passes_answers = link.passes_requests = False
            link.cut()
        return link.passes_answers

    async def _cut(self) -> None:
        for link in list(self._links):
            link.cut()
        for writer in self._clients.values():  # those whose way to the server is not made yet, too
            writer.transport.abort()

    async def _refuse(self) -> None:
        self._refuses = True
        if self._listener is not None:
            listener, self._listener = self._listener, None
            for socket in listener.sockets:
                self._loop.remove_reader(socket.fileno())
            await asyncio.sleep(0)  # who was accepted gets a transport: a server that is closed forgets the socket
            listener.close()
        await self._cut()

    async def _black_hole(self) -> None:
        self._is_hole = True
        for link in self._links:
            link.passes_requests = link.passes_answers = False

    async def _half_open(self) -> None:
        for link in list(self._links):
            link.passes_requests = link.passes_answers = False
            link.server.transport.abort()

    async def _deliver(self) -> None:
        for link in list(self._links):
            if link.kept_back:
                chunk, link.kept_back = link.kept_back, b""
                link.server.write(chunk)
                await link.server.drain()

    async def _heal(self) -> None:
        self._is_hole = False
        self._orders.clear()
        await self._listen()

    async def _shut_down(self) -> None:
        await self._refuse()
        mine = [*self._clients, *(pump for link in self._links for pump in link.pumps)]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)
        while others := asyncio.all_tasks() - {
            asyncio.current_task()
        }:  # asyncio's own, for a client that was just accepted
            await asyncio.wait(others)


def _write(writer: asyncio.StreamWriter, chunk: bytes) -> None:
    if not writer.transport.is_closing():
        writer.write(chunk)
