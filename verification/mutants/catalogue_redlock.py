"""Known bugs that named tests must see: redlock."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verification.mutants.catalogue import Mutant

__all__ = ["REDLOCK_MUTANTS"]

REDLOCK_MUTANTS: tuple[Mutant, ...] = ()
