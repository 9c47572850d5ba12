"""Notifications: a waiter's signal is set when a key is deleted. One stream carries all watches of a client.

A watch begins with etcd's confirmation, and not at a revision of the past: etcd serves watches of the past only ten
times a second. If the store has changed between the waiter's last read and that beginning, the waiter is woken to read
again. When a stream ends, for whatever reason, the watches that are left begin anew on the next one, in the same way.
So no deletion is missed, and no watch needs history that etcd may have compacted.

A watch is over with its first event. etcd learns that later: with the next watch, after two seconds, or when it sends
one more event. At that moment the waiter sends its read, which is not to queue behind a message of no use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold._backends.etcd import rpc
from leasehold._backends.etcd.connection import until
from leasehold._backends.etcd.errors import CallFailed
from leasehold._backends.etcd.rpc import Method
from leasehold.errors import BackendError, ClientClosed

if TYPE_CHECKING:
    from leasehold._backends.etcd.connection import Connection
    from leasehold._backends.etcd.wire import Stream
    from leasehold.spi import Runtime, Signal, Task

__all__ = ["Notifications"]

LINGER = 2.0  # seconds for which a stream without watches is kept
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
CLOSE_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class _Watch:
    number: int
    key: bytes
    end: bytes
    seen: int  # the revision that its waiter has read
    puts: bool
    signal: Signal

    def request(self) -> bytes:
        return rpc.watch_create(self.number, self.key, self.end, puts=self.puts)


class Notifications:
    """The watches of one client, and the worker that reads their stream."""

    def __init__(self, connection: Connection, runtime: Runtime) -> None:
        self._connection = connection
        self._runtime = runtime
        self._guard = runtime.guard()
        self._watches: dict[int, _Watch] = {}
        self._over: list[int] = []  # watches that have had their event, and that etcd does not know to be over
        self._numbers = 0
        self._stream: Stream | None = None
        self._worker: Task | None = None
        self._closed = False
        self._used = False  # since the last check whether the stream is idle
        self._stop = runtime.signal()

    def watch(self, key: bytes, end: bytes, seen: int, signal: Signal, *, puts: bool = False) -> int:
        """Set the signal when the key, or one of the range, was deleted (or written) after the revision `seen`."""
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
            self._end_those_over(stream)
            stream.send(watch.request())
        return watch.number

    def _end_those_over(self, stream: Stream) -> None:
        """An interrupted one is ended by its next event, or with the stream."""
        over, self._over = self._over, []
        for ended in over:
            stream.send(rpc.watch_cancel(ended))

    def is_active(self, number: int) -> bool:
        """Whether its signal is not set yet."""
        return number in self._watches

    def cancel(self, number: int) -> None:
        """End a watch without setting its signal."""
        with self._guard:
            known = self._watches.pop(number, None)
            stream = self._stream
        if known is not None and stream is not None:
            stream.send(rpc.watch_cancel(number))

    async def close(self) -> None:
        """End the stream and the worker that reads it, and wake all waiters."""
        with self._guard:
            self._closed = True
            watches, self._watches = self._watches, {}
            stream, worker = self._stream, self._worker
        self._stop.set()
        for watch in watches.values():
            watch.signal.set()  # its waiter asks again, and gets `ClientClosed`
        if stream is not None:
            stream.close()
        if worker is not None:
            await worker.join(self._runtime.now() + CLOSE_PATIENCE)

    # --- the worker

    async def _work(self, stop: Signal) -> None:
        self._runtime.spawn(self._close_when_idle(stop), "leasehold etcd watches, idle?")
        try:
            with until(math.inf):  # the verb that started the worker has a deadline, the worker has none
                await self._listen_until_idle(stop)
        finally:
            self._end(stop)
            stop.set()

    async def _listen_until_idle(self, stop: Signal) -> None:
        pause = FIRST_PAUSE
        while not self._retire():
            if await self._listen():
                pause = FIRST_PAUSE
            if self._watches and await self._runtime.wait(stop, self._runtime.now() + pause):
                return
            pause = min(pause * 2, LONGEST_PAUSE)

    def _end(self, stop: Signal) -> None:
        with self._guard:
            if self._stop is stop:  # no other worker has been started since
                self._worker = None

    def _retire(self) -> bool:
        with self._guard:
            if self._closed or not self._watches:
                self._worker = None
                return True
            return False

    async def _listen(self) -> bool:
        """Read one stream to its end; whether there was any message."""
        has_message = False
        place = -1
        stream: Stream | None = None
        try:
            place, stream = await self._connection.stream(Method.WATCH)
            self._over = []  # those of an earlier stream
            for watch in self._begin(stream):
                stream.send(watch.request())
            while (message := await stream.receive()) is not None:
                has_message = True
                self._receive(stream, message)
        except (CallFailed, BackendError, ClientClosed, ValueError):
            self._connection.move_on(place)
        finally:
            self._stream = None
            if stream is not None:
                stream.close()
        return has_message

    def _begin(self, stream: Stream) -> list[_Watch]:
        """New watches go to this stream from now on; these were made before."""
        with self._guard:
            self._stream = stream
            return list(self._watches.values())

    def _receive(self, stream: Stream, message: bytes) -> None:
        response = rpc.read_watch(message)
        watch = self._watches.get(response.watch)
        if watch is None:
            if response.changed:
                stream.send(rpc.watch_cancel(response.watch))
        elif response.cancelled:  # refused, as every further one would be: the waiter rechecks without notification
            self._watches.pop(watch.number, None)
        elif response.changed:
            self._watches.pop(watch.number, None)
            watch.signal.set()
            self._over.append(watch.number)
        elif response.created and response.revision > watch.seen:
            watch.signal.set()  # the change may have been to this key; the watch goes on

    async def _close_when_idle(self, stop: Signal) -> None:
        """End a stream that was without watches for a while."""
        while not await self._runtime.wait(stop, self._runtime.now() + LINGER):
            with self._guard:
                idle = not self._watches and not self._used
                self._used = False
                stream = self._stream
            if stream is not None:
                self._end_those_over(stream)
                if idle:
                    stream.close()
                    return
