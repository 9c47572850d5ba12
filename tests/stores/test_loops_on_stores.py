"""One async client on many event loops, on every kind of store: one loop after the other, and two at the same time."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold.errors import ConfigurationError
from tests.stores.urls import SERVERS, url_of

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 60


@pytest.fixture(params=["memory", "sqlite", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, request, tmp_path)


@pytest.fixture
def client(url: str, request: pytest.FixtureRequest) -> Iterator[leasehold.AsyncClient]:
    made = leasehold.connect_async(url, ttl=LIMIT, namespace=f"loops-{os.getpid()}-{request.node.originalname}")
    yield made
    asyncio.run(made.close())


def sockets() -> set[str]:
    """Those of this process that are connected to something; the pair that wakes a loop is not."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it was the descriptor of the folder
            found.add(str(descriptor.readlink()))
    return {name for name in found if name.startswith("socket:")}


@pytest.mark.filterwarnings("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")
def test_one_loop_after_the_other_can_use_it_and_leaves_nothing(client: leasehold.AsyncClient) -> None:
    lock = client.lock("x")

    async def use() -> int:
        async with lock.hold(LIMIT) as lease, client.lock("y").hold(LIMIT):
            return lease.fence

    fences = [asyncio.run(use())]
    before = sockets()
    fences += [asyncio.run(use()) for _ in range(2)]
    assert fences == sorted(set(fences))
    assert not client._open_clients.all()
    gc.collect()
    assert len(sockets()) <= len(before)


@pytest.mark.filterwarnings("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_was_closed_without_being_shut_down_leaves_nothing_after_the_next_call(
    client: leasehold.AsyncClient,
) -> None:
    async def use() -> None:
        async with client.lock("x").hold(LIMIT):
            await asyncio.sleep(0)

    def use_on_a_loop_that_is_only_closed() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(use())
        loop.close()
        return weakref.ref(loop)

    asyncio.run(use())
    before = sockets()
    ended = use_on_a_loop_that_is_only_closed()
    asyncio.run(use())
    gc.collect()
    assert not client._open_clients.all()
    assert len(sockets()) <= len(before)
    if client.store.partition(":")[0] != "etcd":  # gRPC itself remembers every loop that it has seen
        assert ended() is None


def test_two_loops_in_two_threads_exclude_each_other(client: leasehold.AsyncClient) -> None:
    inside: list[int] = []
    together: list[int] = []
    failures: list[BaseException] = []
    both_run = threading.Barrier(2)

    async def work(number: int) -> None:
        async with client.lock("warm up").hold(LIMIT):
            pass
        await asyncio.to_thread(both_run.wait, LIMIT)
        for _ in range(5):
            async with client.lock("x").hold(LIMIT):
                inside.append(number)
                await asyncio.sleep(0.002)
                together.append(len(inside))
                inside.remove(number)

    def run(number: int) -> None:
        try:
            asyncio.run(work(number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not failures
    assert together == [1] * 10


def test_a_lease_that_its_loop_leaves_behind_is_free_after_its_ttl(url: str, request: pytest.FixtureRequest) -> None:
    namespace = f"loops-{os.getpid()}-{request.node.originalname}"
    client = leasehold.connect_async(url, ttl=1, namespace=namespace)
    kept: list[leasehold.AsyncLease] = []

    async def leave() -> None:
        kept.append(await client.lock("x").acquire(LIMIT))

    async def follow() -> None:
        with pytest.raises(ConfigurationError, match="belongs to the event loop that it was acquired on"):
            await kept[0].release()
        async with client.lock("x").hold(LIMIT) as lease:
            assert lease.fence > kept[0].fence
        await client.close()

    with pytest.warns(ResourceWarning, match="an event loop ended while 'x' was held on it"):
        asyncio.run(leave())
    assert kept[0].loss is not None
    assert kept[0].loss.detail == "its event loop has ended"
    asyncio.run(follow())
