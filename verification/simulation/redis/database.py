"""What a Redis server keeps: strings, hashes and sorted sets under keys that can expire, and the commands on them.

It knows the semantics of the commands that locks use, and nothing of locks, scripts or networks. A command sees one
instant, `now_ms`, which its owner sets: in a script time stands still. What this file says is compared with real
servers by `conformance`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["OK", "CommandError", "Database", "Status", "is_write", "needs_memory", "number_text"]


class Status(bytes):
    """A short answer that is not a value, such as OK."""


class CommandError(Exception):
    """The server's own words; the first one says what kind it is."""


OK = Status(b"OK")
_WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


class Database:
    """All keys of one server."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._values: dict[bytes, Any] = {}
        self._ends: dict[bytes, int] = {}  # the last millisecond in which the key is there

    def run(self, words: Sequence[bytes]) -> Any:
        """Do one command; raises `CommandError`."""
        name = words[0].upper()
        command = _COMMANDS.get(name)
        if command is None:
            raise CommandError(f"ERR unknown command '{words[0].decode(errors='replace')}'")
        try:
            return command(self, *words[1:])
        except TypeError as error:
            if "argument" not in str(error):
                raise
            raise CommandError(f"ERR wrong number of arguments for '{name.decode().lower()}' command") from None

    def present(self) -> list[bytes]:
        """Every key that is there now."""
        return [key for key in list(self._values) if self.find(key) is not None]

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()
        self._ends.clear()

    # --- for the commands

    def find(self, key: bytes) -> Any:
        """The value, or None; a key whose time is over is gone."""
        value = self._values.get(key)
        if value is not None and self._ends.get(key, self.now_ms) < self.now_ms:
            self.remove(key)
            return None
        return value

    def typed(self, key: bytes, kind: type) -> Any:
        """The value of this type, or None."""
        value = self.find(key)
        if value is not None and type(value) is not kind:
            raise CommandError(_WRONG_TYPE)
        return value

    def made(self, key: bytes, kind: type) -> Any:
        """The value of this type; a new one if there is none."""
        value = self.typed(key, kind)
        if value is None:
            value = self._values[key] = kind()
        return value

    def put(self, key: bytes, value: Any) -> None:
        """Replace the value and forget when it ends."""
        self._values[key] = value
        self._ends.pop(key, None)

    def remove(self, key: bytes) -> None:
        """Let it be gone."""
        self._values.pop(key, None)
        self._ends.pop(key, None)

    def remove_if_empty(self, key: bytes) -> None:
        """Hashes and sorted sets that are empty do not exist."""
        if not self._values.get(key, True):
            self.remove(key)

    def ends(self, key: bytes) -> int | None:
        """When it ends, if it does."""
        return self._ends.get(key)

    def end_at(self, key: bytes, when_ms: int) -> None:
        """Let it end; at once if that moment has come."""
        if when_ms <= self.now_ms:
            self.remove(key)
        else:
            self._ends[key] = when_ms


class _Hash(dict[bytes, bytes]):
    """Fields."""


class _Sorted(dict[bytes, float]):
    """Members and their scores."""

    def in_order(self) -> list[tuple[bytes, float]]:
        return sorted(self.items(), key=lambda item: (item[1], item[0]))


# --- strings and keys


def _get(db: Database, key: bytes) -> bytes | None:
    return db.typed(key, bytes)  # type: ignore[no-any-return]


def _set(db: Database, key: bytes, value: bytes, *options: bytes) -> Any:
    words = [option.upper() for option in options]
    if b"NX" in words and db.find(key) is not None:
        return None
    end = None
    if b"PX" in words:
        end = _whole(options[words.index(b"PX") + 1])
        if end <= 0:
            raise CommandError("ERR invalid expire time in 'set' command")
    db.put(key, bytes(value))
    if end is not None:
        db.end_at(key, db.now_ms + end)
    return OK


def _del(db: Database, *keys: bytes) -> int:
    present = [key for key in dict.fromkeys(keys) if db.find(key) is not None]
    for key in present:
        db.remove(key)
    return len(present)


def _exists(db: Database, *keys: bytes) -> int:
    return sum(db.find(key) is not None for key in keys)


def _pexpire(db: Database, key: bytes, milliseconds: bytes) -> int:
    return _pexpireat(db, key, b"%d" % (db.now_ms + _whole(milliseconds)))


def _pexpireat(db: Database, key: bytes, when_ms: bytes) -> int:
    when = _whole(when_ms)
    if db.find(key) is None:
        return 0
    db.end_at(key, when)
    return 1


def _pttl(db: Database, key: bytes) -> int:
    if db.find(key) is None:
        return -2
    end = db.ends(key)
    return -1 if end is None else max(0, end - db.now_ms)


def _scan(db: Database, _cursor: bytes, *options: bytes) -> list[Any]:
    """Everything in one page."""
    words = [option.upper() for option in options]
    pattern = options[words.index(b"MATCH") + 1] if b"MATCH" in words else b"*"
    matches = _glob(pattern)
    return [b"0", [key for key in db.present() if matches.fullmatch(key)]]


def _dbsize(db: Database) -> int:
    return len(db.present())


# --- hashes


def _hget(db: Database, key: bytes, name: bytes) -> bytes | None:
    return (db.typed(key, _Hash) or {}).get(name)


def _hmget(db: Database, key: bytes, *names: bytes) -> list[bytes | None]:
    present = db.typed(key, _Hash) or {}
    return [present.get(name) for name in names]


def _hset(db: Database, key: bytes, *pairs: bytes) -> int:
    if not pairs or len(pairs) % 2:
        raise CommandError("ERR wrong number of arguments for 'hset' command")
    fields = db.made(key, _Hash)
    new = {name for name in pairs[::2] if name not in fields}
    fields.update(zip(pairs[::2], pairs[1::2], strict=True))
    return len(new)


def _hdel(db: Database, key: bytes, *names: bytes) -> int:
    fields = db.typed(key, _Hash) or {}
    removed = sum(fields.pop(name, None) is not None for name in names)
    db.remove_if_empty(key)
    return removed


def _hincrby(db: Database, key: bytes, name: bytes, by: bytes) -> int:
    step = _whole(by)
    fields = db.made(key, _Hash)
    number = _whole(fields.get(name, b"0"), "ERR hash value is not an integer") + step
    fields[name] = b"%d" % number
    return number


def _hgetall(db: Database, key: bytes) -> list[bytes]:
    return [part for pair in (db.typed(key, _Hash) or {}).items() for part in pair]


def _hlen(db: Database, key: bytes) -> int:
    return len(db.typed(key, _Hash) or {})


# --- sorted sets


def _zadd(db: Database, key: bytes, *pairs: bytes) -> int:
    if not pairs or len(pairs) % 2:
        raise CommandError("ERR syntax error")
    scores = [_score(text) for text in pairs[::2]]
    members = db.made(key, _Sorted)
    new = {member for member in pairs[1::2] if member not in members}
    members.update(zip(pairs[1::2], scores, strict=True))
    return len(new)


def _zrem(db: Database, key: bytes, *names: bytes) -> int:
    members = db.typed(key, _Sorted) or {}
    removed = sum(members.pop(name, None) is not None for name in names)
    db.remove_if_empty(key)
    return removed


def _zcard(db: Database, key: bytes) -> int:
    return len(db.typed(key, _Sorted) or {})


def _zscore(db: Database, key: bytes, member: bytes) -> bytes | None:
    score = (db.typed(key, _Sorted) or {}).get(member)
    return None if score is None else number_text(score)


def _zrank(db: Database, key: bytes, member: bytes) -> int | None:
    for rank, (other, _) in enumerate(_ordered(db, key)):
        if other == member:
            return rank
    return None


def _zrange(db: Database, key: bytes, first: bytes, last: bytes, *options: bytes) -> list[bytes]:
    return _slice(_ordered(db, key), first, last, options)


def _zrevrange(db: Database, key: bytes, first: bytes, last: bytes, *options: bytes) -> list[bytes]:
    return _slice(_ordered(db, key)[::-1], first, last, options)


def _zrangebyscore(db: Database, key: bytes, least: bytes, most: bytes) -> list[bytes]:
    low, high = _score(least), _score(most)
    return [member for member, score in _ordered(db, key) if low <= score <= high]


def _ordered(db: Database, key: bytes) -> list[tuple[bytes, float]]:
    members = db.typed(key, _Sorted)
    return [] if members is None else members.in_order()


def _slice(entries: list[tuple[bytes, float]], first: bytes, last: bytes, options: Sequence[bytes]) -> list[bytes]:
    start, stop, size = _whole(first), _whole(last), len(entries)
    start = max(0, start + size if start < 0 else start)
    stop = stop + size if stop < 0 else stop
    chosen = entries[start : stop + 1]
    if not options:
        return [member for member, _ in chosen]
    return [part for member, score in chosen for part in (member, number_text(score))]


# --- how numbers and patterns are written


def number_text(number: float) -> bytes:
    """As the server writes a double."""
    return b"%d" % int(number) if number == int(number) and abs(number) < 1e17 else b"%.17g" % number


def _whole(text: bytes, otherwise: str = "ERR value is not an integer or out of range") -> int:
    if not re.fullmatch(rb"-?(0|[1-9][0-9]*)", text) or not -(2**63) <= int(text) < 2**63:
        raise CommandError(otherwise)
    return int(text)


def _score(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandError("ERR value is not a valid float") from None


def _glob(pattern: bytes) -> re.Pattern[bytes]:
    parts, escaped = [], False
    for place in range(len(pattern)):
        character = pattern[place : place + 1]
        if escaped or character not in b"*?\\":
            parts.append(re.escape(character))
            escaped = False
        elif character == b"\\":
            escaped = True
        else:
            parts.append(b".*" if character == b"*" else b".")
    return re.compile(b"".join(parts), re.DOTALL)


_READS: dict[bytes, Callable[..., Any]] = {
    b"DBSIZE": _dbsize,
    b"EXISTS": _exists,
    b"GET": _get,
    b"HGET": _hget,
    b"HGETALL": _hgetall,
    b"HLEN": _hlen,
    b"HMGET": _hmget,
    b"PTTL": _pttl,
    b"SCAN": _scan,
    b"ZCARD": _zcard,
    b"ZRANGE": _zrange,
    b"ZRANGEBYSCORE": _zrangebyscore,
    b"ZRANK": _zrank,
    b"ZREVRANGE": _zrevrange,
    b"ZSCORE": _zscore,
}
_WRITES: dict[bytes, Callable[..., Any]] = {
    b"DEL": _del,
    b"HDEL": _hdel,
    b"HINCRBY": _hincrby,
    b"HSET": _hset,
    b"PEXPIRE": _pexpire,
    b"PEXPIREAT": _pexpireat,
    b"SET": _set,
    b"ZADD": _zadd,
    b"ZREM": _zrem,
}
_COMMANDS = {**_READS, **_WRITES}
_NEED_NO_MEMORY = frozenset({b"DEL", b"HDEL", b"PEXPIRE", b"PEXPIREAT", b"ZREM"})


def is_write(name: bytes) -> bool:
    """Whether replicas have to hear of it."""
    return name.upper() in _WRITES


def needs_memory(name: bytes) -> bool:
    """Whether a server that is full refuses it."""
    return is_write(name) and name.upper() not in _NEED_NO_MEMORY
