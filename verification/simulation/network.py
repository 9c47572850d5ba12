"""The way between a process and its store: every verb travels, is applied in one step at the store, and travels back.

On the way a request or a reply can be lost or late, and a request can be applied long after its caller gave up or
crashed (a zombie). What the caller sees follows the port: `BackendUnavailable` only when the request surely never
left, `OutcomeUnknown` when no answer came in time. Signals of the store travel the same way and can be lost.

It knows what the verbs of the port look like. It judges nothing: an `Observer` sees what was sent, applied and
failed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from leasehold._backends.memory import MemoryBackend
from leasehold.errors import BackendUnavailable, LeaseholdError, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import Capability

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.spi import Backend, Runtime, Signal
    from leasehold.values import Claim, Grant, LockState, Loss, Reading, Record, Refusal
    from verification.simulation.world import Process

__all__ = ["Fate", "Link", "NetworkStore", "Observer", "PlainStore", "Weather"]

T = TypeVar("T")


class Fate(StrEnum):
    """What becomes of one request."""

    FINE = "fine"
    REFUSED = "refused"  # the connection cannot be opened: surely not applied
    REQUEST_LOST = "request lost"
    REPLY_LOST = "reply lost"
    REPLY_LATE = "reply late"
    ZOMBIE = "zombie"  # applied long after the caller gave up


class Observer(Protocol):
    """Sees what happens between processes and the store."""

    def sent(self, process: Process, verb: str, subject: Any) -> None:
        """A request leaves."""

    def applied(self, link: Link, verb: str, subject: Any, answer: Any, sent_at: float) -> None:
        """The store has just done it."""

    def failed(self, process: Process, verb: str, subject: Any) -> None:
        """The caller gives up: no answer."""


class Weather:
    """How bad a link is at the moment; all zero is a network that works."""

    __slots__ = ("refuse", "reply_late", "reply_loss", "request_loss", "slow", "zombie")

    def __init__(self) -> None:
        self.calm()

    def calm(self) -> None:
        """Everything arrives, quickly."""
        self.refuse = self.request_loss = self.reply_loss = self.reply_late = self.zombie = 0.0
        self.slow = 1.0  # how many times longer everything takes


class Link:
    """The network of one process."""

    def __init__(self, process: Process, timeout: float) -> None:
        self.process = process
        self.weather = Weather()
        self.cut = False  # silently: no packet arrives, and no error is raised
        self.timeout = timeout
        self.ambush: Callable[[], None] | None = None  # happens with the next request
        self.on_crash: Callable[[], None] | None = None  # what the host does when the process is gone
        self.trouble_until = -1.0  # the last moment at which something of this process was disturbed

    def mend(self) -> None:
        """Packets arrive again."""
        self.cut = False

    def trouble(self, seconds: float = 0.0) -> None:
        """Remember that this process is disturbed from now on for so long."""
        self.trouble_until = max(self.trouble_until, self.process.world.now + seconds)

    @property
    def well_for(self) -> float:
        """Seconds since the last disturbance of this process or its network."""
        return self.process.world.now - max(self.trouble_until, self.process.resumed_at)

    def fate(self) -> Fate:
        """Draw what becomes of the next request."""
        weather = self.weather
        chance = self.process.world.random.random()
        for fate, share in (
            (Fate.REFUSED, weather.refuse),
            (Fate.REQUEST_LOST, weather.request_loss),
            (Fate.REPLY_LOST, weather.reply_loss),
            (Fate.REPLY_LATE, weather.reply_late),
            (Fate.ZOMBIE, weather.zombie),
        ):
            if chance < share:
                self.trouble(self.timeout)
                return fate
            chance -= share
        return Fate.FINE

    def delay(self) -> float:
        """Draw how long a packet takes."""
        chance = self.process.world.random.random()
        return (0.0002 + 0.004 * chance * chance) * self.weather.slow


class PlainStore(Protocol):
    """A store in one place, whose verbs are plain functions; see `Backend` for what each means."""

    def try_acquire(self, claim: Claim, /) -> Grant | Refusal: ...
    def join(self, claim: Claim, signal: Signal, /) -> Grant | Place | Refusal: ...
    def turn(self, place: Place, /) -> Grant | Place | Refusal: ...
    def renew(self, grants: Sequence[Grant], /) -> Sequence[Grant | Loss]: ...
    def release(self, grant: Grant, /) -> bool | Loss: ...
    def withdraw(self, claim: Claim, /, *, doubt: bool) -> None: ...
    def inspect(self, key: str, /) -> LockState | None: ...
    def list(self, prefix: str, /) -> Sequence[LockState]: ...
    def break_(self, key: str, fence: int, reason: str, /, *, now: bool) -> bool: ...
    def raise_fence(self, key: str, fence: int, /) -> int: ...
    def read(self, key: str, fence: int, /) -> Reading: ...
    def write(self, record: Record, /) -> bool: ...


class NetworkStore:
    """A store as seen through a link; made once for each process."""

    def __init__(self, store: PlainStore, link: Link, observer: Observer, *, queueing: bool) -> None:
        self._store = store
        self._link = link
        self._observer = observer
        self._queueing = queueing

    def open_backend(self, runtime: Runtime) -> Backend:
        """Connect."""
        return _Backend(self._store, self._link, self._observer, runtime, queueing=self._queueing)


class _RemoteSignal:
    """The store's end of a waiter's signal."""

    __slots__ = ("_link", "_local")

    def __init__(self, link: Link, local: Signal) -> None:
        self._link = link
        self._local = local

    def set(self) -> None:
        link, world = self._link, self._link.process.world
        if not link.cut and world.random.random() >= link.weather.reply_loss:
            world.after(link.delay(), self._arrive)

    def _arrive(self) -> None:
        if not self._link.cut:
            self._local.set()

    def clear(self) -> None:
        """Only the waiter lowers its flag."""

    def is_set(self) -> bool:
        return False


class _Call:
    """One request under way."""

    def __init__(self, backend: _Backend, verb: str, subject: Any, apply: Callable[[], Any], fate: Fate) -> None:
        self._backend = backend
        self._verb = verb
        self._subject = subject
        self._apply = apply
        self._fate = fate
        self._sent_at = backend.link.process.world.now
        self.answered = backend.runtime.signal()
        self.answer: Any = None
        self.error: LeaseholdError | None = None

    def send(self) -> None:
        link, world = self._backend.link, self._backend.link.process.world
        if self._fate is Fate.REQUEST_LOST or link.cut:
            return
        delay = link.delay()
        if self._fate is Fate.ZOMBIE:
            delay += link.timeout * (0.5 + 4 * world.random.random())
        world.after(delay, self._arrive)

    def _arrive(self) -> None:
        """At the store. A zombie comes by another way, so it arrives even when the link is cut by now."""
        link, world = self._backend.link, self._backend.link.process.world
        if link.cut and self._fate is not Fate.ZOMBIE:
            return
        try:
            self.answer = self._apply()
        except OutcomeUnknown:  # the store itself failed in the middle: nothing was done, and no answer comes
            world.note(link.process.name, "not applied", self._verb, _short(self._subject))
            return
        except LeaseholdError as error:
            self.error = error
        world.note(link.process.name, "applied", self._verb, _short(self._subject), _short(self.answer))
        self._backend.observer.applied(link, self._verb, self._subject, self.answer, self._sent_at)
        if self._fate is Fate.REPLY_LOST or link.cut:
            return
        delay = link.delay()
        if self._fate is Fate.REPLY_LATE:
            delay += link.timeout * 2 * world.random.random()
        world.after(delay, self._return)

    def _return(self) -> None:
        if not self._backend.link.cut:
            self.answered.set()


class _Backend:
    """The port, over a link."""

    def __init__(self, store: PlainStore, link: Link, observer: Observer, runtime: Runtime, *, queueing: bool) -> None:
        self._store = store
        self.link = link
        self.observer = observer
        self.runtime = runtime
        self.label = "memory://simulated"
        without = {Capability.PAUSE} | (set() if queueing else {Capability.FIFO, Capability.PUSH})
        self.capabilities = MemoryBackend.capabilities - without

    async def _call(self, verb: str, subject: Any, apply: Callable[[], T], until: float = math.inf) -> T:
        link, process = self.link, self.link.process
        deadline = min(self.runtime.now() + link.timeout, until)
        if deadline <= self.runtime.now():
            self.observer.failed(process, verb, subject)
            raise BackendUnavailable("no time is left for a request", backend=self.label)
        fate = link.fate()
        process.world.note(process.name, "send", verb, _short(subject), fate.value)
        self.observer.sent(process, verb, subject)
        ambush, link.ambush = link.ambush, None
        if ambush is not None:
            ambush()
        if fate is Fate.REFUSED:
            await self.runtime.sleep(min(link.delay(), deadline - self.runtime.now()))
            self.observer.failed(process, verb, subject)
            raise BackendUnavailable("connection refused", backend=self.label)
        call = _Call(self, verb, subject, apply, fate)
        call.send()
        if not await self.runtime.wait(call.answered, deadline):
            link.trouble()
            self.observer.failed(process, verb, subject)
            process.world.note(process.name, "no answer", verb, _short(subject))
            raise OutcomeUnknown("no answer in time", backend=self.label)
        if call.error is not None:
            raise call.error
        return call.answer  # type: ignore[no-any-return]

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        return await self._call("try_acquire", claim, lambda: self._store.try_acquire(claim), until)

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        local = self.runtime.signal()
        remote = _RemoteSignal(self.link, local)
        return _nearer(await self._call("join", claim, lambda: self._store.join(claim, remote), until), local)

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        remote = replace(place, signal=_RemoteSignal(self.link, place.signal))
        return _nearer(await self._call("turn", place.claim, lambda: self._store.turn(remote), until), place.signal)

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss]:
        return await self._call("renew", tuple(grants), lambda: self._store.renew(grants), until)

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        return await self._call("release", grant, lambda: self._store.release(grant), until)

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        verb = "withdraw" if doubt else "leave"
        await self._call(verb, claim, lambda: self._store.withdraw(claim, doubt=doubt), until)

    async def inspect(self, key: str) -> LockState | None:
        return await self._call("inspect", key, lambda: self._store.inspect(key))

    async def list(self, prefix: str) -> Sequence[LockState]:
        return await self._call("list", prefix, lambda: self._store.list(prefix))

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        subject = (key, fence, now)
        return await self._call("break_", subject, lambda: self._store.break_(key, fence, reason, now=now))

    async def raise_fence(self, key: str, fence: int) -> int:
        return await self._call("raise_fence", (key, fence), lambda: self._store.raise_fence(key, fence))

    async def read(self, key: str, fence: int = 0) -> Reading:
        return await self._call("read", key, lambda: self._store.read(key, fence))

    async def write(self, record: Record) -> bool:
        return await self._call("write", record, lambda: self._store.write(record))

    async def close(self) -> None:
        """Nothing to let go of."""


def _nearer(answer: Grant | Place | Refusal, local: Signal) -> Grant | Place | Refusal:
    """The waiter listens to its own end of the signal."""
    return replace(answer, signal=local) if isinstance(answer, Place) else answer


def _short(value: Any) -> Any:
    """What the trace says about a value: nothing that differs between two runs of a seed."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case tuple() | list():
            return tuple(_short(each) for each in value)
    claim = getattr(value, "claim", value)
    owner = getattr(claim, "owner", "")[:6]
    fence = getattr(value, "fence", "")
    reason = getattr(value, "reason", "")
    return f"{type(value).__name__}({getattr(claim, 'key', '')} {owner} {fence}{reason})"
