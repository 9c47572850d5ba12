"""Known bugs that named tests must see: zookeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verification.mutants.catalogue import Mutant

__all__ = ["ZOOKEEPER_MUTANTS"]

ZOOKEEPER_MUTANTS: tuple[Mutant, ...] = ()
