"""`toy:///path/to/file.json`: the smallest store that keeps the contract. One JSON file, for the processes of one host.

It promises EXCLUSIVE, FENCING and INSPECT, and nothing else: no queue, so waiters ask again; no semaphore; no records.
It is an example of how a store is written, not one to use: it rewrites the whole file with every call.

`Book` is the state and its rules, without any I/O. `ToyBackend` is a client's way to it: lock, read, change, replace.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from leasehold.errors import BackendRejected, BackendUnavailable, ConfigurationError
from leasehold.values import Capability, Grant, Holder, Holding, LockState, Loss, LossReason, Mode, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL
    from leasehold.values import Claim

__all__ = ["ToyBackend", "ToyStore", "open_url"]

PATIENCE = 1.0  # how long one call waits for another process that has the file; the core asks again after that
PAUSE = 0.001

T = TypeVar("T")


class Book:
    """What the file says: who holds what, which claims were withdrawn, and the last fence. Instants are the store's."""

    def __init__(self, state: dict[str, Any], now: float) -> None:
        self.fence: int = state.get("fence", 0)
        self._now = now
        self._held = _alive(state.get("held", {}), now)  # key -> the one holding
        self._withdrawn = _alive(state.get("withdrawn", {}), now)  # owner -> until when a late copy is refused
        self._broken = _alive(state.get("broken", {}), now)  # owner -> why; broken at once, the holder has to learn it

    def state(self) -> dict[str, Any]:
        """What has to be kept."""
        return {"fence": self.fence, "held": self._held, "withdrawn": self._withdrawn, "broken": self._broken}

    def try_acquire(self, claim: Claim) -> Grant | Refusal:
        """Grant now or not at all. The same claim asked twice is the same grant, with a new expiry."""
        held = self._held.get(claim.key)
        if held is None and claim.owner not in self._withdrawn:
            self.fence += 1
            held = {"owner": claim.owner, "fence": self.fence, "since": self._now, "holder": asdict(claim.holder)}
            held["broken"] = None
            self._held[claim.key] = held
        if held is None or held["owner"] != claim.owner or held["broken"] is not None:
            return self._refusal(claim.key, held)
        held["expires"] = self._now + claim.ttl
        return Grant(claim, held["fence"], claim.ttl)

    def renew(self, grants: Sequence[Grant]) -> list[Grant | Loss]:
        """Extend each that is still held."""
        return [self._renew(grant) for grant in grants]

    def release(self, grant: Grant) -> bool | Loss:
        """Free this very grant and nothing else. If it was broken, its holder learns that now."""
        held = self._holding_of(grant)
        if held is not None:
            del self._held[grant.claim.key]
        return self._broken_loss(grant, held) or held is not None

    def withdraw(self, claim: Claim, *, doubt: bool) -> None:
        """Undo the claim, whatever became of it; with `doubt`, refuse a copy of it that comes late."""
        held = self._held.get(claim.key)
        if held is not None and held["owner"] == claim.owner:
            del self._held[claim.key]
        if doubt:
            self._withdrawn[claim.owner] = {"expires": self._now + claim.ttl}

    def inspect(self, key: str) -> LockState | None:
        """Who holds it."""
        held = self._held.get(key)
        if held is None:
            return None
        holder, since, left = Holder(**held["holder"]), self._now - held["since"], held["expires"] - self._now
        holding = Holding(holder, held["fence"], since, left, held["broken"])
        return LockState(key, Mode.EXCLUSIVE, 1, (holding,), ())

    def list(self, prefix: str) -> Sequence[LockState]:
        """All that are held and start like this."""
        states = [self.inspect(key) for key in sorted(self._held) if key.startswith(prefix)]
        return [state for state in states if state is not None]

    def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """End the grant with this fence; its place stays taken until its ttl is over, unless `now`."""
        held = self._held.get(key)
        if held is None or held["fence"] != fence:
            return False
        held["broken"] = reason
        if now:
            self._broken[held["owner"]] = {"reason": reason, "expires": held["expires"]}
            del self._held[key]
        return True

    def raise_fence(self, fence: int) -> int:
        """Make every later fence higher than this; one counter serves all keys."""
        self.fence = max(self.fence, fence)
        return self.fence

    def _renew(self, grant: Grant) -> Grant | Loss:
        held = self._holding_of(grant)
        broken = self._broken_loss(grant, held)
        if broken is not None:
            return broken
        if held is None:
            return Loss(LossReason.TAKEN, "the store does not know this grant any more")
        held["expires"] = self._now + grant.claim.ttl
        return Grant(grant.claim, grant.fence, grant.claim.ttl)

    def _broken_loss(self, grant: Grant, held: dict[str, Any] | None) -> Loss | None:
        """What the holder of a broken grant has to learn, whether its place is kept or not."""
        reason = self._broken.get(grant.claim.owner, {}).get("reason") if held is None else held["broken"]
        return None if reason is None else Loss(LossReason.BROKEN, reason)

    def _holding_of(self, grant: Grant) -> dict[str, Any] | None:
        held = self._held.get(grant.claim.key)
        if held is None or held["owner"] != grant.claim.owner or held["fence"] != grant.fence:
            return None
        return held

    def _refusal(self, key: str, held: dict[str, Any] | None) -> Refusal:
        if held is None:
            return Refusal(key)  # a withdrawn claim
        return Refusal(key, Holder(**held["holder"]), held["expires"] - self._now)


class ToyStore:
    """A file, named but not yet opened. `monotonic` is one clock for all processes of a Linux host."""

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic, pause: float = PAUSE) -> None:
        self._path = path
        self._clock = clock
        self._pause = pause  # between two looks at a file that is in use; 0 where the clock is turned by hand

    def open_backend(self, runtime: Runtime) -> Backend:
        """Connect; does no I/O."""
        return ToyBackend(self._path, self._clock, self._pause, runtime)


class ToyBackend:
    """A client's way to the file. It keeps nothing open, so there is nothing to inherit by a fork or to close."""

    capabilities = frozenset({Capability.EXCLUSIVE, Capability.FENCING, Capability.INSPECT})

    def __init__(self, path: str, clock: Callable[[], float], pause: float, runtime: Runtime) -> None:
        self.label = f"toy://{path}"
        self._path = path
        self._clock = clock
        self._pause = pause
        self._runtime = runtime

    async def try_acquire(self, claim: Claim, _until: float = math.inf, /) -> Grant | Refusal:
        """See `Backend`."""
        return await self._change(lambda book: book.try_acquire(claim))

    async def renew(self, grants: Sequence[Grant], _until: float = math.inf, /) -> Sequence[Grant | Loss]:
        """See `Backend`."""
        return await self._change(lambda book: book.renew(grants))

    async def release(self, grant: Grant, _until: float = math.inf, /) -> bool | Loss:
        """See `Backend`."""
        return await self._change(lambda book: book.release(grant))

    async def withdraw(self, claim: Claim, _until: float = math.inf, /, *, doubt: bool = True) -> None:
        """See `Backend`."""
        await self._change(lambda book: book.withdraw(claim, doubt=doubt))

    async def close(self) -> None:
        """Nothing is open."""

    async def inspect(self, key: str) -> LockState | None:
        """See `Inspecting`."""
        return await self._change(lambda book: book.inspect(key))

    async def list(self, prefix: str) -> Sequence[LockState]:
        """See `Inspecting`."""
        return await self._change(lambda book: book.list(prefix))

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """See `Inspecting`."""
        return await self._change(lambda book: book.break_(key, fence, reason, now=now))

    async def raise_fence(self, key: str, fence: int) -> int:  # noqa: ARG002 - one counter serves all keys
        """See `Inspecting`."""
        return await self._change(lambda book: book.raise_fence(fence))

    async def _change(self, change: Callable[[Book], T]) -> T:
        """Do one thing to the book. It waits in the runtime's own sleep, and never for ever."""
        deadline = self._runtime.now() + PATIENCE
        while (done := self._try(change)) is None:
            if self._runtime.now() >= deadline:
                raise BackendUnavailable("the file is in use by another process; try again", backend=self.label)
            await self._runtime.sleep(self._pause)
        return done[0]

    def _try(self, change: Callable[[Book], T]) -> tuple[T] | None:
        """The result in a tuple, or None if another process has the file; `os.replace` shows a change as a whole."""
        with open(self._path + ".lock", "ab") as lock:  # noqa: PTH123 - text, as the URL gave it
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            book = Book(self._read(), self._clock())
            result = change(book)
            self._write(book.state())
            return (result,)

    def _read(self) -> dict[str, Any]:
        try:
            with open(self._path, encoding="utf-8") as file:  # noqa: PTH123
                state = json.load(file)
        except FileNotFoundError:
            return {}
        except ValueError:
            state = None
        if not isinstance(state, dict):
            raise BackendRejected("the file holds something else than locks; name another one", backend=self.label)
        return state

    def _write(self, state: dict[str, Any]) -> None:
        fresh = self._path + ".new"
        with open(fresh, "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(state, file)
        os.replace(fresh, self._path)  # noqa: PTH105


def _alive(entries: dict[str, dict[str, Any]], now: float) -> dict[str, dict[str, Any]]:
    """What has not run out by the store's clock; nothing is kept for a name that is idle."""
    return {name: entry for name, entry in entries.items() if entry["expires"] > now}


def open_url(url: StoreURL) -> Store:
    """`toy:///path/to/file.json`; named in `pyproject.toml` as an entry point of the group `leasehold.backends`."""
    url.refuse_options()
    if not url.path.startswith("/"):
        raise ConfigurationError("a toy store needs an absolute path: toy:///path/to/file.json")
    return ToyStore(url.path)
