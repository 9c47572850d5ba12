"""The block that says who is in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.cli.durations import spoken
from leasehold.cli.output import printable, who
from leasehold.errors import LeaseholdError

if TYPE_CHECKING:
    from leasehold.blocking import Client
    from leasehold.values import Holding, LockState

__all__ = ["conflict_block", "holding_lines"]


def conflict_block(client: Client, name: str) -> str:
    """Who holds the lock, since when, with which fence, and how many wait."""
    try:
        state = client.inspect(name)
    except LeaseholdError:
        state = None  # the store cannot say; busy is busy
    lines = [f"{printable(repr(name))} is busy", *_lines(state), f"  store    {client.store}"]
    return "\n".join(lines)


def _lines(state: LockState | None) -> list[str]:
    if state is None:
        return ["  holder   gone by now"]
    lines = [line for holding in state.holdings for line in holding_lines(holding)]
    return [*lines, f"  queue    {len(state.waiting)} waiting"]


def holding_lines(holding: Holding) -> list[str]:
    """One holder as lines of a block."""
    lines = [
        f"  holder   {printable(who(holding.holder))}",
        f"  since    {spoken(holding.held_for)} ago",
        f"  fence    {holding.fence}",
    ]
    if holding.holder.reason:
        lines.append(f"  reason   {printable(holding.holder.reason)}")
    if holding.broken is not None:
        lines.append(f"  broken   {printable(holding.broken)}; kept until its ttl ends in {spoken(holding.expires_in)}")
    elif holding.cooling:
        lines.append(f"  released, but kept for another {spoken(holding.expires_in)} (--min-hold)")
    return lines
