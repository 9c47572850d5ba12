"""The options of a Redis URL that are ours; the others are redis-py's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.backends.redis.keys import DEFAULT_PREFIX
from leasehold.errors import ConfigurationError
from leasehold.values import MAX_FENCE

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["OURS", "Options"]

OURS = ("acks", "acks_timeout", "command_timeout", "compat", "fence_floor", "prefix", "strict")
HOLD_OFF = 30.0


@dataclass(frozen=True, slots=True)
class Options:
    """How the store behaves.

    `prefix`: in front of every key. `compat`: exclude a fleet that locks with `SET NX PX` under the same keys.
    `acks`: how many replicas must have a grant, within `acks_timeout`. `strict`: seconds for which nothing is granted
    after the server's process changed. `fence_floor`: fences start above it. `command_timeout`: how long one answer may
    take.
    """

    prefix: str = DEFAULT_PREFIX
    compat: bool = False
    acks: int = 0
    acks_timeout: float = 1.0
    strict: float = 0.0
    fence_floor: int = 0
    command_timeout: float = 2.0

    @property
    def hands_over(self) -> bool:
        """Whether a release may make the next waiter the holder.

        Not in compat mode: without a gap the other fleet would starve. Not where the grantee's own call has to prove
        something.
        """
        return not (self.compat or self.acks or self.strict)

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Options:
        """From a URL's query."""
        strict = given.get("strict", "0")
        options = cls(
            prefix=given.get("prefix", "" if _flag(given, "compat") else DEFAULT_PREFIX),
            compat=_flag(given, "compat"),
            acks=_whole(given, "acks", 0, 100),
            acks_timeout=_seconds(given, "acks_timeout", 1.0),
            strict=HOLD_OFF if strict == "1" else _seconds(given, "strict", 0.0, least=0.0),
            fence_floor=_whole(given, "fence_floor", 0, MAX_FENCE - 2**40),
            command_timeout=_seconds(given, "command_timeout", 2.0),
        )
        if len(options.prefix) > 128 or not options.prefix.isprintable():
            raise ConfigurationError("prefix must be at most 128 printable characters")
        if not options.compat and ("{" in options.prefix or "}" in options.prefix):
            raise ConfigurationError("prefix must not contain braces: they would put all locks into one slot")
        return options


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "0").lower()
    if text not in ("0", "1", "true", "false", "yes", "no"):
        raise ConfigurationError(f"{name} must be 0 or 1, not {text!r}")
    return text in ("1", "true", "yes")


def _whole(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdigit() and int(text) <= most):
        raise ConfigurationError(f"{name} must be a whole number from 0 to {most}, not {text!r}")
    return int(text)


def _seconds(given: Mapping[str, str], name: str, default: float, least: float = 0.01) -> float:
    text = given.get(name, str(default))
    try:
        value = float(text.removesuffix("s"))
    except ValueError:
        value = -1.0
    if not least <= value <= 3600:
        raise ConfigurationError(f"{name} must be a number of seconds from {least:g} to 3600, not {text!r}")
    return value
