"""Many waiters of one client share queries for their turns, and none depends on the leader that sends them."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.errors import BackendUnavailable, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, Mode

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator


class CountingClient:
    """A held lock, and claims of one client that wait for it; its queries for turns are counted and can be held up."""

    def __init__(self, database: str) -> None:
        self.runtime = AsyncioRuntime()
        backend: Any = find_store(database).open_backend(self.runtime)
        self.backend = backend
        self.asked: list[str] = []
        self.gates: dict[int, asyncio.Event] = {}  # answers that are held up, by the number of the request
        turns = self.backend._turns
        self._execute = turns._executor.execute
        turns._executor = self
        self.label = "test"

    async def execute(self, statement: Any, values: Any, _until: float = math.inf) -> Any:
        self.asked.append(statement.name.decode())
        gate = self.gates.get(len(self.asked))
        answer = await self._execute(statement, values)
        if gate is not None:
            await gate.wait()
        return answer

    async def until_asked(self, number: int) -> None:
        while len(self.asked) < number:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)

    def claim(self) -> Claim:
        return Claim("ns:x", self.runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))

    async def stand(self, number: int) -> tuple[Grant, list[Place]]:
        first = await self.backend.join(self.claim())
        places = [await self.backend.join(self.claim()) for _ in range(number)]
        assert isinstance(first, Grant)
        return first, places


def play(client: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(client, 60))


def test_waiters_that_check_together_share_queries_and_each_gets_its_own_answer(database: str) -> None:
    async def history() -> None:
        client = CountingClient(database)
        _, places = await client.stand(30)
        answers = await asyncio.gather(*(client.backend.turn(place) for place in places))
        assert [answer.ahead for answer in answers] == list(range(30))
        assert [answer.claim for answer in answers] == [place.claim for place in places]
        assert len(client.asked) <= 3
        await client.backend.close()

    play(history())


def test_answer_is_never_older_than_the_question(database: str) -> None:
    """The lock was released after the first had been answered; whoever asks then must not get that answer."""

    async def history() -> None:
        client = CountingClient(database)
        held, (first, second) = await client.stand(2)
        client.gates[1] = asyncio.Event()
        early = asyncio.create_task(client.backend.turn(first))
        await client.until_asked(1)
        assert await client.backend.release(held)
        late = asyncio.create_task(client.backend.turn(first))
        other = asyncio.create_task(client.backend.turn(second))
        await asyncio.sleep(0.1)
        client.gates[1].set()
        assert isinstance(await early, Place)
        assert isinstance(await late, Grant)
        assert isinstance(await other, Place)
        await client.backend.close()

    play(history())


def test_leader_may_be_cancelled(database: str) -> None:
    async def history() -> None:
        client = CountingClient(database)
        _, places = await client.stand(5)
        client.gates = {1: asyncio.Event(), 2: asyncio.Event()}
        alone, leader, *others = [asyncio.create_task(client.backend.turn(place)) for place in places]
        await client.until_asked(1)
        client.gates[1].set()
        await client.until_asked(2)
        leader.cancel()
        await asyncio.wait([leader])
        assert leader.cancelled()
        answers = await asyncio.gather(alone, *others)
        assert [answer.ahead for answer in answers] == [0, 2, 3, 4]
        assert client.asked == ["leasehold_turn", "leasehold_turns", "leasehold_turns"]
        await client.backend.close()

    play(history())


def test_leader_that_was_interrupted_before_its_query_does_not_hold_up_the_others(database: str) -> None:
    async def history() -> None:
        client = CountingClient(database)
        _, (first, second) = await client.stand(2)
        turns = client.backend._turns
        lead = turns._lead

        async def interrupted(question: Any) -> None:  # as by a signal handler that raises
            turns._lead = lead
            raise KeyboardInterrupt

        turns._lead = interrupted
        try:
            await client.backend.turn(first)
        except KeyboardInterrupt:
            answer = await asyncio.wait_for(client.backend.turn(second), 2 * turns._timeout / 3)
            assert isinstance(answer, Place)
        else:
            raise AssertionError("it was not interrupted")
        await client.backend.close()

    play(history())


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_leaders_that_count_as_interrupted_and_come_back_disturb_no_other(database: str) -> None:
    """With no patience at all each takes over from each: turns are taken, and taken back, at any time."""
    runtime = ThreadRuntime()
    backend: Any = find_store(database).open_backend(runtime)
    turns = backend._turns
    claim = Claim("ns:x", runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
    run(turns.query(claim, None))
    turns._timeout = 0.00001
    errors: list[Exception] = []
    end, answers = time.monotonic() + 4, []

    def ask() -> None:
        while time.monotonic() < end and not errors:
            try:
                answers.append(run(turns.query(claim, None)))
            except (OutcomeUnknown, BackendUnavailable) as error:
                if "timed out" not in str(error):  # as it should be, after so short a time, taken by a leader or not
                    errors.append(error)
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert answers
    run(backend.close())
