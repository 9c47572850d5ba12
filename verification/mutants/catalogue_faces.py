"""Known bugs that named tests must see: faces."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["FACES_MUTANTS"]

_LOCK = "lock.py"

_MUTEX_TESTS = ("tests/faces/test_mutex.py",)

FACES_MUTANTS: tuple[Mutant, ...] = (
    # --- mutexes
    Mutant(
        "mutex-of-nobody",
        "a mutex does not know which thread holds which lease: a late release frees the next holder",
        _LOCK,
        "            if entry[0] is current:\n",
        "            if entry[1] is not None:\n",
        _MUTEX_TESTS,
    ),
    Mutant(
        "mutex-keeps-a-loss",
        "after a loss a mutex stays held for its owner: every later release raises the old loss, the new lease stays",
        _LOCK,
        "        is_held, is_over = lease.remaining() > 0, True\n",
        "        is_held, is_over = lease.remaining() > 0, loss is None\n",
        _MUTEX_TESTS,
    ),
)
