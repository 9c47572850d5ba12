"""The list of cases, filled by the decorators `store_case` and `core_case` in the modules of each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold.testing.contract.lab import Lab
    from leasehold.values import Capability

    Body = Callable[[Lab], Awaitable[None]]

__all__ = ["CASES", "Case", "core_case", "store_case"]

Subject = Literal["store", "core"]


@dataclass(frozen=True, slots=True)
class Case:
    """One promise, checked.

    `subject` is what decides whether it is kept. "store": the store does, so every store runs it. "core": the core and
    its faces do, whatever the store; one store on a clock turned by hand and one or two in real time are enough.
    """

    group: str
    name: str
    needs: tuple[Capability, ...]
    processes: bool
    subject: Subject
    body: Body

    def __str__(self) -> str:
        return f"{self.group}:{self.name}"


CASES: list[Case] = []


def store_case(*needs: Capability, processes: bool = False) -> Callable[[Body], Body]:
    """Add a coroutine to the contract whose promise the store keeps; its module is the group, its name the sentence."""
    return _adder("store", needs, processes=processes)


def core_case(*needs: Capability) -> Callable[[Body], Body]:
    """Add a coroutine to the contract whose promise the core keeps on any store."""
    return _adder("core", needs, processes=False)


def _adder(subject: Subject, needs: tuple[Capability, ...], *, processes: bool) -> Callable[[Body], Body]:
    def add(body: Body) -> Body:
        group = body.__module__.rpartition(".")[2]
        CASES.append(Case(group, body.__name__, needs, processes, subject, body))
        return body

    return add
