"""The list of cases, filled by the decorator `pattern_case` in the modules of each pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing.contract.registry import Case

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.testing.contract.registry import Body
    from leasehold.values import Capability

__all__ = ["CASES", "pattern_case"]

CASES: list[Case] = []


def pattern_case(*needs: Capability, processes: bool = False) -> Callable[[Body], Body]:
    """Add a coroutine to the suite; its module is the group, its name the sentence that it checks."""

    def add(body: Body) -> Body:
        group = body.__module__.rpartition(".")[2]
        CASES.append(Case(group, body.__name__, needs, processes, "core", body))
        return body

    return add
