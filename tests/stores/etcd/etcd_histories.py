"""Tests that are coroutines, and what runs them to their end: the simulated time of a bench, or a driver."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    History = Callable[..., Coroutine[Any, Any, None]]

__all__ = ["driven", "simulated"]


def _run_by(fixture: str) -> Callable[[History], Callable[..., None]]:
    def decorate(history: History) -> Callable[..., None]:
        @wraps(history)
        def test(**given: Any) -> None:
            given[fixture].run(history(**given))

        return test

    return decorate


simulated = _run_by("bench")
driven = _run_by("driver")
