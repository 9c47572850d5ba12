"""Ways to cache one value in Redis, each as a function that gives it or builds it: ours, bare ones, and libraries."""

from __future__ import annotations

import json
import math
import random
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

import leasehold

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["BUILD", "CACHES", "TTL", "make_async", "make_blocking", "why_missing"]

TTL = 8.0  # seconds that a value is fresh
BUILD = 0.4  # seconds that a build takes
PATIENT = {"socket_connect_timeout": 60, "socket_timeout": 60}  # a busy machine is no reason to give up

CACHES = {
    "leasehold, asyncio": "",
    "leasehold, threads": "",
    "no protection": "redis",
    "mutex only (redis-py Lock)": "redis",
    "early refresh only": "redis",
    "dogpile.cache": "dogpile.cache",
    "cashews early": "cashews",
    "cashews lock": "cashews",
}
_BLOCKING = ("leasehold, threads", "dogpile.cache")


def why_missing(name: str) -> str:
    """Why a library cannot be measured; empty if it can."""
    try:
        if CACHES[name]:
            import_module(CACHES[name])
    except ImportError:
        return f"{CACHES[name]} is not installed"
    return ""


def make_blocking(name: str, url: str, build: Callable[[], float]) -> Callable[[], float] | None:
    """A function for threads; None if this one is for an event loop."""
    if name not in _BLOCKING:
        return None
    if name == "dogpile.cache":
        region: Any = import_module("dogpile.cache").make_region()
        arguments = {"url": url, "distributed_lock": True, "thread_local_lock": False, "lock_timeout": 30}
        region.configure("dogpile.cache.redis", expiration_time=TTL, arguments=arguments)
        return lambda: region.get_or_create("x", build)
    cache = leasehold.connect(url).cache("bench", ttl=TTL)
    return lambda: cache.get("x", build)


def make_async(name: str, url: str, build: Callable[[], Awaitable[float]]) -> Callable[[], Awaitable[float]]:
    """A function for an event loop."""
    if name == "leasehold, asyncio":
        cache = leasehold.connect_async(url).cache("bench", ttl=TTL)
        return lambda: cache.get("x", build)
    if name.startswith("cashews"):
        return _cashews(name, url, build)
    client: Any = import_module("redis.asyncio").Redis.from_url(url, **PATIENT)
    bare = {"no protection": _bare, "mutex only (redis-py Lock)": _mutex, "early refresh only": _early}
    return lambda: bare[name](client, build)


async def _bare(client: Any, build: Callable[[], Awaitable[float]]) -> float:
    stored = await client.get("x")
    if stored is not None:
        return float(stored)
    value = await build()
    await client.set("x", value, px=int(TTL * 1000))
    return value


async def _mutex(client: Any, build: Callable[[], Awaitable[float]]) -> float:
    stored = await client.get("x")
    if stored is not None:
        return float(stored)
    async with client.lock("x:lock", timeout=30):
        return await _bare(client, build)


async def _early(client: Any, build: Callable[[], Awaitable[float]]) -> float:
    """The rule of early refresh alone: each reader decides for itself, by a draw, and none asks the others."""
    stored = await client.get("x")
    if stored is not None:
        value, took, expires = json.loads(stored)
        if time.time() - took * math.log(1.0 - random.random()) < expires:
            return float(value)
    started = time.time()
    value = await build()
    took = time.time() - started
    await client.set("x", json.dumps([value, took, time.time() + TTL]), px=int(TTL * 1000))
    return value


def _cashews(name: str, url: str, build: Callable[[], Awaitable[float]]) -> Callable[[], Awaitable[float]]:
    cache: Any = import_module("cashews").Cache()
    cache.setup(url, client_side=False, **PATIENT)
    if name == "cashews early":
        decorate = cache.early(ttl=2 * TTL, early_ttl=TTL, key="x")  # fresh for TTL, then stale for as long again
    else:
        decorate = cache(ttl=TTL, key="x", lock=True)

    async def built() -> float:
        return await build()

    get: Callable[[], Awaitable[float]] = decorate(built)
    return get
