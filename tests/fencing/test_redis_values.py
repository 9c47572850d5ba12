"""Redis values that refuse a late writer, on Redis, Valkey and a cluster, with blocking and asyncio clients."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio

import leasehold
from leasehold.errors import ConfigurationError, StaleFence
from leasehold.fencing.redis import AsyncFencedRedis, FencedRedis
from leasehold.values import MAX_FENCE
from tests.waiting import two_in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from verification.lab.redis import RedisServer
    from verification.lab.redis_cluster import RedisCluster

HOSTILE = ["a'b", 'a"b', "a\\", "]]", "--", "a\r\nb", "{", "}", "{}", "é😀", "$1", "end return 1"]


@pytest.fixture(params=["redis text", "redis bytes", "valkey bytes"])
def database(request: pytest.FixtureRequest) -> Iterator[Any]:
    kind, _, answers = request.param.partition(" ")
    server: RedisServer = request.getfixturevalue(f"{kind}_server")
    client = redis.Redis.from_url(server.url, decode_responses=answers == "text")
    client.flushall()
    client.script_flush()
    yield client
    client.close()


@pytest.fixture
def client() -> Iterator[leasehold.Client]:
    with leasehold.connect("memory://") as client:
        yield client


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def test_late_writer_is_refused_and_its_write_is_not_there(database: Any, client: leasehold.Client) -> None:
    stale, current = two_in_turn(client.lock("stock"))
    FencedRedis(database, current).set("stock", 10)
    with pytest.raises(StaleFence) as caught:
        FencedRedis(database, stale).set("stock", 99)
    assert (caught.value.fence, caught.value.highest, caught.value.name) == (stale.fence, current.fence, "stock")
    FencedRedis(database, current).set("stock", 9)
    assert int(database.get("stock")) == 9


def test_fence_is_raised_before_the_first_read(database: Any, client: leasehold.Client) -> None:
    stale, current = two_in_turn(client.lock("stock"))
    FencedRedis(database, stale).set("stock", 10)
    fenced = FencedRedis(database, current)
    fenced.raise_fence()
    left = int(fenced.client.get("stock"))
    with pytest.raises(StaleFence):
        FencedRedis(database, stale).set("stock", 9)
    fenced.set("stock", left - 1)
    assert int(database.get("stock")) == 9


def test_every_kind_of_write_is_checked(database: Any, client: leasehold.Client) -> None:
    stale, current = two_in_turn(client.lock("order"))
    database.set("cart", "full")
    fenced, late = FencedRedis(database, current), FencedRedis(database, stale)
    assert fenced.hset("order", {"state": "paid", "total": 12}) == 2
    assert fenced.hset("order", {"state": "sent"}) == 0
    fenced.set("receipt", b"\x00\xff", ttl_ms=60_000)
    assert fenced.run("return redis.call('INCRBY', KEYS[1], ARGV[1])", keys=["count"], args=[5]) == 5
    for write in (
        lambda: late.hset("order", {"state": "lost"}),
        lambda: late.set("receipt", "lost"),
        lambda: late.delete("cart"),
        lambda: late.run("return redis.call('INCR', KEYS[1])", keys=["count"]),
        late.raise_fence,
    ):
        with pytest.raises(StaleFence):
            write()
    assert {text(field): text(value) for field, value in database.hgetall("order").items()} == {
        "state": "sent",
        "total": "12",
    }
    assert 0 < database.pttl("receipt") <= 60_000
    assert int(database.get("count")) == 5
    assert fenced.delete("cart", "nothing") == 1
    assert database.pttl("leasehold:guard:leasehold:order") == -1


def test_large_hash_is_written_whole(database: Any, client: leasehold.Client) -> None:
    with client.lock("order").hold() as lease:
        assert FencedRedis(database, lease).hset("order", {f"field {n}": n for n in range(20_000)}) == 20_000
    assert database.hlen("order") == 20_000


def test_equal_fence_of_another_grant_is_refused(database: Any, client: leasehold.Client) -> None:
    with leasehold.connect("memory://") as elsewhere:
        with client.lock("stock").hold() as mine, elsewhere.lock("stock").hold() as other:
            assert mine.fence == other.fence
            FencedRedis(database, mine).set("stock", 1)
            with pytest.raises(StaleFence):
                FencedRedis(database, other).set("stock", 2)
            FencedRedis(database, mine.fence, resource="leasehold:stock").set("stock", 3)
    assert int(database.get("stock")) == 3


def test_readers_and_writers_have_registers_of_their_own(database: Any, client: leasehold.Client) -> None:
    lock = client.rwlock("stock")
    writer, _ = two_in_turn(lock.write)
    older, reader = two_in_turn(lock.read)
    assert FencedRedis(database, reader).run("return redis.call('GET', KEYS[1])", keys=["stock"]) is None
    FencedRedis(database, older).raise_fence()
    with pytest.raises(ConfigurationError, match="not to write"):
        FencedRedis(database, reader).set("stock", 1)
    with pytest.raises(StaleFence) as caught:
        FencedRedis(database, writer).set("stock", 1)
    assert caught.value.highest == reader.fence
    with lock.write.hold() as newer:
        FencedRedis(database, newer).set("stock", 2)
    with pytest.raises(StaleFence):
        FencedRedis(database, reader).raise_fence()


def test_lease_of_a_reader_writes_and_deletes_nothing(database: Any, client: leasehold.Client) -> None:
    database.set("kept", "value")
    with client.rwlock("stock").read.hold() as reader:
        fenced = FencedRedis(database, reader)
        writes: list[Callable[[], object]] = [
            lambda: fenced.set("kept", 1),
            lambda: fenced.set("kept", 1, ttl_ms=10_000),
            lambda: fenced.hset("kept", {"field": 1}),
            lambda: fenced.delete("kept"),
        ]
        for write in writes:
            with pytest.raises(ConfigurationError, match="not to write"):
                write()
    assert database.get("kept") in ("value", b"value")


def test_resource_belongs_to_one_lock(database: Any, client: leasehold.Client) -> None:
    with client.lock("a").hold() as first, client.lock("b\nc").hold() as second:
        FencedRedis(database, second, resource="stock").set("stock", 1)
        with pytest.raises(ConfigurationError, match="only within one lock") as caught:
            FencedRedis(database, first, resource="stock").set("stock", 2)
        assert repr("leasehold:b\nc") in str(caught.value)
        FencedRedis(database, first).set("other", 1)


def test_register_that_a_number_began_belongs_to_the_first_lease(database: Any, client: leasehold.Client) -> None:
    with leasehold.connect("memory://") as elsewhere:
        with client.lock("stock").hold() as mine, elsewhere.lock("stock").hold() as other, client.lock("b").hold() as b:
            FencedRedis(database, mine.fence, resource="r").set("stock", 1)
            FencedRedis(database, mine, resource="r").set("stock", 2)
            with pytest.raises(StaleFence):
                FencedRedis(database, other, resource="r").set("stock", 3)
            with pytest.raises(ConfigurationError, match="only within one lock"):
                FencedRedis(database, b, resource="r").set("stock", 4)
            FencedRedis(database, mine.fence, resource="r").set("stock", 5)
    assert int(database.get("stock")) == 5


def test_lease_of_a_semaphore_is_refused(database: Any, client: leasehold.Client) -> None:
    with client.semaphore("stock", 2).hold() as lease, pytest.raises(ConfigurationError, match="semaphore"):
        FencedRedis(database, lease)


def test_largest_fence_stays_exact(database: Any) -> None:
    FencedRedis(database, MAX_FENCE - 1, resource="stock").set("stock", 1)
    with pytest.raises(StaleFence) as caught:
        FencedRedis(database, MAX_FENCE - 2, resource="stock").set("stock", 2)
    assert caught.value.highest == MAX_FENCE - 1
    FencedRedis(database, MAX_FENCE, resource="stock").set("stock", 3)
    assert text(database.hget("leasehold:guard:stock", "exclusive_fence")) == str(MAX_FENCE)


def test_names_are_only_ever_values(database: Any, client: leasehold.Client) -> None:
    for name in HOSTILE:
        stale, current = two_in_turn(client.lock(name))
        FencedRedis(database, current).hset(name, {name: name})
        with pytest.raises(StaleFence):
            FencedRedis(database, stale).hset(name, {name: "lost"})
        assert text(database.hget(name, name)) == name


def test_reply_and_errors_of_a_script_are_the_user_s(database: Any, client: leasehold.Client) -> None:
    with client.lock("stock").hold() as lease:
        fenced = FencedRedis(database, lease)
        assert fenced.run("return {#KEYS, #ARGV, {1, 2}}", keys=["a", "b"], args=["x"]) == [2, 1, [1, 2]]
        assert fenced.run("-- a comment at the end") is None
        assert fenced.run("local KEYS = {} return false") is None
        with pytest.raises(redis.ResponseError, match="mine"):
            fenced.run("return redis.error_reply('mine')")
        with pytest.raises(redis.ResponseError):
            fenced.run("this is not Lua")
        with pytest.raises(ConfigurationError, match="#!lua"):
            fenced.run("#!lua flags=no-writes\nreturn 1")


def test_register_expires_only_with_keep_ms(database: Any, client: leasehold.Client) -> None:
    with client.lock("stock").hold() as lease:
        FencedRedis(database, lease, keep_ms=60_000).set("stock", 1)
        assert 0 < database.pttl("leasehold:guard:leasehold:stock") <= 60_000
        FencedRedis(database, lease).set("stock", 2)
        assert database.pttl("leasehold:guard:leasehold:stock") == -1
        for senseless in (0, -1, True):
            with pytest.raises(ConfigurationError, match="keep_ms"):
                FencedRedis(database, lease, keep_ms=senseless)


def test_what_the_resource_has_seen_is_fed_back(database: Any, client: leasehold.Client) -> None:
    FencedRedis(database, 5_000, resource="leasehold:stock").set("stock", 1)
    with client.lock("stock").hold() as lease, pytest.raises(StaleFence):
        FencedRedis(database, lease).set("stock", 2)
    with client.lock("stock").hold() as lease:
        FencedRedis(database, lease).set("stock", 2)
        assert lease.fence > 5_000


def test_asyncio_client_does_the_same(redis_server: RedisServer) -> None:
    redis_server.flush()

    async def main() -> None:
        async with (
            leasehold.connect_async("memory://") as client,
            redis.asyncio.Redis.from_url(redis_server.url) as database,
        ):
            stale = await client.lock("stock").acquire()
            await stale.release()
            async with client.lock("stock").hold() as lease:
                fenced = AsyncFencedRedis(database, lease)
                await fenced.raise_fence()
                await fenced.set("stock", 10)
                assert await fenced.hset("order", {"state": "paid"}) == 1
                assert await fenced.run("return redis.call('DECR', KEYS[1])", keys=["stock"]) == 9
                with pytest.raises(StaleFence):
                    await AsyncFencedRedis(database, stale).set("stock", 99)
                assert await fenced.delete("stock") == 1
                with pytest.raises(ConfigurationError, match="AsyncFencedRedis"):
                    FencedRedis(database, lease)

    asyncio.run(main())


def test_cluster_keeps_values_and_register_in_one_slot(cluster_nodes: RedisCluster, client: leasehold.Client) -> None:
    host, port = cluster_nodes.nodes[0].address
    database: Any = redis.RedisCluster(host=host, port=port)
    stale, current = two_in_turn(client.lock("order:42"))
    FencedRedis(database, current, resource="{order:42}").hset("order:42", {"state": "paid"})
    with pytest.raises(StaleFence):
        FencedRedis(database, stale, resource="{order:42}").hset("order:42", {"state": "lost"})
    assert database.hget("order:42", "state") == b"paid"
    database.close()
