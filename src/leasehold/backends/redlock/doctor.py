"""How well a set of nodes is set up for Redlock."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leasehold.backends.redlock.nodes import Nodes
    from leasehold.backends.redlock.options import Options
    from leasehold.findings import Finding

__all__ = ["examine"]


async def examine(nodes: Nodes, options: Options) -> list[Finding]:
    """Look at every node, and at all of them together."""
    del nodes, options
    return []
