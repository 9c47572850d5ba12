"""Redis values that refuse a late writer: the check and the write are one script, run by the user's own client.

    fenced = FencedRedis(redis.Redis(), lease)
    fenced.raise_fence()                       # before the first read
    left = int(fenced.client.get("stock"))
    fenced.set("stock", left - 1)              # StaleFence if a newer holder has been here

It depends neither on a driver nor on the lock's own store: any client with `evalsha` and `eval` will do, blocking or
asyncio.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError
from leasehold.fencing.checks import note_passed
from leasehold.fencing.token import feed_back, refused, token_of, wrong_lock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold._blocking import Lease
    from leasehold._face.lease import AsyncLease

__all__ = ["AsyncFencedRedis", "FencedRedis"]

Value = str | bytes | int | float

REGISTER = "leasehold:guard:"

_SET = "return redis.call('SET', KEYS[1], ARGV[1])"
_SET_FOR = "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])"
_DELETE = "return redis.call('DEL', unpack(KEYS))"
_HSET = """
local added = 0
for place = 1, #ARGV, 2 do
  added = added + redis.call('HSET', KEYS[1], ARGV[place], ARGV[place + 1])
end
return added"""


class AsyncFencedRedis:
    """The values of one resource in Redis, written under one lease; a client of `redis.asyncio` sends the scripts.

    `resource` names what is protected, if that is more or less than the lock's name; it belongs to one lock
    for ever. Its register is the hash `leasehold:guard:RESOURCE`. In a cluster, register and values must be in one
    slot: pass a resource with the values' hash tag, such as `"{order:42}"`. `keep_ms` lets the register expire when
    it was not written for so long, together with what it knew about late writers; without it, it stays.

    Promises that no late writer that comes through here overwrites a value, as long as Redis keeps what it
    acknowledged: a failover to a replica that had not got the register forgets it. Raises `StaleFence`.
    """

    def __init__(
        self,
        client: Any,
        lease: Lease | AsyncLease | int,
        *,
        resource: str | None = None,
        keep_ms: int | None = None,
    ) -> None:
        if keep_ms is not None and (isinstance(keep_ms, bool) or keep_ms < 1):
            raise ConfigurationError(f"keep_ms must be a whole number above 0, not {keep_ms!r}")
        self.client = client
        self._lease = lease
        self._token = token_of(lease, resource)
        self._keep = str(keep_ms or 0)

    async def raise_fence(self) -> None:
        """Let no older holder write from now on; do this before the first read of a value that you will write back."""
        await self._perform("return 1", (), ())

    async def set(self, key: str | bytes, value: Value, *, ttl_ms: int | None = None) -> None:
        """SET one value, which Redis drops after `ttl_ms` if that is given."""
        self._require_exclusive()
        if ttl_ms is None:
            await self._perform(_SET, (key,), (value,))
        else:
            await self._perform(_SET_FOR, (key,), (value, ttl_ms))

    async def hset(self, key: str | bytes, mapping: Mapping[str, Value]) -> int:
        """HSET fields of a hash; how many are new."""
        self._require_exclusive()
        if not mapping:
            raise ConfigurationError("hset needs at least one field: pass a mapping that is not empty")
        pairs = [part for pair in mapping.items() for part in pair]
        return int(await self._perform(_HSET, (key,), pairs))

    async def delete(self, *keys: str | bytes) -> int:
        """DEL values; how many there were."""
        self._require_exclusive()
        if not keys:
            raise ConfigurationError("delete needs at least one key, such as 'stock'")
        return int(await self._perform(_DELETE, keys, ()))

    async def run(self, script: str, *, keys: Sequence[str | bytes] = (), args: Sequence[Value] = ()) -> Any:
        """Run a Lua script of your own, which finds its `KEYS` and `ARGV` as always; its reply is returned.

        With the lease of a reader it must only read.
        """
        if script.lstrip().startswith("#!"):
            raise ConfigurationError(
                "a script with a first line of flags (#!lua) cannot be put into another one; leave that line out"
            )
        return await self._perform(script, keys, args)

    def _require_exclusive(self) -> None:
        if self._token.shared:
            raise ConfigurationError(
                "this lease is shared with others: it allows to read, and not to write; take the write lock for that"
            )

    async def _perform(self, body: str, keys: Sequence[str | bytes], args: Sequence[Value]) -> Any:
        token, register = self._token, REGISTER + self._token.resource
        mode = "shared" if token.shared else "exclusive"
        words = (register, *keys, str(token.fence), token.lock or "", token.grant or "", mode, self._keep, *args)
        try:
            answer = await self._evaluate(_script(body), 1 + len(keys), words)
        except Exception as error:
            kind, _, rest = str(error).partition(" ")
            if kind == "LEASEHOLD_STALE":
                raise feed_back(self._lease, refused(token, int(rest.split()[0]))) from None
            if kind == "LEASEHOLD_LOCK":
                raise wrong_lock(token, _text(await _answer(self.client.hget(register, "lock")))) from None
            raise
        note_passed()
        return answer

    async def _evaluate(self, script: tuple[str, str], count: int, words: Sequence[Value]) -> Any:
        text, digest = script
        try:
            return await _answer(self.client.evalsha(digest, count, *words))
        except Exception as error:
            if type(error).__name__ != "NoScriptError" and not str(error).startswith("NOSCRIPT"):
                raise
        return await _answer(self.client.eval(text, count, *words))


class FencedRedis:
    """The blocking twin of `AsyncFencedRedis`, for a client of `redis`."""

    def __init__(
        self,
        client: Any,
        lease: Lease | AsyncLease | int,
        *,
        resource: str | None = None,
        keep_ms: int | None = None,
    ) -> None:
        if inspect.iscoroutinefunction(getattr(client, "execute_command", None)):
            raise ConfigurationError("this client is async: use AsyncFencedRedis, and await its methods")
        self._twin = AsyncFencedRedis(client, lease, resource=resource, keep_ms=keep_ms)

    @property
    def client(self) -> Any:
        """The user's own client, for reading."""
        return self._twin.client

    def raise_fence(self) -> None:
        """Let no older holder write from now on; do this before the first read of a value that you will write back."""
        run(self._twin.raise_fence())

    def set(self, key: str | bytes, value: Value, *, ttl_ms: int | None = None) -> None:
        """SET one value, which Redis drops after `ttl_ms` if that is given."""
        run(self._twin.set(key, value, ttl_ms=ttl_ms))

    def hset(self, key: str | bytes, mapping: Mapping[str, Value]) -> int:
        """HSET fields of a hash; how many are new."""
        return run(self._twin.hset(key, mapping))

    def delete(self, *keys: str | bytes) -> int:
        """DEL values; how many there were."""
        return run(self._twin.delete(*keys))

    def run(self, script: str, *, keys: Sequence[str | bytes] = (), args: Sequence[Value] = ()) -> Any:
        """Run a Lua script of your own, which finds its `KEYS` and `ARGV` as always; its reply is returned.

        With the lease of a reader it must only read.
        """
        return run(self._twin.run(script, keys=keys, args=args))


@functools.lru_cache(64)
def _script(body: str) -> tuple[str, str]:
    """The whole script around a body, and its digest."""
    frame = (files("leasehold.fencing") / "guarded.lua").read_text()
    text = frame.replace("--BODY--", body)
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


async def _answer(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
