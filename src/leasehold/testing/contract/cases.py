"""All cases, in reading order: importing a group adds its cases."""

from leasehold.testing.contract import (  # noqa: F401, I001 - the order is the reading order
    ownership,
    expiry,
    fences,
    modes,
    queueing,
    lingering,
    ranges,
    waiting,
    leases,
    blocks,
    crowd,
    failures,
    timeouts,
    operators,
    pauses,
    records,
    names,
    bad_input,
    life,
    interruption,
    processes,
)
from leasehold.testing.contract.registry import CASES, Case

STORE_CASES = [case for case in CASES if case.subject == "store"]

__all__ = ["CASES", "STORE_CASES", "Case"]
