"""`Patterns`: the blocking twin of `leasehold._patterns.of_client`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from leasehold._blocking.cache import Cache
    from leasehold._blocking.election import Election, ElectionOptions
    from leasehold._blocking.idempotency import Idempotency
    from leasehold._blocking.once import Once
    from leasehold._blocking.partitions import Share
    from leasehold._face.client import AsyncClient
    from leasehold._patterns.cache import CacheOptions
    from leasehold._patterns.idempotency import IdempotencyOptions
    from leasehold._patterns.once import OnceOptions
    from leasehold._patterns.partitions import ShareOptions

__all__ = ["Patterns"]


class Patterns:
    """What a client makes of locks and records; a part of `Client`."""

    _twin: AsyncClient

    def once(self, template: str, **options: Unpack[OnceOptions]) -> Once:
        """A job that runs once per slot across all machines; a decorator, or an object with `run` and `attempt`.

        The slot is the period of the store's time (`every="1d"`), the tick of the store's time (`cron="0 2 * * *"`) or
        a label of your own (`slot="2026-11-15"`); periods and ticks follow the calendar of `tz`, and only a slot later
        than the job's last one runs. When another has the slot, `on_conflict` decides: "skip" gives a false `Skipped`,
        "raise" raises `AlreadyRun` or `AlreadyRunning`, "standby" waits up to `timeout` and takes over if the other
        vanishes. A run that fails leaves its slot open, or with `on_failure="close"` closes it. The slot is remembered
        for two periods, at least a day, or for `keep` if that is longer. `ttl`, `max_hold`, `group` and `reason` are
        those of the job's lock. This is not a scheduler: something has to call it, and a holder that vanishes between
        its work and its record makes the work happen twice.
        """
        from leasehold._blocking.once import Once  # noqa: PLC0415 - loaded only when it is used

        return Once._of(self._twin.once(template, **options))

    def election(self, name: str, **options: Unpack[ElectionOptions]) -> Election:
        """An election of one leader among all processes: `lead`, `run`, `is_leader`, `observe`.

        `ttl` (15): how long after the last renewal of a leader that vanished the next one is elected. `renew_deadline`
        (10): a leader stops so long after the last renewal that was confirmed; the rest of the ttl is its time to stop.
        `retry` (2): how often it renews, how long a candidate pauses between two terms, how often observers look.
        `group` and `reason` are those of a lock. `on_elected(term)` is called before the body begins, `on_lost(loss)`
        once at the end of each term (reason "released": it resigned or stepped down), `on_new_leader(leader)` for each
        leader seen while this one campaigns or leads; an error in one is logged.
        """
        from leasehold._blocking.election import make_election  # noqa: PLC0415 - loaded only when it is used

        return make_election(self._twin, name, options)

    def idempotency(self, scope: str, **options: Unpack[IdempotencyOptions]) -> Idempotency:
        """Idempotency keys for one kind of work: the second attempt with a key gets the result of the first.

        `scope` names the kind of work. `keep` ("24h"): how long a result is replayed. `ttl` (the client's): the key of
        an attempt that vanishes is free after this long; it is renewed while the attempt runs. `wait` (None): how long
        to wait for an attempt in flight, and then replay; without it `InFlight` is raised. `on_expired` ("run"): what
        to do when an earlier attempt vanished, so that its work may be done: "run" again, or "refuse" with
        `AttemptExpired`. `max_size` (64 KiB): of a result as JSON. `outage` ("closed"): raise when the store has not
        answered for `outage_after` (2 s), or "open": run without protection. This is at-least-once: a holder that
        vanishes between its work and `complete` makes the work happen twice, unless the work checks the fence.
        """
        from leasehold._blocking.idempotency import Idempotency  # noqa: PLC0415 - loaded only when it is used

        return Idempotency._of(self._twin.idempotency(scope, **options))

    def partitions(self, name: str, count: int = 64, **options: Unpack[ShareOptions]) -> Share:
        """A share of `count` partitions, as a context manager that joins the other members and leaves them at its end.

        Each partition belongs to one member at a time, with a fence, and all live members have the same number of them,
        or one more. Every member gives the same `count`. What a vanished member had is free after its `ttl` (the
        client's). Each member looks every `retry` (a tenth of the ttl) for others that came or went. A partition that
        has to go to another member is announced as leaving to its worker, which has `grace` (one ttl) to release it.
        `reason` is shown to operators. The store must be able to list members: capabilities PERMITS and INSPECT.
        """
        from leasehold._blocking.partitions import Share  # noqa: PLC0415 - loaded only when it is used

        return Share._of(self._twin.partitions(name, count, **options))

    def cache(self, name: str, **options: Unpack[CacheOptions]) -> Cache:
        """A cache whose values are built once, however many processes want them: `get`, or `cached` as a decorator.

        A value is fresh for `ttl` ("10m"), less up to `jitter` of it (0.1). Before that is over one of the readers
        builds it again, by a draw that takes the time of a build into account (`beta` 1.0; more is earlier, 0 is never
        early). After it a value is still given out for `stale` (as long as the ttl) while one builds, and for
        `stale_if_error` (as long as `stale`) when builds fail. `lock_ttl` (the client's ttl): after so long another may
        build when a builder has vanished. `timeout` (the client's): how long a caller waits where there is no value.
        Values are JSON, of at most `max_size` bytes (500,000); `encode` and `decode` to and from bytes replace that.
        Values are small and live in the store of the locks, so this is for what is expensive to build.
        """
        from leasehold._blocking.cache import Cache  # noqa: PLC0415 - loaded only when it is used

        return Cache._of(self._twin.cache(name, **options))
