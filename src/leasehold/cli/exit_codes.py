"""What each exit code means. The table in the manual is drawn from here.

The numbers follow sysexits(3) and timeout(1) where those have one; 79 is the first number above sysexits.
"""

from __future__ import annotations

__all__ = [
    "ACCESS_REFUSED",
    "BUSY",
    "CONFIGURATION",
    "FREE",
    "INTERNAL",
    "LEASE_LOST",
    "MAX_HOLD",
    "MEANINGS",
    "NOT_EXECUTABLE",
    "NOT_FOUND",
    "OK",
    "PROBLEM",
    "UNREACHABLE",
    "USAGE",
    "for_error",
    "for_signal",
]

OK = 0
FREE = 1  # `info`: it has no holder
PROBLEM = 1  # `doctor` found one; `break` ended no lease
USAGE = 64
UNREACHABLE = 69
INTERNAL = 70
BUSY = 75
ACCESS_REFUSED = 77
CONFIGURATION = 78
LEASE_LOST = 79
MAX_HOLD = 124
NOT_EXECUTABLE = 126
NOT_FOUND = 127

MEANINGS = {
    "the command's own": "it ran under the lock; 128+N if signal N ended it",
    "128+N": "also when signal N interrupted the wait for the lock: 130 for Ctrl-C, 143 for TERM",
    str(USAGE): "bad usage, or a caller of the command already holds the lock",
    str(UNREACHABLE): "the store cannot be reached",
    str(INTERNAL): "internal error of leasehold",
    str(BUSY): "the lock is busy, or the wait ran out (-E N overrides; --on-conflict skip gives 0)",
    str(ACCESS_REFUSED): "the store refused access: rights, version or schema",
    str(CONFIGURATION): "bad configuration or store URL, or the name is in use as another kind of lock",
    str(LEASE_LOST): "the lease was lost before the command ended, whatever its status",
    str(MAX_HOLD): "--max-hold passed and the command was stopped",
    str(NOT_EXECUTABLE): "the command is not executable",
    str(NOT_FOUND): "the command was not found",
}


def for_signal(number: int) -> int:
    """As shells do when a signal ended a program."""
    return 128 + number


def for_error(error: BaseException) -> int:
    """The code for an error of the library."""
    from leasehold import errors  # noqa: PLC0415 - not needed when all goes well

    if isinstance(error, errors.AcquireTimeout):
        return BUSY
    if isinstance(error, errors.LeaseLost):
        return LEASE_LOST
    if isinstance(error, errors.BackendRejected):
        return ACCESS_REFUSED
    if isinstance(error, errors.BackendError):
        return UNREACHABLE
    if isinstance(error, errors.ConfigurationError | errors.UnsupportedCapability | errors.Conflict):
        return CONFIGURATION
    return INTERNAL
