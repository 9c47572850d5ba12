"""`Patterns`: the blocking twin of `leasehold.patterns.of_client`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from leasehold.blocking._mirror import mirrors
from leasehold.patterns.of_client import AsyncPatterns

if TYPE_CHECKING:
    from leasehold.blocking.cache import Cache
    from leasehold.blocking.once import Once
    from leasehold.client import AsyncClient
    from leasehold.patterns.cache import CacheOptions
    from leasehold.patterns.once import OnceOptions

__all__ = ["Patterns"]


@mirrors(AsyncPatterns)
class Patterns:
    _twin: AsyncClient

    @mirrors(AsyncPatterns.once)
    def once(self, template: str, **options: Unpack[OnceOptions]) -> Once:
        from leasehold.blocking.once import Once  # noqa: PLC0415 - loaded only when it is used

        return Once(self._twin.once(template, **options))

    @mirrors(AsyncPatterns.cache)
    def cache(self, name: str, **options: Unpack[CacheOptions]) -> Cache:
        from leasehold.blocking.cache import Cache  # noqa: PLC0415 - loaded only when it is used

        return Cache(self._twin.cache(name, **options))
