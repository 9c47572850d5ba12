"""Scripted faults between a client and its store.

`Faults` is the script, `FaultyBackend` plays it. Rules are used up in the order in which they were given, each by the
first call that it fits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leasehold.spi import Backend, Inspecting, Operating, Pausing, Place, Queueing, Recording, Runtime
    from leasehold.values import Capability, Claim, Grant, Holder, LockState, Loss, Reading, Record, Refusal

__all__ = ["Faults", "FaultyBackend"]

T = TypeVar("T")


@dataclass(slots=True)
class _Rule:
    verb: str | None
    kind: str
    seconds: float = 0.0


class Faults:
    """What goes wrong next. Verbs are the method names of `Backend`; None fits every call."""

    def __init__(self) -> None:
        self._rules: list[_Rule] = []
        self._late: list[Callable[[float], Awaitable[Any]]] = []
        self._cut = False
        self._mute = 0.0
        self.suspending = False  # every call suspends before and after, so that it can be cancelled there
        self.delayed = 0  # answers that are on their way
        self.under_way: list[object] = []  # one for each call that the store has not answered yet
        self.calls: list[str] = []

    def drop_next_reply(self, verb: str | None = None) -> None:
        """The request is applied, but its answer never comes."""
        self._rules.append(_Rule(verb, "drop reply"))

    def drop_next_request(self, verb: str | None = None) -> None:
        """The request is not applied and no answer comes; `deliver_late` applies it after all."""
        self._rules.append(_Rule(verb, "drop request"))

    def refuse_next(self, verb: str | None = None, *, back_in: float = 0.0) -> None:
        """The store cannot be reached; with `back_in` it says in how many seconds it can grant locks."""
        self._rules.append(_Rule(verb, "refuse", back_in))

    def reject_next(self, verb: str | None = None) -> None:
        """The store answers with an error."""
        self._rules.append(_Rule(verb, "reject"))

    def delay_next_reply(self, seconds: float, verb: str | None = None) -> None:
        """The answer takes this long."""
        self._rules.append(_Rule(verb, "delay", seconds))

    def cut(self) -> None:
        """Packets vanish silently from now on, in both directions."""
        self._cut = True

    def mute(self, seconds: float) -> None:
        """Requests are applied from now on, answers vanish, and the store's own limit for a call is so many seconds."""
        self._mute = seconds

    def heal(self) -> None:
        """Packets arrive again."""
        self._cut, self._mute = False, 0.0

    async def deliver_late(self) -> None:
        """Requests that were dropped on the way reach the store now."""
        late, self._late = self._late, []
        for request in late:
            await request(math.inf)  # its sender has given up by now, which the store does not know

    def next_for(self, verb: str) -> _Rule | None:
        """Take the first rule that fits."""
        self.calls.append(verb)
        if self._cut:
            return _Rule(verb, "drop request")
        if self._mute:
            return _Rule(verb, "mute", self._mute)
        for rule in self._rules:
            if rule.verb in (None, verb):
                self._rules.remove(rule)
                return rule
        return None

    def keep_for_later(self, request: Callable[[float], Awaitable[Any]]) -> None:
        """Remember a dropped request."""
        self._late.append(request)


class FaultyBackend:
    """A backend that fails as scripted. Each verb is that of its port, with a fault on the way."""

    def __init__(self, inner: Backend, runtime: Runtime, faults: Faults) -> None:
        self._inner = inner
        self._runtime = runtime
        self._faults = faults

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the store behind it promises."""
        return self._inner.capabilities

    @property
    def label(self) -> str:
        """The store behind it."""
        return self._inner.label

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        return await self._play("try_acquire", lambda until: self._inner.try_acquire(claim, until), until)

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss | BackendError]:
        return await self._play("renew", lambda until: self._inner.renew(grants, until), until)

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        return await self._play("release", lambda until: self._inner.release(grant, until), until)

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        await self._play("withdraw", lambda until: self._inner.withdraw(claim, until, doubt=doubt), until)

    async def close(self) -> None:
        await self._inner.close()

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        return await self._play("join", lambda until: cast("Queueing", self._inner).join(claim, until), until)

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        return await self._play("turn", lambda until: cast("Queueing", self._inner).turn(place, until), until)

    async def inspect(self, key: str) -> LockState | None:
        return await self._play("inspect", lambda _: cast("Inspecting", self._inner).inspect(key))

    async def list(self, prefix: str) -> Sequence[LockState]:
        return await self._play("list", lambda _: cast("Inspecting", self._inner).list(prefix))

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        return await self._play("break_", lambda _: cast("Operating", self._inner).break_(key, fence, reason, now=now))

    async def raise_fence(self, key: str, fence: int) -> int:
        return await self._play("raise_fence", lambda _: cast("Operating", self._inner).raise_fence(key, fence))

    async def pause(self, key: str, by: Holder, seconds: float) -> None:
        await self._play("pause", lambda _: cast("Pausing", self._inner).pause(key, by, seconds))

    async def resume(self, key: str) -> bool:
        return await self._play("resume", lambda _: cast("Pausing", self._inner).resume(key))

    async def read(self, key: str, fence: int = 0) -> Reading:
        return await self._play("read", lambda _: cast("Recording", self._inner).read(key, fence))

    async def write(self, record: Record) -> bool:
        return await self._play("write", lambda _: cast("Recording", self._inner).write(record))

    async def _play(self, verb: str, request: Callable[[float], Awaitable[T]], until: float = math.inf) -> T:
        if self._faults.suspending:
            await self._runtime.sleep(0)
        rule = self._faults.next_for(verb)
        call = object()
        self._faults.under_way.append(call)
        try:
            answer = await self._apply(verb, request, rule, until)
        finally:
            self._faults.under_way.remove(call)
        if self._faults.suspending:
            await self._runtime.sleep(0)
        return answer

    async def _apply(self, verb: str, request: Callable[[float], Awaitable[T]], rule: _Rule | None, until: float) -> T:
        if rule is None:
            return await request(until)
        if rule.kind == "refuse":
            refused = BackendUnavailable(f"{verb}: the store refused the connection (scripted)", backend=self.label)
            refused.back_in = rule.seconds or None
            raise refused
        if rule.kind == "reject":
            raise BackendRejected(f"{verb}: the store answered with an error (scripted)", backend=self.label)
        if rule.kind == "drop request":
            self._faults.keep_for_later(request)
            raise OutcomeUnknown(f"{verb}: no answer from the store (scripted)", backend=self.label)
        answer = await request(until)
        if rule.kind in ("delay", "mute"):
            left = until - self._runtime.now() if rule.kind == "mute" else math.inf
            await self._take(min(rule.seconds, max(0.0, left)))
        if rule.kind == "delay":
            return answer
        raise OutcomeUnknown(f"{verb}: no answer from the store (scripted)", backend=self.label)

    async def _take(self, seconds: float) -> None:
        self._faults.delayed += 1
        try:
            await self._runtime.sleep(seconds)
        finally:
            self._faults.delayed -= 1
