"""What travels can be lost, late, or applied when nobody waits for it any more."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold._backends.memory import MemoryStore
from leasehold.errors import BackendUnavailable, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, Mode, Refusal
from verification.simulation import SimRuntime, World
from verification.simulation.network import Link, NetworkStore
from verification.simulation.world import Process

CLAIM = Claim("k", "o1", 5.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
RIVAL = Claim("k", "o2", 5.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 2))


class Nobody:
    """An observer who looks away."""

    def sent(self, process: Process, verb: str, subject: Any) -> None:
        pass

    def applied(self, link: Link, verb: str, subject: Any, answer: Any, sent_at: float) -> None:
        pass

    def failed(self, process: Process, verb: str, subject: Any) -> None:
        pass


class Bench:
    def __init__(self, **weather: float) -> None:
        self.world = World(5)
        self.process = self.world.process("p")
        self.runtime = SimRuntime(self.process)
        self.link = Link(self.process, timeout=0.5)
        for name, value in weather.items():
            setattr(self.link.weather, name, value)
        self.store = MemoryStore(clock=lambda: self.world.now)
        self.backend: Any = NetworkStore(self.store, self.link, Nobody(), queueing=True).open_backend(self.runtime)

    def run(self, coroutine: Any) -> Any:
        return self.world.run(coroutine, self.process)


def test_in_calm_weather_answers_come_and_take_time() -> None:
    bench = Bench()
    assert isinstance(bench.run(bench.backend.try_acquire(CLAIM)), Grant)
    assert 0 < bench.world.now < 0.05


def test_a_refused_connection_is_surely_not_applied() -> None:
    bench = Bench(refuse=1.0)
    with pytest.raises(BackendUnavailable):
        bench.run(bench.backend.try_acquire(CLAIM))
    assert bench.store.size == 0


@pytest.mark.parametrize(("weather", "applied"), [("request_loss", 0), ("reply_loss", 1)])
def test_a_loss_is_an_unknown_outcome(weather: str, applied: int) -> None:
    bench = Bench(**{weather: 1.0})
    with pytest.raises(OutcomeUnknown):
        bench.run(bench.backend.try_acquire(CLAIM))
    assert bench.store.size == applied


def test_a_cut_link_is_silent() -> None:
    bench = Bench()
    bench.link.cut = True
    with pytest.raises(OutcomeUnknown):
        bench.run(bench.backend.try_acquire(CLAIM))
    assert bench.world.now >= 0.5
    assert bench.store.size == 0


def test_a_zombie_is_applied_after_its_caller_gave_up_and_crashed() -> None:
    bench = Bench(zombie=1.0)
    observer = bench.world.process("observer")
    bench.process.spawn(bench.backend.try_acquire(CLAIM), "caller")

    async def wait() -> None:
        await SimRuntime(observer).sleep(0.2)
        bench.process.crash()
        assert bench.store.size == 0
        await SimRuntime(observer).sleep(3)

    bench.world.run(wait(), observer)
    assert isinstance(bench.store.try_acquire(RIVAL), Refusal)
    bench.world.end()


@pytest.mark.parametrize(("loss", "rung"), [(0.0, True), (1.0, False)])
def test_a_signal_travels_and_can_be_lost(loss: float, rung: bool) -> None:
    bench = Bench()
    grant = bench.store.try_acquire(RIVAL)
    assert isinstance(grant, Grant)

    async def stand() -> tuple[bool, bool]:
        place = await bench.backend.join(CLAIM)
        assert isinstance(place, Place)
        bench.link.weather.reply_loss = loss
        bench.store.release(grant)
        return place.signal.is_set(), await bench.runtime.wait(place.signal, bench.runtime.now() + 1)

    assert bench.run(stand()) == (False, rung)
