"""Asking several nodes at once with a task each, for every runtime that can spawn and wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold.spi import Request, Runtime

__all__ = ["scatter_over_tasks"]

T = TypeVar("T")


async def scatter_over_tasks(
    runtime: Runtime,
    requests: Sequence[Request[T]],
    enough: Callable[[Sequence[T | Exception | None]], bool],
    deadline: float,
) -> Sequence[T | Exception | None]:
    """Spawn every request and collect answers until enough, all, or the deadline."""
    answers: list[T | Exception | None] = [None] * len(requests)
    answered = [False] * len(requests)
    signal = runtime.signal()

    async def perform(place: int, request: Request[T]) -> None:
        try:
            answers[place] = await request.perform()
        except Exception as error:  # noqa: BLE001 - it is this request's answer
            answers[place] = error
        answered[place] = True
        signal.set()

    for place, request in enumerate(requests):
        runtime.spawn(perform(place, request), "leasehold scatter")
    while not all(answered) and not enough(answers):
        if not await runtime.wait(signal, deadline):
            break
        signal.clear()
    return list(answers)
