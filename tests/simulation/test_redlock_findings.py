"""What the simulation found on Redlock, each as a small history of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.redlock.backend import RedlockBackend
from leasehold._backends.redlock.calls import LOCK
from verification.simulation import SimRuntime, World
from verification.simulation.batches import Batches
from verification.simulation.checkers import Beliefs
from verification.simulation.history import History
from verification.simulation.leaders import Leaders
from verification.simulation.network import Fate, Link
from verification.simulation.redlock.stage import RedlockStage
from verification.simulation.schedule import Schedule
from verification.simulation.workloads import CLEANED, Actor, Scene, Site

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from verification.simulation.redlock.wire import NodeLink

TTL = 10.0
KEY = "leasehold:one"


class Split:
    """A claim that is refused: two nodes vote, one has a rival's lock, one sits out, and one votes and is not heard."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.history = History(self.world)
        schedule = Schedule()
        self.stage = stage = RedlockStage(self.world, self.history, schedule)
        stage.prepare(TTL, queueing=False)
        beliefs, leaders = Beliefs(self.world, self.history, stage.model), Leaders(self.history, stage.model, 1.0)
        self.scene = Scene(
            self.history,
            schedule,
            stage.model,
            beliefs,
            leaders,
            Batches(self.world, self.history, stage.model),
            TTL,
            ("one",),
            fenced={},
            plain={},
            queueing=False,
            capabilities=stage.capabilities,
        )
        self.link = Link(self.world.process("p"), timeout=0.5)
        self.runtime = SimRuntime(self.link.process)
        self.site = Site(self.scene, self.runtime, self.link, stage.store(self.link))
        self.actor = Actor(self.scene, self.site, 1)

    def run(self, history: Coroutine[Any, Any, None]) -> list[str]:
        """What was violated."""
        try:
            self.world.run(history, self.link.process)
        finally:
            self.world.end()
        return [f"{each.check}: {each.detail}" for each in self.history.violations]

    def voted(self) -> list[str]:
        """The nodes that have a vote for this process."""
        names = []
        for server in self.stage._servers:
            owner = server.database.run([b"HGET", (LOCK + KEY).encode(), b"o"])
            if owner is not None and owner != b"rival":
                names.append(server.name)
        return names

    async def be_refused(self) -> None:
        lease = await self.site.client.lock("other").acquire()  # it is connected to every node
        await lease.release()
        await self.runtime.sleep(0.1)
        _, forgetful, _, _, rivals = self.stage._servers
        forgetful.restart_empty()
        ends = b"%d" % (rivals.now_us // 1000 + 10_000)
        rivals.database.run([b"HSET", (LOCK + KEY).encode(), b"o", b"rival", b"f", b"1", b"e", ends, b"c", b"1"])
        way: NodeLink = self.stage._ways[0]
        fate = way.fate

        def lost() -> Fate:
            way.fate = fate  # type: ignore[method-assign]  # of the next ones
            self.link.trouble(self.link.timeout)
            return Fate.REPLY_LOST

        way.fate = lost  # type: ignore[method-assign]  # of the next request
        lock = self.site.client.lock("one", ttl=TTL)
        assert await self.actor._ask(lock, lock.try_acquire(), patient=False) is None


@pytest.mark.parametrize("seed", range(6))
def test_the_votes_of_a_refused_claim_are_looked_at_when_the_node_that_was_not_heard_can_be(seed: int) -> None:
    """They were at the end of the call, when what takes them back was under way: seed 779 of the grants."""
    split = Split(seed)

    async def history() -> None:
        await split.be_refused()
        assert len(split.voted()) == 3, "a majority voted, and the client knows of two"
        await split.actor._well_for(CLEANED + 0.5)

    assert split.run(history()) == []


def test_votes_of_a_refused_claim_that_nobody_takes_back_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedlockBackend, "_revoke_votes", lambda *_: None)
    split = Split(0)

    async def history() -> None:
        await split.be_refused()
        await split.actor._well_for(CLEANED + 0.5)

    (found,) = split.run(history())
    assert found.startswith("left behind by a failed acquire: one ")
    assert found.endswith("busy, and not cleaned up")


@pytest.mark.parametrize("seed", range(6))
def test_a_client_that_rests_after_a_refusal_takes_back_the_vote_that_it_did_not_hear_of(seed: int) -> None:
    """It did so with its next call only: the node stayed locked for the ttl, for a claim that was over."""
    split = Split(seed)

    async def history() -> None:
        await split.be_refused()
        await split.runtime.sleep(0.5)
        assert split.voted() == []

    assert split.run(history()) == []
