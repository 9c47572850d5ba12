"""SQL stores and Redis answer as the memory store; the long form is `python -m verification.differential`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold._backends.memory import MemoryStore
from verification.differential import KNOWN, STORES, MemoryRig, compare, rig_for

if TYPE_CHECKING:
    from leasehold.spi import Store
    from leasehold.values import Claim

SEEDS = {"sqlite": 60, "postgresql": 20, "mysql": 10, "redis": 30}


@pytest.mark.parametrize("store", STORES)
def test_the_store_answers_as_the_memory_store_does(store: str) -> None:
    with rig_for(store) as rig:
        report = compare(rig, range(SEEDS[store]))
    assert not report.differences, "\n".join(map(str, report.differences))
    assert report.requests > 50 * SEEDS[store]


class ForgetfulStore(MemoryStore):
    """It does not refuse the late copy of a withdrawn claim."""

    def withdraw(self, claim: Claim, *, doubt: bool = True) -> None:
        super().withdraw(claim, doubt=doubt and claim.ttl > 5.0)


class ForgetfulRig(MemoryRig):
    """A store with one rule less than the oracle."""

    name = "forgetful"

    def __init__(self) -> None:
        super().__init__()
        self._forgetful = ForgetfulStore(self._clock.now)

    def open_store(self) -> Store:
        return self._forgetful


def test_a_store_with_another_rule_is_noticed_and_the_way_there_is_short() -> None:
    report = compare(ForgetfulRig(), range(40))
    assert report.differences
    assert min(len(found.steps) for found in report.differences) <= 4
    assert {found.steps[-1].verb for found in report.differences} <= {"join", "try_acquire"}


def test_the_memory_store_agrees_with_itself() -> None:
    assert compare(MemoryRig(), range(20), known=()).differences == []


def test_known_differences_have_names_of_their_own_and_stores_that_exist() -> None:
    names = [row.name for row in KNOWN]
    assert len(set(names)) == len(names)
    assert all(row.stores <= set(STORES) for row in KNOWN)
