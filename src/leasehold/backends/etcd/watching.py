"""Watches: who is to be woken when a key goes. One stream for all waiters of a client, whoever they are.

A watch is told of the first event and is over then. It begins when etcd says so, and not in the past: etcd serves
watches of the past only ten times a second. If anything has changed between the waiter's last look and that beginning,
the waiter is woken to look again. When a stream ends, for whatever reason, the watches that are left begin anew on the
next one, in the same way. So nothing is missed, and nothing needs a past that etcd may have forgotten (compaction).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.backends.etcd import answers, messages
from leasehold.backends.etcd.connection import until
from leasehold.backends.etcd.messages import Method
from leasehold.backends.etcd.trouble import CallFailed
from leasehold.errors import BackendError, ClientClosed

if TYPE_CHECKING:
    from leasehold.backends.etcd.connection import Connection
    from leasehold.backends.etcd.wire import Stream
    from leasehold.spi import Runtime, Signal, Task

__all__ = ["Watches"]

LINGER = 2.0  # how long a stream without watches is kept
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
CLOSE_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class _Watch:
    number: int
    key: bytes
    end: bytes
    seen: int  # the revision at which its waiter looked
    puts: bool
    signal: Signal

    def request(self) -> bytes:
        return messages.watch_create(self.number, self.key, self.end, puts=self.puts)


class Watches:
    """The watches of one client."""

    def __init__(self, connection: Connection, runtime: Runtime) -> None:
        self._connection = connection
        self._runtime = runtime
        self._guard = runtime.guard()
        self._watches: dict[int, _Watch] = {}
        self._numbers = 0
        self._stream: Stream | None = None
        self._worker: Task | None = None
        self._closed = False
        self._used = False  # since the reaper looked last
        self._stop = runtime.signal()

    def watch(self, key: bytes, end: bytes, seen: int, signal: Signal, *, puts: bool = False) -> int:
        """Raise the signal when the key, or one of the range, was deleted (or written) after the revision `seen`."""
        with self._guard:
            self._numbers += 1
            watch = _Watch(self._numbers, key, end, seen, puts, signal)
            self._watches[watch.number] = watch
            self._used = True
            stream = self._stream
            if self._worker is None and not self._closed:
                self._stop = self._runtime.signal()
                self._worker = self._runtime.spawn(self._work(self._stop), "leasehold etcd watches")
        if stream is not None:
            stream.send(watch.request())
        return watch.number

    def is_active(self, number: int) -> bool:
        """Whether the signal is still to come."""
        return number in self._watches

    def cancel(self, number: int) -> None:
        """Do not wake anybody."""
        with self._guard:
            known = self._watches.pop(number, None)
            stream = self._stream
        if known is not None and stream is not None:
            stream.send(messages.watch_cancel(number))

    async def close(self) -> None:
        """End the stream and whoever reads it."""
        with self._guard:
            self._closed = True
            watches, self._watches = self._watches, {}
            stream, worker = self._stream, self._worker
        self._stop.set()
        for watch in watches.values():
            watch.signal.set()  # its waiter asks, and learns that the client is closed
        if stream is not None:
            stream.close()
        if worker is not None:
            await worker.join(self._runtime.now() + CLOSE_PATIENCE)

    # --- the worker

    async def _work(self, stop: Signal) -> None:
        self._runtime.spawn(self._reap(stop), "leasehold etcd watches, idle?")
        try:
            with until(math.inf):  # it was begun by a verb, but is not over with it
                await self._listen_again_and_again(stop)
        finally:
            self._end(stop)
            stop.set()

    async def _listen_again_and_again(self, stop: Signal) -> None:
        pause = FIRST_PAUSE
        while not self._retire():
            if await self._listen():
                pause = FIRST_PAUSE
            if self._watches and await self._runtime.wait(stop, self._runtime.now() + pause):
                return
            pause = min(pause * 2, LONGEST_PAUSE)

    def _end(self, stop: Signal) -> None:
        with self._guard:
            if self._stop is stop:  # not yet succeeded by another worker
                self._worker = None

    def _retire(self) -> bool:
        with self._guard:
            if self._closed or not self._watches:
                self._worker = None
                return True
            return False

    async def _listen(self) -> bool:
        """Read one stream to its end; whether it ever told anything."""
        heard = False
        place = -1
        stream: Stream | None = None
        try:
            place, stream = await self._connection.stream(Method.WATCH)
            for watch in self._begin(stream):
                stream.send(watch.request())
            while (message := await stream.receive()) is not None:
                heard = True
                self._hear(stream, message)
        except (CallFailed, BackendError, ClientClosed, ValueError):
            self._connection.give_up_on(place)
        finally:
            self._stream = None
            if stream is not None:
                stream.close()
        return heard

    def _begin(self, stream: Stream) -> list[_Watch]:
        """From now on new watches are sent by those who make them; these were made before."""
        with self._guard:
            self._stream = stream
            return list(self._watches.values())

    def _hear(self, stream: Stream, message: bytes) -> None:
        answer = answers.read_watch(message)
        watch = self._watches.get(answer.watch)
        if watch is None:
            return
        if answer.cancelled:
            self._watches.pop(
                watch.number, None
            )  # refused, and it would be again: the waiter asks by itself, only later
        elif answer.events:
            self._watches.pop(watch.number, None)
            stream.send(messages.watch_cancel(watch.number))
            watch.signal.set()
        elif answer.created and answer.header.revision > watch.seen:
            watch.signal.set()  # it may have been this key; the watch goes on

    async def _reap(self, stop: Signal) -> None:
        """End a stream that nobody has used for a while."""
        while not await self._runtime.wait(stop, self._runtime.now() + LINGER):
            with self._guard:
                idle = not self._watches and not self._used
                self._used = False
                stream = self._stream
            if idle and stream is not None:
                stream.close()
                return
