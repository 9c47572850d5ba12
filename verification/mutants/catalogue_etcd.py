"""Known bugs that named tests must see: etcd."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verification.mutants.catalogue import Mutant

__all__ = ["ETCD_MUTANTS"]

ETCD_MUTANTS: tuple[Mutant, ...] = ()
