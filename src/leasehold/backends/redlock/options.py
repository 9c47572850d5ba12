"""The options of a Redlock URL that are ours; the others are redis-py's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OF_CLIENTS", "OURS", "Options"]

OF_CLIENTS = ("max_ttl", "node_timeout")  # what goes with clients of the user's own, which know their TLS
OURS = (*OF_CLIENTS, "tls")


@dataclass(frozen=True, slots=True)
class Options:
    """How the store behaves.

    `max_ttl`: the longest ttl that any client may use; a node that lost its memory sits out for so long, and more. All
    clients must say the same. `node_timeout`: how long one round waits for the answers of the nodes.
    """

    max_ttl: float = 30.0
    node_timeout: float = 0.05

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Options:
        """From a URL's query."""
        return cls(
            max_ttl=_seconds(given, "max_ttl", 30.0, 86_400.0),
            node_timeout=_seconds(given, "node_timeout", 0.05, 10.0),
        )


def _seconds(given: Mapping[str, str], name: str, default: float, most: float) -> float:
    text = given.get(name, str(default))
    try:
        value = float(text.removesuffix("s"))
    except ValueError:
        value = -1.0
    if not 0.001 <= value <= most:
        raise ConfigurationError(f"{name} must be a number of seconds from 0.001 to {most:g}, not {text!r}")
    return value
