"""The patterns as methods of a client: one method a pattern, each loaded only when it is used. The async face."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack, cast

from leasehold._core.capabilities import require
from leasehold.values import Capability

if TYPE_CHECKING:
    from leasehold.client import AsyncClient
    from leasehold.patterns.cache import AsyncCache, CacheOptions
    from leasehold.patterns.once import AsyncOnce, OnceOptions

__all__ = ["AsyncPatterns"]


class AsyncPatterns:
    """What a client makes of locks and records; a part of `AsyncClient`."""

    def once(self, template: str, **options: Unpack[OnceOptions]) -> AsyncOnce:
        """A job that runs once per slot across all machines; a decorator, or an object with `run` and `attempt`.

        The slot is the period of the store's time (`every="1d"`), the tick of the store's time (`cron="0 2 * * *"`) or
        a label of your own (`slot="2026-11-15"`); periods and ticks follow the calendar of `tz`, and only a slot later
        than the job's last one runs. When another has the slot, `on_conflict` decides: "skip" gives a false
        `Skipped`, "raise" raises `AlreadyRun` or `AlreadyRunning`, "standby" waits up to `timeout` and takes over if
        the other vanishes. A run that fails leaves its slot open, or with `on_failure="close"` closes it. The slot is
        remembered for two periods, at least a day, or for `keep` if that is longer. `ttl`, `max_hold`, `group` and
        `reason` are those of the job's lock. This is not a scheduler: something has to call it, and a holder that
        vanishes between its work and its record makes the work happen twice.
        """
        from leasehold.patterns.once import AsyncOnce  # noqa: PLC0415 - loaded only when it is used

        client = cast("AsyncClient", self)
        require(client._current().backend, Capability.RECORD)
        return AsyncOnce(client, template, **options)

    def cache(self, name: str, **options: Unpack[CacheOptions]) -> AsyncCache:
        """A cache whose values are built once, however many processes want them: `get`, or `cached` as a decorator.

        A value is fresh for `ttl` ("10m"), less up to `jitter` of it (0.1). Before that is over one of the readers
        builds it again, by a draw that takes the time of a build into account (`beta` 1.0; more is earlier, 0 is never
        early). After it a value is still given out for `stale` (as long as the ttl) while one builds, and for
        `stale_if_error` (as long as `stale`) when builds fail. `lock_ttl` (the client's ttl): after so long another may
        build when a builder has vanished. `timeout` (the client's): how long a caller waits where there is no value.
        Values are JSON, of at most `max_size` bytes (500,000); `encode` and `decode` to and from bytes replace that.
        Values are small and live in the store of the locks, so this is for what is expensive to build.
        """
        from leasehold.patterns.cache import AsyncCache  # noqa: PLC0415 - loaded only when it is used

        client = cast("AsyncClient", self)
        require(client._current().backend, Capability.RECORD)
        return AsyncCache(client, name, **options)
