"""Values of labels, kept to a number that a monitoring system can bear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._face.lock_spec import is_whole
from leasehold._log import logger
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["OTHER", "UNGROUPED", "BoundedValues", "backend_of"]

UNGROUPED = "ungrouped"  # locks that were made without a group
OTHER = "other"  # what came after the limit was reached


class BoundedValues:
    """At most so many different values; what comes later counts as `other`. A warning says so once."""

    def __init__(self, most: int, known: Iterable[str] = ()) -> None:
        if not is_whole(most) or most < 1:
            raise ConfigurationError(f"max_groups must be a whole number from 1, not {most!r}")
        if isinstance(known, str):
            raise ConfigurationError("groups takes several groups, not one text: write groups=[...]")
        self._most = most
        self.known: dict[str, str] = {UNGROUPED: UNGROUPED, **{value: value for value in known}}
        self._warned = False
        if len(self.known) > most + 1:
            raise ConfigurationError(f"{len(self.known) - 1} groups are more than max_groups={most}; raise it")

    def of(self, value: str | None) -> str:
        """The value itself, or `other`."""
        if value is None:
            return UNGROUPED
        known = self.known.get(value)
        return self._admit(value) if known is None else known

    def _admit(self, value: str) -> str:
        if len(self.known) <= self._most:
            return self.known.setdefault(value, value)
        if not self._warned:
            self._warned = True
            logger.warning(
                "telemetry has seen more than %d groups, and counts further ones as %r; a group is what many locks "
                "have in common, such as 'order:{id}', and not the name of one",
                self._most,
                OTHER,
            )
        return OTHER


def backend_of(store: object) -> str:
    """The kind of a store in a word: the folder that its class is in, such as `redis`; of others, the class itself."""
    kind = type(store)
    parts = kind.__module__.split(".")
    if parts[:2] == ["leasehold", "_backends"]:
        return parts[2]
    return kind.__name__.removesuffix("Store").lower() or "custom"
