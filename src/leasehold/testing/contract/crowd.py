"""A crowd: many workers of few clients, who wait for long, for a moment or not at all, on names that come again."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from leasehold.errors import AcquireTimeout
from leasehold.testing.contract.registry import store_case

if TYPE_CHECKING:
    from leasehold._face.client import AsyncClient
    from leasehold._face.lease import AsyncLease
    from leasehold.testing.contract.lab import Lab

CLIENTS, WORKERS, ROUNDS = 3, 12, 12
NAMES = ("a", "b", "c")


class _Crowd:
    """Who is inside, by name, and what went wrong."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._inside: dict[str, AsyncLease] = {}
        self._highest = dict.fromkeys(NAMES, 0)
        self.grants = 0
        self.wrong: list[str] = []

    async def work(self, client: AsyncClient, seed: int) -> None:
        random = Random(seed)  # noqa: S311 - the same crowd every time
        for _ in range(ROUNDS):
            name = random.choice(NAMES)
            lease = await self._ask(client, name, random.random())
            if lease is not None:
                self._enter(name, lease)
                await self._lab.driver.breathe()
                self._inside.pop(name, None)
                if await lease.release() is not True and not lease.lost.is_set():
                    self.wrong.append(f"{name}: {lease.fence} was gone at its release")

    async def _ask(self, client: AsyncClient, name: str, way: float) -> AsyncLease | None:
        lock = client.lock(name, ttl=self._lab.ttl * 20)
        if way < 0.4:
            return await lock.try_acquire()
        try:
            return await lock.acquire(timeout=self._lab.ttl * (0.01 if way < 0.7 else 100))
        except AcquireTimeout:
            return None

    def _enter(self, name: str, lease: AsyncLease) -> None:
        self.grants += 1
        other = self._inside.get(name)
        if other is not None and not other.lost.is_set():
            self.wrong.append(f"{name}: {other.fence} and {lease.fence} held it together")
        if lease.fence <= self._highest[name]:
            self.wrong.append(f"{name}: {lease.fence} came after {self._highest[name]}")
        self._inside[name], self._highest[name] = lease, lease.fence


@store_case()
async def a_crowd_of_few_clients_is_never_inside_together(lab: Lab) -> None:
    clients = [lab.client() for _ in range(CLIENTS)]
    crowd = _Crowd(lab)
    with lab.running_clock():
        workers = [lab.spawn(crowd.work(clients[seed % CLIENTS], seed)) for seed in range(WORKERS)]
        for worker in workers:
            await worker.join()
    assert not crowd.wrong, crowd.wrong[:5]
    assert crowd.grants > WORKERS
