"""Claims become script calls, replies become grants: the protocol, once for threads and asyncio.

Validity. A grant that a call of ours brought counts from before that call. A grant that came by message counts from an
earlier call of ours: sent at s, stamped T by the server; handed over at T', it is ours since s + (T' - T) at the
earliest, a little less because clocks drift. If the server's clock looks odd, or the message was taken up so late that
a step of that clock could hide behind the delay, a further call replaces the message.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.calls import Call, CallTemplate, RecordCall
from leasehold._backends.redis.errors import hold_off_reason
from leasehold._backends.redis.inspect import read_obstacle, read_state, read_states
from leasehold._backends.redis.notifications import Listener, Waiter
from leasehold._backends.redis.scripts import script
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable
from leasehold.kit.holder import holder_to_json
from leasehold.kit.pauses import OWNER as PAUSED
from leasehold.kit.pauses import pause_to_json
from leasehold.kit.rules import check_kind, handed_over_since
from leasehold.spi import Place
from leasehold.values import Capability, Claim, Grant, LockState, Loss, LossReason, Mode, Reading, Record, Refusal

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from leasehold._backends.redis.keys import Keys, Names
    from leasehold._backends.redis.options import Options
    from leasehold._backends.redis.router import Router
    from leasehold.findings import Finding
    from leasehold.spi import Runtime, Signal
    from leasehold.values import Holder

__all__ = ["RedisBackend"]

TRY, JOIN, TURN = "0", "1", "2"
RELEASE = "release"
NOTHING_PACKED: tuple[object, Any] = (None, None)
RECHECK = 2.0  # a message wakes a waiter when it is its turn; this is for the message that gets lost
LONGEST_PLACE = 3 * RECHECK
LISTENING = 6  # the part of a place's life that may be spent on subscribing
POLL_AT_THE_HEAD = 0.1  # for a waiter that no message can wake
SHORTEST_TIMEOUT = 0.25
HOUR_US = 3_600_000_000
SLICE = 500
TAKEN = Loss(LossReason.TAKEN, "the store does not know this grant any more")
LETTER = {Mode.EXCLUSIVE: "x", Mode.SHARED: "s", Mode.PERMIT: "p"}


class RedisBackend:
    """A client's connections to one Redis store."""

    capabilities = frozenset(Capability) - {Capability.SESSION}

    def __init__(self, router: Router, names: Names, options: Options, runtime: Runtime, label: str) -> None:
        self.label = label
        self._router = router
        self._names = names
        self._options = options
        self._runtime = runtime
        self._highest = options.fence_floor  # the highest fence this client has seen
        self._listener = Listener(router, runtime, direct=options.hands_over, prefix=options.prefix)
        self._is_plain = not (options.strict or options.acks)

    # --- claims

    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        reply = await self._request(TRY, claim, self._names.keys(claim.key), "", until)
        return self._granted(claim, reply) if reply[0] == 1 else self._refused(claim, reply)

    async def join(self, claim: Claim, until: float = math.inf, /) -> Grant | Place | Refusal:
        """Only a claim that really has to wait opens a connection for messages; it then calls once more."""
        keys, listener = self._names.keys(claim.key), self._listener
        if not listener.sources or not listener.wake_address(keys):
            reply = await self._request(TRY, claim, keys, "", until)
            if reply[0] == 1:
                return self._granted(claim, reply)
            if reply[0] == 3:
                return self._refused(claim, reply)
            await listener.listen(keys, _place_lifetime(claim) / LISTENING, until)
        waiter = Waiter(self._runtime.signal(), keys)
        listener.add(claim.owner, waiter)
        return await self._take_place(JOIN, claim, waiter, until)

    async def turn(self, place: Place, until: float = math.inf, /) -> Grant | Place | Refusal:
        claim = place.claim
        keys = self._names.keys(claim.key)
        waiter = self._listener.waiter(claim.owner)
        if waiter is None:
            waiter = Waiter(place.signal, keys)
            self._listener.add(claim.owner, waiter)
        elif waiter.handed is not None and (grant := self._handed_over(claim, waiter)) is not None:
            return grant
        if not self._listener.wake_address(keys):
            await self._listener.listen(keys, _place_lifetime(claim) / LISTENING, until)
        return await self._take_place(TURN, claim, waiter, until)

    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss | BackendError]:
        if not grants:
            return []
        calls: list[Call] = []
        for start in range(0, len(grants), SLICE):
            if start:
                await self._runtime.sleep(0)  # thousands of leases must not keep an event loop busy
            calls += [self._renewal(grant) for grant in grants[start : start + SLICE]]
        timeout = min(self._timeout(grant.claim.ttl) for grant in grants)
        replies = await self._router.execute_all(calls, timeout, until)
        return [_renewed(grant, reply) for grant, reply in zip(grants, replies, strict=True)]

    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        claim = grant.claim
        keys, owner = self._names.keys(claim.key), claim.owner.encode()
        terms = (claim.ttl, len(owner))
        known, template = keys.templates.get(RELEASE, NOTHING_PACKED)
        if known != terms:
            template = CallTemplate(script("release"), keys, len(owner), self._timeout(claim.ttl), marked=True)
            keys.templates[RELEASE] = (terms, template)
        reply = await self._router.execute(template.call(owner, grant.fence), template.timeout, until)
        return reply == 1 if isinstance(reply, int) else _broken(reply)

    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        self._listener.remove(claim.owner)
        keys = self._names.keys(claim.key)
        mark = _milliseconds(claim.ttl) if doubt else "0"
        call = Call.of(script("withdraw"), keys, claim.owner, claim.owner, mark)
        await self._router.execute(call, self._timeout(claim.ttl), until)

    # --- operators

    async def inspect(self, key: str) -> LockState | None:
        reply = await self._look(self._names.keys(key))
        return read_state(key, reply)

    async def list(self, prefix: str) -> Sequence[LockState]:
        return await read_states(self._router, self._names, prefix, self._options.answer_timeout)

    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        """Two steps: the key that keeps the reason for the holder contains its owner value, which has to be read."""
        keys = self._names.keys(key)
        _, holders, _ = await self._look(keys)
        for place in range(0, len(holders), 8):
            owner, mode, its_fence = holders[place : place + 3]
            if owner and (int(its_fence) == fence or (mode == b"x" and int(its_fence) < fence)):
                arguments = (owner.decode(), str(fence), reason, "1" if now else "0")
                call = Call.of(script("break"), keys, owner.decode(), *arguments)
                return bool(await self._router.execute(call, self._options.answer_timeout) == 1)
        return False

    async def raise_fence(self, key: str, fence: int) -> int:
        call = Call.of(script("raise_fence"), self._names.keys(key), None, str(fence))
        return int(await self._router.execute(call, self._options.answer_timeout))

    async def pause(self, key: str, by: Holder, seconds: float) -> None:
        await self._order_pause(key, _milliseconds(seconds), pause_to_json(by))

    async def resume(self, key: str) -> bool:
        return await self._order_pause(key, "0", "")

    async def _order_pause(self, key: str, length: str, description: str) -> bool:
        call = Call.of(script("pause"), self._names.keys(key), PAUSED, length, description)
        return bool(await self._router.execute(call, self._options.answer_timeout) == 1)

    async def examine(self) -> Sequence[Finding]:
        from leasehold._backends.redis.doctor import examine  # noqa: PLC0415 - it is rarely needed

        findings: list[Finding] = []
        for node in await self._router.topology.all(self._router.wire):

            async def command(*parts: str | bytes | int, node: Any = node) -> Any:
                return await self._router.command(node, *parts)

            findings.extend(await examine(command, self._options.prefix))
        return findings

    # --- records

    async def read(self, key: str, fence: int = 0) -> Reading:
        call = RecordCall(script("read_record"), self._names.keys(key), (fence,))
        value, left, highest, time_us = await self._router.execute(call, self._options.answer_timeout)
        record = None if value is None else Record(key, value, highest, left / 1000)
        return Reading(record, highest, time_us / 1e6)

    async def write(self, record: Record) -> bool:
        arguments = (record.value, record.fence, _milliseconds(record.ttl))
        call = RecordCall(script("write_record"), self._names.keys(record.key), arguments)
        return bool(await self._router.execute(call, self._options.answer_timeout) == 1)

    async def close(self) -> None:
        self._listener.close()
        await self._router.wire.close()

    # --- calling the acquire script

    def _request(self, step: str, claim: Claim, keys: Keys, address: str, until: float) -> Coroutine[Any, Any, Any]:
        """Call the script for one step of a claim."""
        if claim.spare:
            step = f"{step}:{claim.spare}"
        if not self._is_plain:
            return self._request_with_proof(step, claim, keys, address, until)
        owner = claim.owner.encode()
        # A lock makes the same call again and again, so it is packed once.
        terms = (claim.ttl, claim.mode, claim.holder, claim.capacity, claim.min_hold, address, len(owner))
        known, template = keys.templates.get(step, NOTHING_PACKED)
        if known != terms:
            template = self._new_template(step, claim, keys, () if step[0] == TRY else (address,))
            keys.templates[step] = (terms, template)
        return self._router.execute(template.call(owner, self._highest), template.timeout, until)

    def _new_template(self, step: str, claim: Claim, keys: Keys, more: Sequence[str]) -> CallTemplate:
        """`more`: how to wake a waiter, and what strict mode adds."""
        kind = str(claim.capacity) if claim.mode is Mode.PERMIT else "0"
        return CallTemplate(
            script("acquire"),
            keys,
            len(claim.owner.encode()),
            self._timeout(claim.ttl),
            marked=True,
            before=(step,),
            between=(
                _milliseconds(claim.ttl),
                LETTER[claim.mode],
                kind,
                _milliseconds(claim.min_hold),
                holder_to_json(claim.holder),
            ),
            after=(_milliseconds(_place_lifetime(claim)), *more) if more else (),
        )

    async def _request_with_proof(self, step: str, claim: Claim, keys: Keys, address: str, until: float) -> Any:
        """With `strict` the script looks at the server's process; with `acks` a grant has to be on replicas."""
        more = [address]
        if self._options.strict:
            more.append(_milliseconds(max(claim.ttl, self._options.strict)))
        template = self._new_template(step, claim, keys, more)
        call = template.call(claim.owner.encode(), self._highest)
        if self._options.acks:
            # The place in the queue goes on ageing while the call waits for replicas.
            patience = self._options.acks_timeout
            patience = patience if step[0] == TRY else min(patience, _place_lifetime(claim) / 2)
            return await self._request_replicated(claim, call, patience, until)
        return await self._router.execute(call, template.timeout, until)

    async def _request_replicated(self, claim: Claim, call: Call, patience: float, until: float) -> Any:
        """With `acks`: a grant counts only when enough replicas have it; otherwise it is undone."""
        options = self._options
        timeout = self._timeout(claim.ttl)
        reply, acknowledged = await self._router.execute_replicated(call, options.acks, patience, timeout, until)
        if isinstance(acknowledged, BackendError):
            await self.withdraw(claim, until)  # a rejection would leave the grant to its ttl
            raise acknowledged
        if reply[0] == 1 and acknowledged < options.acks:
            await self.withdraw(claim, until)
            raise BackendUnavailable(
                f"{self.label}: {acknowledged} of {options.acks} replicas acknowledged the grant, and it was undone; "
                "see whether the replicas are connected",
                backend=self.label,
            )
        return reply

    async def _take_place(self, step: str, claim: Claim, waiter: Waiter, until: float) -> Grant | Place | Refusal:
        """Take or keep a place in the queue."""
        keys = waiter.keys
        address = self._listener.wake_address(keys)
        sent = self._runtime.now()
        reply = await self._request(step, claim, keys, address, until)
        if reply[0] == 2:
            waiter.sent, waiter.stamp = sent, reply[2]
            return self._place(claim, waiter.signal, reply, woken=bool(address))
        if reply[0] == 1:
            if reply[5] and waiter.handed is None:
                self._listener.verify(keys)
            self._listener.remove(claim.owner)
            return self._granted(claim, reply)
        if step == TURN and reply[0] == 0:  # it was skipped: no message reached it, or it has slept too long
            self._listener.verify(keys)
        self._listener.remove(claim.owner)
        return self._refused(claim, reply)

    def _handed_over(self, claim: Claim, waiter: Waiter) -> Grant | None:
        """The grant that a message brought; None if a further call has to confirm it."""
        handed, waiter.handed = waiter.handed, None
        assert handed is not None  # noqa: S101 - for the type checker
        # Both stamps are cut off to milliseconds, so what lies between them may be nearly one less.
        since = handed_over_since(waiter.sent, max(0, handed.at - waiter.stamp - 1) / 1000)
        now = self._runtime.now()
        if waiter.stamp == 0 or handed.at < waiter.stamp or since > now:
            return None  # the server's clock is not what it was
        lifetime = _place_lifetime(claim)
        if now > min(since + lifetime / 4, waiter.sent + lifetime / 2):
            return None  # our process stood still: by as much the server's clock may have stepped ahead unseen
        self._listener.remove(claim.owner)
        self._note(handed.fence + handed.spare, handed.at)
        return Grant(claim, handed.fence, handed.ttl, since, handed.abandoned, handed.spare)

    # --- reading replies

    def _granted(self, claim: Claim, reply: Any) -> Grant:
        _, fence, abandoned, now, _, _, spare = reply
        self._note(fence + spare, now)
        return Grant(claim, fence, claim.ttl, None, abandoned == 1, spare)

    def _refused(self, claim: Claim, reply: Any) -> Refusal:
        """A name in use as another kind of lock is an error."""
        if reply[0] == 3:
            present = int(reply[1])
            check_kind(claim, Mode.PERMIT if present else Mode.EXCLUSIVE, present or 1, self.label)
            raise BackendRejected(
                f"{self.label}: the stored kind of this lock cannot be read; another program may have changed its keys",
                backend=self.label,
            )
        _, waiting, left, stored, off = reply
        holder, paused, retry_after = read_obstacle(stored, left)
        why = None if holder or paused else hold_off_reason(off)
        return Refusal(claim.key, holder, retry_after, waiting, why, paused)

    def _place(self, claim: Claim, signal: Signal, reply: Any, *, woken: bool) -> Place:
        _, ahead, _, left, stored, off = reply
        recheck = _place_lifetime(claim) / 3
        if ahead == 0 and left > 0:
            recheck = min(recheck, (left + 1) / 1000)  # the first in the queue is granted when the holder's ttl is over
        if not woken:
            recheck = min(recheck, POLL_AT_THE_HEAD if ahead == 0 else 5 * POLL_AT_THE_HEAD)
        holder, paused, retry_after = read_obstacle(stored, left)
        why = None if holder or paused else hold_off_reason(off)
        retry_after = off / 1000 if why else retry_after
        return Place(claim, signal, recheck, ahead, holder, retry_after=retry_after, why=why, paused=paused)

    def _note(self, fence: int, time_ms: int) -> None:
        """Later fences must be higher. One far ahead of the server's clock was raised by hand, for its own name."""
        if fence > self._highest and fence < time_ms * 1000 + HOUR_US:
            self._highest = fence

    def _renewal(self, grant: Grant) -> Call:
        claim = grant.claim
        keys = self._names.keys(claim.key)
        return Call.of(script("renew"), keys, claim.owner, claim.owner, str(grant.fence), _milliseconds(claim.ttl))

    def _timeout(self, ttl: float) -> float:
        """An answer that comes after half of the ttl is hardly worth waiting for."""
        longest = self._options.answer_timeout
        return longest if ttl >= 2 * longest else max(ttl / 2, min(SHORTEST_TIMEOUT, longest))

    async def _look(self, keys: Keys) -> Any:
        return await self._router.execute(Call.of(script("inspect"), keys, None), self._options.answer_timeout)


def _renewed(grant: Grant, reply: Any) -> Grant | Loss | BackendError:
    if isinstance(reply, BackendError):
        return reply
    if reply[0] == 1:
        return grant if grant.since is None and grant.ttl == grant.claim.ttl else _whole(grant)
    return _broken(reply) if reply[0] == 2 else TAKEN


def _broken(reply: Any) -> Loss:
    """An operator's order, in the same words for a renewal and for a release."""
    return Loss(LossReason.BROKEN, reply[1].decode(errors="replace"))


def _whole(grant: Grant) -> Grant:
    """What was handed over for a claim window is granted for its whole ttl from now on."""
    return Grant(grant.claim, grant.fence, grant.claim.ttl, None, grant.abandoned, grant.spare)


def _place_lifetime(claim: Claim) -> float:
    """How long a place in the queue lives without a call."""
    return min(claim.ttl, LONGEST_PLACE)


def _milliseconds(seconds: float) -> str:
    return "0" if seconds == 0 else str(max(1, round(seconds * 1000)))
