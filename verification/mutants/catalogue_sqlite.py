"""Known bugs that named tests must see: sqlite."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verification.mutants.catalogue import Mutant

__all__ = ["SQLITE_MUTANTS"]

SQLITE_MUTANTS: tuple[Mutant, ...] = ()
