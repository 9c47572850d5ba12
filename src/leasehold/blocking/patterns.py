"""`Patterns`: the blocking twin of `leasehold.patterns.of_client`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from leasehold.blocking._mirror import mirrors
from leasehold.patterns.of_client import AsyncPatterns

if TYPE_CHECKING:
    from leasehold.blocking.cache import Cache
    from leasehold.blocking.election import Election, ElectionOptions
    from leasehold.blocking.idempotency import Idempotency
    from leasehold.blocking.once import Once
    from leasehold.blocking.partitions import Share
    from leasehold.client import AsyncClient
    from leasehold.patterns.cache import CacheOptions
    from leasehold.patterns.idempotency import IdempotencyOptions
    from leasehold.patterns.once import OnceOptions
    from leasehold.patterns.partitions import ShareOptions

__all__ = ["Patterns"]


@mirrors(AsyncPatterns)
class Patterns:
    _twin: AsyncClient

    @mirrors(AsyncPatterns.once)
    def once(self, template: str, **options: Unpack[OnceOptions]) -> Once:
        from leasehold.blocking.once import Once  # noqa: PLC0415 - loaded only when it is used

        return Once(self._twin.once(template, **options))

    @mirrors(AsyncPatterns.election)
    def election(self, name: str, **options: Unpack[ElectionOptions]) -> Election:
        from leasehold.blocking.election import make_election  # noqa: PLC0415 - loaded only when it is used

        return make_election(self._twin, name, options)

    @mirrors(AsyncPatterns.idempotency)
    def idempotency(self, scope: str, **options: Unpack[IdempotencyOptions]) -> Idempotency:
        from leasehold.blocking.idempotency import Idempotency  # noqa: PLC0415 - loaded only when it is used

        return Idempotency(self._twin.idempotency(scope, **options))

    @mirrors(AsyncPatterns.partitions)
    def partitions(self, name: str, count: int = 64, **options: Unpack[ShareOptions]) -> Share:
        from leasehold.blocking.partitions import Share  # noqa: PLC0415 - loaded only when it is used

        return Share(self._twin.partitions(name, count, **options))

    @mirrors(AsyncPatterns.cache)
    def cache(self, name: str, **options: Unpack[CacheOptions]) -> Cache:
        from leasehold.blocking.cache import Cache  # noqa: PLC0415 - loaded only when it is used

        return Cache(self._twin.cache(name, **options))
