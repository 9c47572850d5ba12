"""Turns of many waiters in one query: waiters that check their turn while a query is under way share the next one.

One of them, the leader, sends the query for all that have come by then; the others wait for their part of the answer.
So a client has one such query under way however many wait in it, and a single waiter is not delayed.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from leasehold._backends.postgres.statements import Answer, array, key_bytes
from leasehold.errors import BackendError, BackendUnavailable, ClientClosed, OutcomeUnknown

if TYPE_CHECKING:
    from leasehold._backends.postgres.executor import Executor
    from leasehold._backends.postgres.statements import Statements
    from leasehold.spi import Runtime, Signal
    from leasehold.values import Claim

__all__ = ["TurnBatch"]

MOST = 1000  # claims in one query
LOOK_AGAIN = 0.5  # how often a waiter whose query is under way checks whether it has to lead
PATIENCE = 4  # answer timeouts: for its own query, and for the one before


class _Turn:
    __slots__ = ("answer", "channel", "claim", "error", "signal", "until")

    def __init__(self, claim: Claim, channel: bytes | None, signal: Signal, until: float) -> None:
        self.claim = claim
        self.channel = channel
        self.signal = signal
        self.until = until
        self.answer: Answer | None = None
        self.error: BackendError | ClientClosed | None = None


class TurnBatch:
    """The turns that are to be queried in one client."""

    def __init__(self, executor: Executor, statements: Statements, runtime: Runtime, timeout: float) -> None:
        self._executor = executor
        self._sql = statements
        self._runtime = runtime
        self._timeout = timeout
        self._open: deque[_Turn] = deque()
        self._guard = runtime.guard()
        self._leader: _Turn | None = None  # its caller sends the query for all
        self._busy_until = 0.0  # after that the leader counts as interrupted

    async def query(self, claim: Claim, channel: bytes | None, until: float = math.inf) -> Answer:
        """Whether it is this claim's turn, as of after this call; keeps its place alive."""
        turn = _Turn(claim, channel, self._runtime.signal(), until)
        self._open.append(turn)
        try:
            return await self._answered(turn)
        finally:
            if self._leader is turn:  # interrupted before its query
                self._leader = None
            with suppress(ValueError):  # not in it, if a leader has taken it
                self._open.remove(turn)

    async def _answered(self, turn: _Turn) -> Answer:
        deadline = min(self._runtime.now() + PATIENCE * self._timeout, turn.until)
        while True:
            turn.signal.clear()
            if turn.error is not None:
                raise turn.error
            if turn.answer is not None:
                return turn.answer
            if self._runtime.now() < turn.until and self._may_lead(turn):
                await self._lead(turn)
            elif self._runtime.now() >= deadline:
                raise self._too_late(turn)
            else:
                await self._runtime.wait(turn.signal, min(deadline, self._runtime.now() + LOOK_AGAIN))

    def _too_late(self, turn: _Turn) -> BackendError:
        label = self._executor.label
        if turn in self._open:
            return BackendUnavailable(f"{label}: timed out before the queue could be queried", backend=label)
        return OutcomeUnknown(f"{label}: timed out waiting for a batched queue query", backend=label)

    def _may_lead(self, turn: _Turn) -> bool:
        now = self._runtime.now()
        with self._guard:
            if self._leader is not None and now < self._busy_until:
                return False
            self._leader, self._busy_until = turn, now + 2 * self._timeout
        return True

    async def _lead(self, own: _Turn) -> None:
        """Query all turns that are open by now; after that the next one leads."""
        if own not in self._open:  # taken by a leader that was interrupted before its query
            self._open.appendleft(own)
        turns = self._take()
        try:
            if turns:  # none, if a leader that counted as interrupted has taken them meanwhile
                await self._query_all(turns, own.until)
        except (BackendError, ClientClosed) as error:
            in_a_hurry = isinstance(error, BackendError) and self._runtime.now() >= own.until
            for turn in [own] if in_a_hurry else turns:  # those with more time are queried again
                turn.error = type(error)(str(error), backend=error.backend)  # each raises its own
        finally:
            self._leader = None
            for turn in turns:
                if turn.answer is None and turn.error is None:
                    self._open.appendleft(turn)  # interrupted: the next leader queries it
                turn.signal.set()
            with suppress(IndexError):
                self._open[0].signal.set()

    def _take(self) -> list[_Turn]:
        """All open turns, in order. Other threads may take some at the same time, or remove their own."""
        taken: list[_Turn] = []
        with suppress(IndexError):
            while len(taken) < MOST:
                taken.append(self._open.popleft())
        return taken

    async def _query_all(self, turns: list[_Turn], until: float) -> None:
        sent = self._runtime.now()
        if len(turns) == 1:
            claim, channel = turns[0].claim, turns[0].channel
            values = (key_bytes(claim.key), claim.owner.encode(), channel)
            rows = await self._executor.execute(self._sql.turn, values, until)
            turns[0].answer = Answer(rows, sent)
            return
        keys = array((key_bytes(turn.claim.key) for turn in turns), binary=True)
        owners = array(turn.claim.owner.encode() for turn in turns)
        rows = await self._executor.execute(self._sql.turns, (keys, owners, turns[-1].channel), until)
        found = {rows.get_value(row, 0): row for row in range(rows.ntuples)}
        for turn in turns:
            turn.answer = Answer(rows, sent, found.get(turn.claim.owner.encode()), 1)
