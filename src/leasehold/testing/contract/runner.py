"""Runs one case over one store and one driver.

A case that fails in real time is believed only if the machine kept pace with it: this process, those that the case
started, and the store's server.
Where it did not, the case is run again with a unit of time that is twice as long, until it passes, or fails although
the machine kept pace, or the unit has been doubled three times. A store that is wrong fails at every unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.testing.contract.absent import check_absent
from leasehold.testing.contract.lab import Lab
from leasehold.testing.contract.pace import Pace

if TYPE_CHECKING:
    from leasehold.testing.contract.cases import Case
    from leasehold.testing.contract.drivers import Driver
    from leasehold.testing.contract.harness import Harness

__all__ = ["check"]

SCALES = (1, 2, 4, 8)
TOO_LATE = 0.1  # of the unit of time: so much of it may pass without the process getting the processor, or in one call


def check(case: Case, harness: Harness, driver: Driver) -> None:
    """Run the case; for a capability that the store does not declare, check that asking for it is refused."""
    for scale in SCALES:
        with Pace() as pace:
            failure = _run(case, harness, driver, scale, pace)
        if failure is None:
            return
        again = harness.again()
        unit = harness.ttl * scale
        if again is None or max(pace.worst, pace.slowest) < TOO_LATE * unit or scale == SCALES[-1]:
            failure.add_note(
                f"the machine was late by {pace.worst:.3f} s at most, and the store took {pace.slowest:.3f} s"
                f" for a call at most, in units of {unit:g} s"
            )
            raise failure
        harness, driver = again, type(driver)()


def _run(case: Case, harness: Harness, driver: Driver, scale: int, pace: Pace) -> Exception | None:
    """The case once; the exception that it failed with."""
    harness.start(driver)
    try:
        if case.processes:
            harness.url_for_children()
        driver.run(_perform(case, Lab(harness, driver, scale, pace)))
    except Exception as failure:
        return failure
    finally:
        harness.stop()
    return None


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
