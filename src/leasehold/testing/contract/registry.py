"""The list of cases, filled by the decorator `case` in the modules of each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leasehold.testing.contract.lab import Lab
    from leasehold.values import Capability

__all__ = ["CASES", "Case", "case"]


@dataclass(frozen=True, slots=True)
class Case:
    """One promise, checked.

    `core`: what it checks is decided by the core and its faces, whatever the store; one store in a clock turned by hand
    and one or two in real time are enough for it. The others depend on what the store does.
    """

    group: str
    name: str
    needs: tuple[Capability, ...]
    processes: bool
    core: bool
    body: Callable[[Lab], Awaitable[None]]

    def __str__(self) -> str:
        return f"{self.group}:{self.name}"


CASES: list[Case] = []


def case(
    *needs: Capability, processes: bool = False, core: bool = False
) -> Callable[[Callable[[Lab], Awaitable[None]]], Callable[[Lab], Awaitable[None]]]:
    """Add a coroutine to the contract; its module is the group, its name the sentence."""

    def add(body: Callable[[Lab], Awaitable[None]]) -> Callable[[Lab], Awaitable[None]]:
        group = body.__module__.rpartition(".")[2]
        CASES.append(Case(group, body.__name__, needs, processes, core, body))
        return body

    return add
