"""`toy:///path/to/file.json`: a full store in one small file, for the processes of one host.

`ToyDocuments` is all there is to write: load, swap, keys and a clock. `leasehold.kit` makes of it what the library
asks of a store: queues, semaphores, read/write locks, records, inspection and breaking, over one document per name.
It is an example of how a store is written, not one to use: it rewrites the whole file with every change.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from typing import TYPE_CHECKING, Any, TypeVar

from leasehold.errors import BackendRejected, BackendUnavailable, ConfigurationError
from leasehold.kit import DocumentBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL

__all__ = ["ToyDocuments", "ToyStore", "open_url"]

PATIENCE = 1.0  # how long one call waits for another process that has the file; the core asks again after that
LEAST = 0.1  # also for a call that comes late: the others have the file for a millisecond
PAUSE = 0.001

T = TypeVar("T")


class ToyDocuments:
    """Documents in one JSON file: `{"changes": 7, "documents": {"lock:report": [6, "{…}"]}}`.

    The version of a document is the number of the change that wrote it. Numbers are never used twice, so a document
    that was deleted and made anew is not mistaken for the old one. Nothing stays open: there is nothing to inherit by a
    fork, and nothing to close.
    """

    def __init__(self, path: str, clock: Callable[[], float], runtime: Runtime) -> None:
        self._path = path
        self._clock = clock
        self._runtime = runtime

    async def load(self, key: str, until: float, /) -> tuple[bytes | None, Any]:
        state = await self._alone(self._read, until)
        version, text = state["documents"].get(key, (0, None))
        return None if text is None else text.encode(), version

    async def swap(self, key: str, value: bytes | None, seen: Any, until: float, /) -> bool:
        return await self._alone(lambda: self._swap(key, value, seen), until)

    async def keys(self, prefix: str, /) -> Sequence[str]:
        state = await self._alone(self._read, self._runtime.now() + PATIENCE)
        return [key for key in state["documents"] if key.startswith(prefix)]

    async def now(self) -> float | None:
        return self._clock()  # one clock for all processes of a host

    async def close(self) -> None:
        """Nothing is open."""

    def _swap(self, key: str, value: bytes | None, seen: Any) -> bool:
        state = self._read()
        if state["documents"].get(key, (0, None))[0] != seen:
            return False
        state["changes"] += 1
        if value is None:
            state["documents"].pop(key, None)
        else:
            state["documents"][key] = (state["changes"], value.decode())
        fresh = self._path + ".new"
        with open(fresh, "w", encoding="utf-8") as file:  # noqa: PTH123 - text, as the URL gave it
            json.dump(state, file)
        os.replace(fresh, self._path)  # noqa: PTH105 - shows a change as a whole
        return True

    async def _alone(self, work: Callable[[], T], until: float) -> T:
        """Do it while no other process has the file, on a thread where there is an event loop: it blocks."""
        patience = min(PATIENCE, max(until - self._runtime.now(), LEAST))
        return await self._runtime.offload(lambda: self._locked(work, patience))

    def _locked(self, work: Callable[[], T], patience: float) -> T:
        with open(self._path + ".lock", "ab") as lock:  # noqa: PTH123
            deadline = time.monotonic() + patience
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise BackendUnavailable("the file is in use by another process; try again") from None
                    time.sleep(PAUSE)
                else:
                    return work()

    def _read(self) -> dict[str, Any]:
        try:
            with open(self._path, encoding="utf-8") as file:  # noqa: PTH123
                state = json.load(file)
        except FileNotFoundError:
            return {"changes": 0, "documents": {}}
        except ValueError:
            state = None
        if not isinstance(state, dict) or "documents" not in state:
            raise BackendRejected("the file holds something else than locks; name another one")
        return state


class ToyStore:
    """A file, named but not yet opened. A `pause` of 0 after a conflict is for a clock that is turned by hand."""

    def __init__(self, path: str, clock: Callable[[], float] = time.time, pause: float = PAUSE) -> None:
        self._path = path
        self._clock = clock
        self._pause = pause

    def open_backend(self, runtime: Runtime) -> Backend:
        """Connect; does no I/O."""
        documents = ToyDocuments(self._path, self._clock, runtime)
        return DocumentBackend(documents, runtime, f"toy://{self._path}", pause=self._pause)


def open_url(url: StoreURL) -> Store:
    """`toy:///path/to/file.json`; named in `pyproject.toml` as an entry point of the group `leasehold.backends`."""
    url.refuse_options()
    if not url.path.startswith("/"):
        raise ConfigurationError("a toy store needs an absolute path: toy:///path/to/file.json")
    return ToyStore(url.path)
