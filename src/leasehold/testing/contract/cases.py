"""All cases, in reading order: importing a group adds its cases."""

from leasehold.testing.contract import (  # noqa: F401, I001 - the order is the reading order
    ownership,
    expiry,
    fences,
    modes,
    queueing,
    waiting,
    leases,
    blocks,
    crowd,
    trouble,
    timeouts,
    operators,
    records,
    names,
    bad_input,
    life,
    interruption,
    processes,
)
from leasehold.testing.contract.registry import CASES, Case

__all__ = ["CASES", "Case"]
