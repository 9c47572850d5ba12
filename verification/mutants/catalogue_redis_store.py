"""Known bugs that named tests must see: redis store."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verification.mutants.catalogue import Mutant

__all__ = ["REDIS_STORE_MUTANTS"]

REDIS_STORE_MUTANTS: tuple[Mutant, ...] = ()
