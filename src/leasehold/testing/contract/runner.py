"""Runs one case over one store and one driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing.contract.absent import check_absent
from leasehold.testing.contract.lab import Lab

if TYPE_CHECKING:
    from leasehold.testing.contract.cases import Case
    from leasehold.testing.contract.drivers import Driver
    from leasehold.testing.contract.harness import Harness

__all__ = ["check"]


def check(case: Case, harness: Harness, driver: Driver) -> None:
    """Run the case; for a capability that the store does not declare, check that asking for it is refused."""
    harness.start(driver)
    try:
        if case.processes:
            harness.url_for_children()
        lab = Lab(harness, driver)
        driver.run(_perform(case, lab))
    finally:
        harness.stop()


async def _perform(case: Case, lab: Lab) -> None:
    lab.prepare()
    missing = [need for need in case.needs if need not in lab.capabilities]
    try:
        if missing:
            await check_absent(lab, missing[0])
        else:
            await case.body(lab)
    finally:
        await lab.clean_up()
