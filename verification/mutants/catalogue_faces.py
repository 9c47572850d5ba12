"""Known bugs that named tests must see: faces."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verification.mutants.catalogue import Mutant

__all__ = ["FACES_MUTANTS"]

FACES_MUTANTS: tuple[Mutant, ...] = ()
