"""A memory store that several processes of one test share, through a Unix socket.

The process that owns the store calls `serve`; the others connect to `memory+unix:///path/to/socket`. It exists so that
tests can pause and kill real processes without any server. Values travel pickled: use it in a private directory only.
"""

from __future__ import annotations

import math
import threading
from contextlib import contextmanager
from multiprocessing.connection import Client as dial  # noqa: N813 - it is a function
from multiprocessing.connection import Connection, Listener
from typing import TYPE_CHECKING, Any

from leasehold._backends.memory import MemoryBackend
from leasehold._runtimes.threads import ThreadRuntime
from leasehold.errors import BackendUnavailable, ConfigurationError, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leasehold._backends.memory import MemoryStore
    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL
    from leasehold.values import Claim, Grant, Holder, LockState, Loss, Reading, Record, Refusal

__all__ = ["SharedMemory", "open_url", "serve"]

RECHECK = 0.02  # there is no notification through the socket, so waiters poll often


@contextmanager
def serve(store: MemoryStore, path: str) -> Iterator[str]:
    """Let other processes use this store while the block runs; gives the URL for them."""
    listener = Listener(path, "AF_UNIX", backlog=64)
    over = threading.Event()
    thread = threading.Thread(target=_accept, args=(listener, store, over), name="shared memory store", daemon=True)
    thread.start()
    try:
        yield f"memory+unix://{path}"
    finally:
        over.set()
        dial(path, "AF_UNIX").close()  # wakes the thread that accepts
        thread.join()
        listener.close()


def _accept(listener: Listener, store: MemoryStore, over: threading.Event) -> None:
    while True:
        connection = listener.accept()
        if over.is_set():
            connection.close()
            return
        threading.Thread(target=_answer, args=(connection, store), daemon=True).start()


def _answer(connection: Connection[Any, Any], store: MemoryStore) -> None:
    signal = ThreadRuntime().signal()  # never waited for: the waiter is in another process
    with connection:
        while True:
            try:
                verb, arguments, options = connection.recv()
            except (EOFError, OSError):
                return
            connection.send(_perform(store, verb, arguments, options, signal))


def _perform(store: MemoryStore, verb: str, arguments: Any, options: Any, signal: Any) -> Any:
    if verb == "join":
        arguments = (*arguments, signal)
    if verb == "turn":
        arguments = (Place(arguments[0], signal, 0.0, 0),)
    try:
        answer = getattr(store, verb)(*arguments, **options)
    except Exception as error:
        return error
    if isinstance(answer, Place):
        return (answer.ahead, answer.holder, answer.retry_after, answer.paused)
    return answer


class SharedMemory:
    """The store as seen from another process."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open_backend(self, runtime: Runtime) -> Backend:
        """Connect with the first call."""
        if not isinstance(runtime, ThreadRuntime):
            raise ConfigurationError("memory+unix: is for blocking clients; in the owning process use the store itself")
        return _SharedBackend(self._path, runtime)


class _SharedBackend:
    capabilities = MemoryBackend.capabilities - {Capability.PUSH}

    def __init__(self, path: str, runtime: ThreadRuntime) -> None:
        self._path = path
        self._runtime = runtime
        self._lock = threading.Lock()
        self._connection: Connection[Any, Any] | None = None
        self.label = f"memory+unix://{path}"

    async def try_acquire(self, claim: Claim, _until: float = math.inf, /) -> Grant | Refusal:
        return self._ask("try_acquire", claim)

    async def renew(self, grants: Sequence[Grant], _until: float = math.inf, /) -> Sequence[Grant | Loss]:
        return self._ask("renew", list(grants))

    async def release(self, grant: Grant, _until: float = math.inf, /) -> bool | Loss:
        return self._ask("release", grant)

    async def withdraw(self, claim: Claim, _until: float = math.inf, /, *, doubt: bool = True) -> None:
        self._ask("withdraw", claim, doubt=doubt)

    async def join(self, claim: Claim, _until: float = math.inf, /) -> Grant | Place | Refusal:
        return self._placed(claim, self._ask("join", claim))

    async def turn(self, place: Place, _until: float = math.inf, /) -> Grant | Place | Refusal:
        return self._placed(place.claim, self._ask("turn", place.claim))

    async def inspect(self, key: str) -> LockState | None:
        return self._ask("inspect", key)

    async def list(self, prefix: str) -> Sequence[LockState]:
        return self._ask("list", prefix)

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        return self._ask("break_", key, fence, reason, now=now)

    async def raise_fence(self, key: str, fence: int) -> int:
        return self._ask("raise_fence", key, fence)

    async def pause(self, key: str, by: Holder, seconds: float) -> None:
        self._ask("pause", key, by, seconds)

    async def resume(self, key: str) -> bool:
        return self._ask("resume", key)

    async def read(self, key: str, fence: int = 0) -> Reading:
        return self._ask("read", key, fence)

    async def write(self, record: Record) -> bool:
        return self._ask("write", record)

    async def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _placed(self, claim: Claim, answer: Any) -> Any:
        if isinstance(answer, tuple):
            ahead, holder, after, paused = answer
            return Place(claim, self._runtime.signal(), RECHECK, ahead, holder, retry_after=after, paused=paused)
        return answer

    def _ask(self, verb: str, *arguments: Any, **options: Any) -> Any:
        with self._lock:
            try:
                connection = self._connection = self._connection or dial(self._path, "AF_UNIX")
            except OSError as error:
                raise BackendUnavailable(f"no shared memory store answers: {error}", backend=self.label) from None
            try:
                connection.send((verb, arguments, options))
                answer = connection.recv()
            except (EOFError, OSError) as error:
                self._connection = None
                raise OutcomeUnknown(f"the shared memory store went away: {error}", backend=self.label) from None
            except BaseException:
                self._connection = None  # the answer would belong to the next request
                raise
        if isinstance(answer, Exception):
            raise answer
        return answer


def open_url(url: StoreURL) -> Store:
    """`memory+unix:///path/to/socket`."""
    url.refuse_options()
    return SharedMemory(url.path)
