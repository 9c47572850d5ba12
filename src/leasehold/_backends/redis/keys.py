"""How a lock's key is written in Redis. All keys of one lock lie in one hash slot, and no name can choose the slot.

`leasehold:{app:payment}` is the holder key; `leasehold:{app:payment}:s` and the like are the others. Inside the braces
`%`, `{` and `}` are written as `%25`, `%7B` and `%7D`: an empty or nested tag would let a name choose its slot.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from leasehold.kit.pauses import OWNER as PAUSED

if TYPE_CHECKING:
    from leasehold._backends.redis.calls import CallTemplate

__all__ = ["DEFAULT_PREFIX", "Keys", "Names", "glob_escaped"]

DEFAULT_PREFIX = "leasehold:"
PARTS = ("s", "q", "w", "z", "d")
KNOWN_NAMES = 2048  # whose keys are cached, with the templates of their calls


class Keys:
    """The keys of one lock; `packed` is the first six, as the protocol sends them.

    `templates` caches packed calls for this lock: by step of an acquire, with the terms that each was packed for.
    """

    __slots__ = ("base", "mark", "packed", "record", "slot_key", "templates")

    def __init__(self, holder: str, base: str) -> None:
        self.slot_key = holder.encode()
        self.base = base
        self.mark = f"{base}:x:".encode()  # and an owner
        self.record = f"{base}:r".encode()
        self.packed = b"".join([_packed(key.encode()) for key in (holder, *(f"{base}:{part}" for part in PARTS))])
        self.templates: dict[str, tuple[object, CallTemplate]] = {}


class Names:
    """From the core's keys to Redis' and back.

    In compat mode the holder key is the bare name behind the prefix, as another program writes it; the other keys are
    put into its slot. For a name with braces that is impossible: its base ends in `}%`, and a Cluster refuses it.
    """

    def __init__(self, prefix: str, *, compat: bool) -> None:
        self._prefix = prefix
        self._compat = compat
        self.keys = lru_cache(KNOWN_NAMES)(self._keys)

    def _keys(self, key: str) -> Keys:
        if self._compat:
            holder = self._prefix + key.partition(":")[2]
            braces = "{" in holder or "}" in holder
            return Keys(
                holder, f"{DEFAULT_PREFIX}{{{_quoted(holder)}}}%" if braces else f"{DEFAULT_PREFIX}{{{holder}}}"
            )
        base = f"{self._prefix}{{{_quoted(key)}}}"
        return Keys(base, base)

    def pattern(self, prefix: str) -> str:
        """A glob that matches every key of the locks whose key starts with `prefix`."""
        if self._compat:  # names with braces have two forms, so `key_of` compares the prefix
            return f"{glob_escaped(DEFAULT_PREFIX)}{{*"
        return f"{glob_escaped(self._prefix)}{{{glob_escaped(_quoted(prefix))}*"

    def key_of(self, found: str, prefix: str) -> str | None:
        """The core's key behind a key that the pattern found; None for a key without holders or waiters in it."""
        front = DEFAULT_PREFIX if self._compat else self._prefix
        body, brace, part = found[len(front) + 1 :].rpartition("}")
        if self._compat:
            return self._compat_key(body, part, prefix)
        return _unquoted(body) if brace and part in ("", ":q", f":x:{PAUSED}") else None

    def _compat_key(self, body: str, part: str, prefix: str) -> str | None:
        """The holder key may be the other program's, so only our own state and queue count."""
        holder = _unquoted(body) if part.startswith("%") else body
        namespace, _, start = prefix.partition(":")
        if part.removeprefix("%") not in (":s", ":q", f":x:{PAUSED}") or not holder.startswith(self._prefix + start):
            return None
        return f"{namespace}:{holder[len(self._prefix) :]}"


def glob_escaped(text: str) -> str:
    """The text so that it matches only itself in a SCAN pattern."""
    return "".join(f"\\{character}" if character in "*?[]\\^-" else character for character in text)


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")


def _unquoted(text: str) -> str:
    return text.replace("%7D", "}").replace("%7B", "{").replace("%25", "%")


def _packed(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)
