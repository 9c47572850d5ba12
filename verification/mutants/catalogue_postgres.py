"""Known bugs that named tests must see: postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verification.mutants.catalogue import Mutant

__all__ = ["POSTGRES_MUTANTS"]

POSTGRES_MUTANTS: tuple[Mutant, ...] = ()
