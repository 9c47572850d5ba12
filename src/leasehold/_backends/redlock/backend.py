"""Redlock with a fence: a lock is held when a majority of independent nodes has voted for it.

The rules of one node are in `scripts/`, the decisions over all of them in `_core.quorum`; this file polls and counts.
All nodes are polled at once, and the answer is known as soon as a majority agrees or no majority is possible any more.
Votes that come after a success are kept, because they make the lock stronger. After a failure every vote is revoked,
on the same connection after the request, so that a late one is revoked as well.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from leasehold._backends.redlock.acquire import Votes, enough_votes, may_have_voted_for
from leasehold._backends.redlock.fences import RevokedNumbers
from leasehold._backends.redlock.inspect import require_majority, sweep, to_states
from leasehold._backends.redlock.release import freed, yes_or_no
from leasehold._backends.redlock.renew import Renewals, enough_renewals
from leasehold._backends.redlock.wire import SILENCE_LIMIT
from leasehold._core.quorum import WINDOW, higher_number, validity_left
from leasehold.errors import BackendError, ClientClosed, ConfigurationError, OutcomeUnknown
from leasehold.values import Capability, Claim, Grant, LockState, Loss, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from leasehold._backends.redlock.calls import Call, Calls
    from leasehold._backends.redlock.nodes import Nodes, Poll
    from leasehold._backends.redlock.options import Options
    from leasehold.findings import Finding
    from leasehold.spi import Runtime

__all__ = ["RedlockBackend"]

ROUNDS = 3  # proposals in one attempt, when only the number was refused
UNHURRIED = 2.0  # for operators
RENEWAL_EACH = 0.0002  # more time for each grant that is renewed along

logger = logging.getLogger("leasehold")
P = ParamSpec("P")
T = TypeVar("T")


def _ends_with_the_client(
    verb: Callable[Concatenate[RedlockBackend, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[RedlockBackend, P], Coroutine[Any, Any, T]]:
    """A call that was under way when the client was closed raises that: we closed its connections ourselves."""

    @wraps(verb)
    async def ending(self: RedlockBackend, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await verb(self, *args, **kwargs)
        except BackendError:
            if self._nodes.is_closed:
                raise ClientClosed(backend=self.label) from None
            raise

    return ending


class RedlockBackend:
    """A client's connections to the nodes of one store."""

    capabilities = frozenset({Capability.EXCLUSIVE, Capability.FENCING, Capability.INSPECT})

    def __init__(self, nodes: Nodes, calls: Calls, options: Options, runtime: Runtime) -> None:
        self.label = nodes.label
        self._nodes = nodes
        self._calls = calls
        self._options = options
        self._runtime = runtime
        self._names = [str(node) for node in nodes.all]
        self._ahead: dict[str, int] = {}  # numbers that an operator raised ahead of the clock
        self._revoked = RevokedNumbers()

    # --- claims

    @_ends_with_the_client
    async def try_acquire(self, claim: Claim, until: float = math.inf, /) -> Grant | Refusal:
        self._check_ttl(claim.ttl)
        await self._nodes.ready(until)
        known = [self._ahead.get(claim.key, 0), *self._revoked.numbers(claim.owner)]
        number = higher_number(self._nodes.number(), known)
        for round_ in range(ROUNDS):
            poll = await self._nodes.poll(
                self._ballot(claim, number), enough_votes, self._options.answer_timeout, until
            )
            try:
                votes = Votes(poll.answers, self._names)
                self._note_times(poll.answers)
                is_stale = votes.granted in self._revoked.numbers(claim.owner)
                grant = None if is_stale else self._granted(claim, votes, poll, again=round_ > 0)
                self._revoke_votes(claim, poll, number, None if grant is None else grant.fence)
                if grant is not None:
                    return grant
            finally:
                poll.finish()
            if votes.was_withdrawn:
                return Refusal(claim.key)
            if (not votes.wants_another_number and not is_stale) or self._runtime.now() >= until:
                break
            number = self._higher(claim.key, [*votes.highest, *self._revoked.numbers(claim.owner)])
        if votes.is_refused:
            return votes.refusal(claim.key)
        raise votes.failure(self.label, WINDOW)

    def _check_ttl(self, ttl: float) -> None:
        if ttl > self._options.max_ttl:
            raise ConfigurationError(
                f"a ttl of {ttl:g} s is longer than max_ttl={self._options.max_ttl:g} of this store: a node that "
                "lost its memory votes again after max_ttl. Put a larger ?max_ttl= into the URL of every client",
                backend=self.label,
            )

    def _granted(self, claim: Claim, votes: Votes, poll: Poll, *, again: bool) -> Grant | None:
        """The grant, if a majority voted and enough of its time is left."""
        fence = votes.granted
        if fence is None or validity_left(claim.ttl, self._runtime.now() - poll.sent) <= 0:
            return None
        return Grant(claim, fence, claim.ttl, poll.sent if again else None, None)

    def _revoke_votes(self, claim: Claim, poll: Poll, proposed: int, kept: int | None) -> None:
        """Revoke every vote but those for the number that was granted.

        What is revoked once must never be granted: some release of it can arrive at any time from now on.
        """
        now, earlier = self._runtime.now(), self._revoked.numbers(claim.owner)
        for request, answer in zip(poll.requests, poll.answers, strict=True):
            for number in may_have_voted_for(answer, proposed, earlier):
                if number != kept:
                    self._revoked.note(claim.owner, number, now, now + claim.ttl + SILENCE_LIMIT)
                    request.send_after(self._calls.release(claim, number, poll.sent))

    def _ballot(self, claim: Claim, number: int) -> Call:
        """The call for votes. A node that missed that numbers were raised gets that first, or it would refuse."""
        vote = self._calls.vote(claim, number)
        if claim.key not in self._ahead:
            return vote
        return vote.after(self._calls.raise_fence(claim.key, number - 1))

    def _higher(self, key: str, known: Sequence[int]) -> int:
        """A number above all that was seen. One that lies ahead of the clocks was raised, and is remembered."""
        now = self._nodes.number()
        number = higher_number(now, [*known, self._ahead.get(key, 0)])
        if number > now + WINDOW * 1_000_000:
            if len(self._ahead) > 1000:
                self._ahead.clear()
            self._ahead[key] = number
        return number

    def _note_times(self, answers: Sequence[Any]) -> None:
        now = self._runtime.now()
        for node, answer in zip(self._nodes.all, answers, strict=True):
            if type(answer) is list:
                node.offset = answer[1] / 1_000_000 - now

    @_ends_with_the_client
    async def renew(self, grants: Sequence[Grant], until: float = math.inf, /) -> Sequence[Grant | Loss | BackendError]:
        """Nodes that lost a lock get it back, if a majority confirmed it."""
        if not grants:
            return []
        await self._nodes.ready(until)
        timeout = self._options.answer_timeout + RENEWAL_EACH * len(grants)
        poll = await self._nodes.poll(self._calls.renew(grants), enough_renewals(len(grants)), timeout, until)
        try:
            renewals = Renewals(poll.answers, self.label)
            answers = [renewals.outcome(place, grant) for place, grant in enumerate(grants)]
            elapsed = self._runtime.now() - poll.sent
            for place, grant in enumerate(grants):
                if isinstance(answers[place], Grant) and validity_left(grant.claim.ttl, elapsed) > 0:
                    for node in renewals.to_repair(place):
                        poll.requests[node].send_after(self._calls.repair(grant))
        finally:
            poll.finish()
        if self._nodes.is_closed and any(isinstance(answer, BackendError) for answer in answers):
            raise ClientClosed(backend=self.label)
        return answers

    @_ends_with_the_client
    async def release(self, grant: Grant, until: float = math.inf, /) -> bool | Loss:
        await self._nodes.ready(until)
        call = self._calls.release(grant.claim, grant.fence, self._runtime.now())
        poll = await self._nodes.poll(call, yes_or_no, self._options.answer_timeout, until)
        poll.finish()
        return freed(poll.answers, self.label)

    @_ends_with_the_client
    async def withdraw(self, claim: Claim, until: float = math.inf, /, *, doubt: bool = True) -> None:
        """Every node that can be reached must get it, or a late vote would stay there without a holder.

        A node that has not answered everything is in doubt, whatever the caller knows of the claim as a whole: a grant
        does not wait for all votes, and a repair is not waited for at all.
        """
        await self._nodes.ready(until)
        marking = self._calls.withdraw(claim, self._runtime.now())
        call = marking if doubt else self._calls.withdraw(claim, self._runtime.now(), mark=False)
        poll = await self._nodes.poll(call, _all, self._options.answer_timeout, until)
        if not doubt:
            for request, answer in zip(poll.requests, poll.answers, strict=True):
                if answer != 1 or request.node.may_receive_late(claim.ttl):
                    request.send_after(marking)
        poll.finish()
        confirmed = sum(answer == 1 for answer in poll.answers)
        if confirmed < self._nodes.majority:
            raise OutcomeUnknown(
                f"{self.label}: {confirmed} of {len(self._nodes)} nodes confirmed the withdrawal, and "
                f"{self._nodes.majority} are needed",
                backend=self.label,
            )

    # --- operators

    @_ends_with_the_client
    async def inspect(self, key: str) -> LockState | None:
        await self._nodes.ready()
        poll = await self._nodes.poll(self._calls.look([key]), _all, self._options.answer_timeout)
        poll.finish()
        require_majority(poll.answers, self._names, self.label)
        states = to_states([key], poll.answers)
        return states[0] if states else None

    @_ends_with_the_client
    async def list(self, prefix: str) -> Sequence[LockState]:
        """Goes through all keys of every node, page by page; the nodes stay responsive."""
        await self._nodes.ready()
        found = await sweep(self._nodes, self._calls, prefix, self._runtime)
        return [state for key in sorted(found) for state in to_states([key], found[key])]

    @_ends_with_the_client
    async def break_(self, key: str, fence: int, reason: str, *, now: bool) -> bool:
        await self._nodes.ready()
        call = self._calls.break_(key, fence, reason, now=now)
        poll = await self._nodes.poll(call, _all, UNHURRIED)
        poll.finish()
        require_majority(poll.answers, self._names, self.label)
        answered = [answer for answer in poll.answers if isinstance(answer, int)]
        broken, missing = answered.count(1), len(poll.answers) - len(answered)
        return broken > 0 and broken + missing >= self._nodes.majority

    @_ends_with_the_client
    async def raise_fence(self, key: str, fence: int) -> int:
        """Waits for all nodes: one that missed it may let a lower number pass."""
        await self._nodes.ready()
        poll = await self._nodes.poll(self._calls.raise_fence(key, fence), _all, UNHURRIED)
        poll.finish()
        require_majority(poll.answers, self._names, self.label)
        answered = [answer for answer in poll.answers if isinstance(answer, int)]
        if len(answered) < len(self._nodes):
            logger.warning(
                "%s: the fence was raised on %d of %d nodes; raise it again when all of them are back",
                self.label, len(answered), len(self._nodes),
            )  # fmt: skip
        self._ahead[key] = max(self._ahead.get(key, 0), max(answered) + 1)
        return max(answered)

    async def examine(self) -> Sequence[Finding]:
        from leasehold._backends.redlock.doctor import examine  # noqa: PLC0415 - it is rarely needed

        with suppress(BackendError):  # the findings name the nodes that are missing, and why
            await self._nodes.ready()
        return await examine(self._nodes, self._options)

    async def close(self) -> None:
        await self._nodes.close()


def _all(answers: Sequence[Any]) -> bool:
    return all(answer is not None for answer in answers)
