"""Known bugs that named tests must see: cli."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verification.mutants.catalogue import Mutant

__all__ = ["CLI_MUTANTS"]

CLI_MUTANTS: tuple[Mutant, ...] = ()
