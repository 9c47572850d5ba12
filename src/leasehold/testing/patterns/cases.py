"""All cases of the pattern suite, in reading order: importing a group adds its cases."""

from leasehold.testing.patterns import (  # noqa: F401 - the order is the reading order
    busy,
    caches,
    elections,
    idempotency,
    job_operators,
    jobs,
    leaving,
    partitions,
)
from leasehold.testing.patterns.registry import CASES

__all__ = ["CASES"]
