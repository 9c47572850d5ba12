"""Asking whose turn it is, for many at once: those who ask while a request is under way share the next one.

One of those who ask does it for all who have come by then; the others wait for their part of the answer. So however
many wait in one client, it has one such request under way, and alone nobody waits for company.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from leasehold.backends.postgres.statements import Answer, array, key_bytes
from leasehold.errors import BackendError, BackendUnavailable, ClientClosed, OutcomeUnknown

if TYPE_CHECKING:
    from leasehold.backends.postgres.pool import Asking
    from leasehold.backends.postgres.statements import Statements
    from leasehold.spi import Runtime, Signal
    from leasehold.values import Claim

__all__ = ["Turns"]

MOST = 1000  # questions in one request
LOOK_AGAIN = 0.5  # how often one whose question is under way looks for itself
PATIENCE = 4  # answer timeouts: one's own request, and the one before it


class _Question:
    __slots__ = ("answer", "bell", "claim", "error", "signal", "until")

    def __init__(self, claim: Claim, bell: bytes | None, signal: Signal, until: float) -> None:
        self.claim = claim
        self.bell = bell
        self.signal = signal
        self.until = until
        self.answer: Answer | None = None
        self.error: BackendError | ClientClosed | None = None


class Turns:
    """The questions of one client."""

    def __init__(self, asking: Asking, statements: Statements, runtime: Runtime, timeout: float) -> None:
        self._asking = asking
        self._sql = statements
        self._runtime = runtime
        self._timeout = timeout
        self._open: deque[_Question] = deque()
        self._guard = runtime.guard()
        self._leader: _Question | None = None  # whoever has this one asks for all
        self._busy_until = 0.0  # after that it is taken for gone

    async def ask(self, claim: Claim, bell: bytes | None, until: float = math.inf) -> Answer:
        """Whose turn it is, as of after this call; keeps the place alive."""
        question = _Question(claim, bell, self._runtime.signal(), until)
        self._open.append(question)
        try:
            return await self._answered(question)
        finally:
            if self._leader is question:  # interrupted before it could ask
                self._leader = None
            with suppress(ValueError):  # somebody has taken it
                self._open.remove(question)

    async def _answered(self, question: _Question) -> Answer:
        deadline = min(self._runtime.now() + PATIENCE * self._timeout, question.until)
        while True:
            question.signal.clear()
            if question.error is not None:
                raise question.error
            if question.answer is not None:
                return question.answer
            if self._runtime.now() < question.until and self._may_lead(question):
                await self._lead(question)
            elif self._runtime.now() >= deadline:
                raise self._too_late(question)
            else:
                await self._runtime.wait(question.signal, min(deadline, self._runtime.now() + LOOK_AGAIN))

    def _too_late(self, question: _Question) -> BackendError:
        if question in self._open:
            return BackendUnavailable("timed out before the queue could be asked", backend=self._asking.label)
        return OutcomeUnknown("timed out waiting for a batched queue query", backend=self._asking.label)

    def _may_lead(self, question: _Question) -> bool:
        now = self._runtime.now()
        with self._guard:
            if self._leader is not None and now < self._busy_until:
                return False
            self._leader, self._busy_until = question, now + 2 * self._timeout
        return True

    async def _lead(self, own: _Question) -> None:
        """Ask for all who have come by now; then the next one leads."""
        if own not in self._open:  # whoever had taken it was interrupted before it could ask
            self._open.appendleft(own)
        questions = self._take()
        try:
            if questions:  # one that was taken for gone may have been quicker, with our own question too
                await self._ask_for(questions, own.until)
        except (BackendError, ClientClosed) as error:
            hurry = isinstance(error, BackendError) and self._runtime.now() >= own.until
            for question in [own] if hurry else questions:  # those who have more time ask again
                question.error = type(error)(str(error), backend=error.backend)  # each raises its own
        finally:
            self._leader = None
            for question in questions:
                if question.answer is None and question.error is None:
                    self._open.appendleft(question)  # interrupted: somebody else has to ask
                question.signal.set()
            with suppress(IndexError):
                self._open[0].signal.set()

    def _take(self) -> list[_Question]:
        """All open questions, in order. Others may take some at the same time, or their own back."""
        taken: list[_Question] = []
        with suppress(IndexError):
            while len(taken) < MOST:
                taken.append(self._open.popleft())
        return taken

    async def _ask_for(self, questions: list[_Question], until: float) -> None:
        sent = self._runtime.now()
        if len(questions) == 1:
            claim, bell = questions[0].claim, questions[0].bell
            values = (key_bytes(claim.key), claim.owner.encode(), bell)
            rows = await self._asking.ask(self._sql.turn, values, until)
            questions[0].answer = Answer(rows, sent)
            return
        keys = array((key_bytes(question.claim.key) for question in questions), binary=True)
        owners = array(question.claim.owner.encode() for question in questions)
        rows = await self._asking.ask(self._sql.turns, (keys, owners, questions[-1].bell), until)
        there = {rows.get_value(row, 0): row for row in range(rows.ntuples)}
        for question in questions:
            question.answer = Answer(rows, sent, there.get(question.claim.owner.encode()), 1)
