"""What the account of a client may do on a Redis or Valkey server, found out without doing it.

It knows which commands the store sends and which ones its scripts call. Servers since Redis 7 have ACL DRYRUN for that;
on others, and where the account may not use it, only an attempt to lock shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.errors import BackendRejected
from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

__all__ = ["needed", "rights"]

SHA = "0" * 40
KEYS = ("EXISTS", "GET", "DEL", "PTTL")
HASHES = (("HGET", "f"), ("HMGET", "f"), ("HSET", "f", "1"), ("HDEL", "f"), ("HINCRBY", "f", "1"))
SORTED = (("ZADD", "1", "m"), ("ZCARD",), ("ZRANGE", "0", "0"), ("ZRANGEBYSCORE", "0", "1"), ("ZRANK", "m"),
          ("ZREM", "m"), ("ZREVRANGE", "0", "0"), ("ZSCORE", "m"))  # fmt: skip


def needed(prefix: str, *, sharded: bool) -> list[tuple[str, ...]]:
    """One example of each command that the store sends or that its scripts call."""
    key, channel = f"{prefix}{{doctor}}", f"{prefix}push:doctor"
    commands = [("EVALSHA", SHA, "1", key), ("EVAL", "return 1", "1", key), ("TIME",), ("SCAN", "0")]
    commands += [(command, key) for command in KEYS]
    commands += [("SET", key, "1"), ("PEXPIRE", key, "1"), ("PEXPIREAT", key, "1")]
    commands += [(command, key, *rest) for command, *rest in (*HASHES, *SORTED)]
    if sharded:
        channel = f"{prefix}{{doctor}}:p:doctor"
        commands += [("SPUBLISH", channel, ""), ("SSUBSCRIBE", channel), ("SUNSUBSCRIBE", channel)]
        return [*commands, ("CLUSTER", "SLOTS"), ("ASKING",)]
    return [*commands, ("PUBLISH", channel, ""), ("SUBSCRIBE", channel)]


async def rights(send: Callable[..., Awaitable[Any]], prefix: str, *, sharded: bool) -> list[Finding]:
    """Findings about scripts, and about every command that a store with this prefix of keys needs."""
    account = await _account(send)
    return [await _scripts(send, account), *await _commands(send, account, needed(prefix, sharded=sharded))]


async def _account(send: Callable[..., Awaitable[Any]]) -> str | None:
    try:
        name = await send("ACL", "WHOAMI")
    except BackendRejected:
        return None
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


async def _scripts(send: Callable[..., Awaitable[Any]], account: str | None) -> Finding:
    why = "each step of a lock is one script, so that no other client can come in between"
    try:
        await send("EVAL", "return 1", "0")
    except BackendRejected as error:
        advice = f"ACL SETUSER {account or '<account>'} +eval +evalsha; some services have a switch for scripts"
        return Finding("scripts", Level.PROBLEM, str(error), why, advice)
    return Finding("scripts", Level.OK, "allowed", why)


async def _commands(
    send: Callable[..., Awaitable[Any]], account: str | None, commands: Sequence[Sequence[str]]
) -> list[Finding]:
    why = "a command that is refused in the middle of a script leaves the lock unusable"
    if account is None:
        return [_unknown("ACL WHOAMI", why)]
    denied = []
    for command in commands:
        try:
            answer = await send("ACL", "DRYRUN", account, *command)
        except BackendRejected as error:
            if _is_unknown_command(error):
                continue  # this server has no such command, so the store does not send it there
            return [_unknown("ACL DRYRUN", why)]
        if answer not in (b"OK", "OK"):
            denied.append("|".join(command) if command[0] == "CLUSTER" else command[0])
    return [*_verdict(account, denied, len(commands), why)]


def _is_unknown_command(error: BackendRejected) -> bool:
    return "not found" in str(error)


def _unknown(command: str, why: str) -> Finding:
    found = f"this account may not use {command}, or the server has it not; the attempt to lock below shows more"
    advice = "nothing, if locking works; ACL SETUSER <account> +acl|whoami +acl|dryrun lets doctor look"
    return Finding("rights", Level.OK, found, why, advice)


def _verdict(account: str, denied: list[str], count: int, why: str) -> Iterator[Finding]:
    if not denied:
        yield Finding("rights", Level.OK, f"account {account!r} may use all {count} commands that locks need", why)
        return
    grants = " ".join(f"+{command.lower()}" for command in denied)
    advice = f"ACL SETUSER {account} {grants}; and its key and channel patterns must cover the prefix of the keys"
    yield Finding("rights", Level.PROBLEM, f"account {account!r} may not use {', '.join(denied)}", why, advice)
