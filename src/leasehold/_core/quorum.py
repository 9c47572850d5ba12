"""Decisions over the answers of several independent nodes: plain functions over values, no waiting, no sending.

The rules were searched state by state, see `verification/models`: two majorities share a node, so a node that gives its
vote only to a number higher than all it has seen keeps numbers unique and rising, whatever the clients propose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._core.validity import believed_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "WINDOW",
    "decided",
    "duplicates",
    "first_number",
    "higher_number",
    "majority",
    "median",
    "same_number",
    "sits_out",
    "validity_left",
    "waits_for",
]

WINDOW = 2.0  # seconds: a node votes only for numbers so near to its own clock, either way


def majority(nodes: int) -> int:
    """How many of so many nodes any two groups of this size share one of. An even number is no safer than one less."""
    return nodes // 2 + 1


def decided(yes: int, no: int, nodes: int) -> bool:
    """Whether no further answer can change the outcome: a majority voted yes, or can not be reached any more."""
    return yes >= majority(nodes) or nodes - no < majority(nodes)


def validity_left(ttl: float, elapsed: float) -> float:
    """For how long a grant may be trusted whose request was sent so long ago; not positive: not at all."""
    return believed_until(-elapsed, ttl)


def median(values: Sequence[float]) -> float:
    """The middle one; of two middle ones the lower, so that a node has it. A minority cannot move it far."""
    return sorted(values)[(len(values) - 1) // 2]


def first_number(offsets: Sequence[float], now: float) -> int:
    """What to propose first: the median of the nodes' clocks, in microseconds, never the caller's own wall clock.

    An offset is a node's time minus the caller's monotonic time, as of the node's last answer.
    """
    return int((median(offsets) + now) * 1_000_000)


def higher_number(proposed: int, known: Iterable[int]) -> int:
    """What to propose after refusals: higher than all that the nodes have seen."""
    return max(proposed, 1 + max(known, default=0))


def same_number(votes: Sequence[int], nodes: int) -> int | None:
    """The number that a majority of the nodes has voted for, among votes for several; None if there is none."""
    return next((number for number in dict.fromkeys(votes) if votes.count(number) >= majority(nodes)), None)


def sits_out(max_ttl: float, window: float = WINDOW) -> float:
    """How long a node that lost what it knew must not vote.

    A vote it forgot is over after the longest ttl, and a number it forgot is out of the window of every later one
    after twice the window.
    """
    return max_ttl + 2 * window


def waits_for(left: Sequence[float], nodes: int) -> float | None:
    """How long until a majority of so many nodes can vote, by the time that each known one still sits out.

    None if no time brings a majority of those that are known.
    """
    needed = majority(nodes)
    return sorted(left)[needed - 1] if len(left) >= needed else None


def duplicates(identities: Mapping[str, str | None]) -> list[list[str]]:
    """Groups of nodes that are one and the same server, by the identity that each reports; None is unknown."""
    groups: dict[str, list[str]] = {}
    for node, identity in identities.items():
        if identity is not None:
            groups.setdefault(identity, []).append(node)
    return [group for group in groups.values() if len(group) > 1]
