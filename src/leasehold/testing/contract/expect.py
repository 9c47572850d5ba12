"""Small words for what a store answered, so that a wrong answer reads well."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from leasehold.spi import Place
from leasehold.values import Grant, Loss, Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold.testing.contract.lab import Lab

__all__ = ["granted", "lost", "placed", "raises", "refused", "signalled"]

E = TypeVar("E", bound=BaseException)


def granted(answer: object) -> Grant:
    """The answer is a grant."""
    assert isinstance(answer, Grant), f"expected a grant, got {answer!r}"
    return answer


def refused(answer: object) -> Refusal:
    """The answer is a refusal."""
    assert isinstance(answer, Refusal), f"expected a refusal, got {answer!r}"
    return answer


def placed(answer: object) -> Place:
    """The answer is a place in the queue."""
    assert isinstance(answer, Place), f"expected a place in the queue, got {answer!r}"
    return answer


def lost(answer: object) -> Loss:
    """The answer is a loss."""
    assert isinstance(answer, Loss), f"expected a loss, got {answer!r}"
    return answer


async def raises(kind: type[E], awaitable: Awaitable[object]) -> E:
    """The error that it ends with."""
    try:
        result = await awaitable
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, got {result!r}")


async def signalled(
    lab: Lab,
    act: Callable[[Grant], Awaitable[object]],
    what: str,
    *,
    before: Callable[[Grant], Awaitable[object]] | None = None,
) -> None:
    """The first waiter is woken when a lock is freed like this, and then has it.

    A place may also be woken because its store is ready to call it only now. So the flag is lowered before the store is
    asked, never after; and all is done twice, because the second time only what is meant is left to be woken by.
    """
    store = lab.queueing()
    for name in ("first", "second"):
        holding = granted(await store.join(lab.claim(name, ttl=lab.ttl * 20)))
        place = placed(await store.join(lab.claim(name, ttl=lab.ttl * 20)))
        if before is not None:
            await before(holding)
        place.signal.clear()
        place = placed(await store.turn(place))
        await act(holding)
        await lab.eventually(place.signal.is_set, f"the {what} is signalled")
        granted(await store.turn(place))
