"""Whom a client takes for the primary, or for a member of a Cluster, when the servers say different things."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import leasehold
from tests.stores.redis.redis_calls import backend_of, claim_of
from verification.lab.redis import RedisServer
from verification.lab.sentinel import SERVICE, Sentinel

if TYPE_CHECKING:
    from leasehold.testing import contract


def sentinel_of(primary: RedisServer, epoch: int) -> Sentinel:
    """A Sentinel that knows nothing newer than this configuration, and no other Sentinel."""
    sentinel = Sentinel(primary, down_after=600.0)
    lines = sentinel._configuration.read_text()
    sentinel._configuration.write_text(f"{lines}sentinel config-epoch {SERVICE} {epoch}\n")
    return sentinel


def url_of(*sentinels: Sentinel) -> str:
    return f"redis+sentinel://{','.join(f'127.0.0.1:{sentinel.port}' for sentinel in sentinels)}/{SERVICE}"


def test_primary_of_the_newest_configuration_is_used_in_whatever_order_the_sentinels_are_named(
    driver: contract.Driver,
) -> None:
    """The old primary is back, and a Sentinel that was cut off sends everybody there: two holders."""
    with ExitStack() as stack:
        old, new = RedisServer("old"), RedisServer("new")
        sentinels = [sentinel_of(old, 3), sentinel_of(old, 3), sentinel_of(new, 4)]
        for server in (old, new, *sentinels):
            stack.enter_context(server)

        async def body() -> None:
            for number, order in enumerate(itertools.permutations(sentinels)):
                async with backend_of(driver, url_of(*order)) as (backend, _):
                    assert await backend.try_acquire(claim_of("o1", f"name {number}"))
            assert old.ask("KEYS", "*") == []
            assert new.ask("KEYS", "*")

        driver.run(body())


def test_server_that_does_not_take_itself_for_the_primary_gets_no_call(driver: contract.Driver) -> None:
    with RedisServer("primary") as primary, ExitStack() as stack:
        assert isinstance(primary, RedisServer)
        replica = RedisServer("replica", replica_of=primary)
        sentinel = sentinel_of(replica, 1)
        for server in (replica, sentinel):
            stack.enter_context(server)

        async def body() -> None:
            async with backend_of(driver, url_of(sentinel)) as (backend, _):
                with pytest.raises(leasehold.BackendUnavailable, match="is not the primary yet"):
                    await backend.try_acquire(claim_of())

        driver.run(body())


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis+sentinel://127.0.0.1:{0}/mymaster", "is not a Sentinel; for a server itself the URL begins"),
        ("redis+cluster://127.0.0.1:{0}", "does not belong to a Cluster; for one server the URL begins"),
    ],
)
def test_url_of_another_kind_of_store_is_rejected_at_once_with_the_reason(
    redis_server: RedisServer, url: str, words: str
) -> None:
    """They were tried again and again until the deadline, as if the store were away."""
    began = time.monotonic()
    with (
        leasehold.connect(url.format(redis_server.port)) as client,
        pytest.raises(leasehold.BackendRejected, match=words),
    ):
        client.lock("name").acquire(timeout=60)
    assert time.monotonic() - began < 20
