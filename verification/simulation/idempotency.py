"""Idempotency keys as a workload, and the account that says whether they kept their promise.

The promise of the lease mode: the work of a key may happen more than once, but at most one result is accepted, and from
then on every attempt gets that one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leasehold._face.client import AsyncClient
    from verification.simulation.history import History
    from verification.simulation.runtime import SimRuntime

__all__ = ["KEYS", "Results", "attempt_once"]

KEYS = ("k1", "k2")


class Results:
    """What is known about the result of each key: from the attempt that stored it, and from those that replayed it."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._known: dict[str, Any] = {}

    def completed(self, key: str, result: Any) -> None:
        """An attempt was told that its result is stored; another may have replayed it before."""
        if self._known.setdefault(key, result) != result:
            self._history.violate("two results of one key", f"{key}: {self._known[key]} and {result}")
        self._history.counts["completions"] += 1

    def replayed(self, key: str, result: Any) -> None:
        """An attempt got the result of an earlier one."""
        if self._known.setdefault(key, result) != result:
            self._history.violate("a completed result changed", f"{key}: {self._known[key]}, and then {result}")
        self._history.counts["replays"] += 1


async def attempt_once(client: AsyncClient, runtime: SimRuntime, results: Results, ttl: float) -> None:
    """One attempt at a key, which completes, is left without a result, or takes so long that it is succeeded."""
    world = runtime.world
    random = world.random
    keys = client.idempotency(
        "work",
        ttl=ttl,
        wait=random.choice([None, ttl, 3 * ttl]),
        on_expired="run" if random.random() < 0.9 else "refuse",
        keep="1h",
    )
    async with keys.attempt(random.choice(KEYS)) as attempt:
        if attempt.replayed:
            results.replayed(attempt.key, attempt.result)
            return
        number = world.next_number()
        await runtime.sleep(random.random() ** 2 * ttl)
        if random.random() < 0.7:
            await attempt.complete(number)
            results.completed(attempt.key, number)
