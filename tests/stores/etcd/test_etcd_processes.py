"""What an etcd client does to its process: forks, descriptors; and what its cancelled tasks do to etcd."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._backends.etcd.wire import FORK_SUPPORT
from leasehold._runtimes.asyncio import AsyncioRuntime
from leasehold._urls import find_store
from leasehold.spi import Place
from leasehold.values import Claim, Holder, Mode
from verification.lab.etcd import EtcdServer
from verification.lab.process import wait_until
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
LIMIT = 60.0  # seconds; a program that takes longer hangs


def says(program: str, *words: str, fork_support: str | None = None) -> list[str]:
    """The lines of a program that must come to its end by itself."""
    source = str(Path(leasehold.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "GRPC_VERBOSITY": "NONE"}
    environment.pop(FORK_SUPPORT, None)
    if fork_support is not None:
        environment[FORK_SUPPORT] = fork_support
    command = [sys.executable, str(HERE / program), *words]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert finished.returncode == 0, finished.stderr[-2000:]
    return finished.stdout.splitlines()


@pytest.mark.parametrize(("how", "times"), [("while_held", 3), ("while_busy", 7), ("by_multiprocessing", 4)])
def test_client_that_was_inherited_over_a_fork_works(etcd_server: EtcdServer, how: str, times: int) -> None:
    assert says("etcd_forks.py", how, etcd_server.url) == ["done"] * times


REFUSED = "ConfigurationError: this process was forked while its parent used etcd"


def test_child_of_a_process_that_uses_asyncio_is_refused_at_once(etcd_server: EtcdServer) -> None:
    refused, parent = says("etcd_forks.py", "after_asyncio", etcd_server.url)
    assert refused.startswith(REFUSED)
    assert parent == "done"


def test_children_are_refused_where_grpc_is_not_prepared_for_forks(etcd_server: EtcdServer) -> None:
    *children, parent = says("etcd_forks.py", "by_multiprocessing", etcd_server.url, fork_support="0")
    assert len(children) == 3
    assert all(line.startswith(REFUSED) for line in children)
    assert parent == "done"


# --- clients that nobody closed


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_blocking_clients_that_are_dropped_leave_no_descriptors(etcd_server: EtcdServer) -> None:
    leasehold.connect(etcd_server.url, namespace="dropped").lock("first").acquire().release()
    before = descriptors()
    for number in range(40):
        leasehold.connect(etcd_server.url, namespace="dropped").lock(f"n{number}").acquire().release()
    gc.collect()
    wait_until(lambda: gc.collect() >= 0 and descriptors() < before + 10, "their channels are still open")


def test_async_clients_that_are_dropped_leave_no_descriptors(etcd_server: EtcdServer) -> None:
    async def use(number: int) -> None:
        client = leasehold.connect_async(etcd_server.url, namespace="dropped")
        await (await client.lock(f"n{number}").acquire()).release()

    async def history() -> None:
        await use(0)
        before = descriptors()
        for number in range(40):
            await use(number)
        for _ in range(1000):
            gc.collect()
            if descriptors() < before + 10:
                return
            await asyncio.sleep(0.02)
        pytest.fail("their channels are still open")

    asyncio.run(history())


# --- waiters that are cancelled


def permit(runtime: AsyncioRuntime) -> Claim:
    return Claim("cancelled:x", runtime.owner(), 60.0, Mode.PERMIT, 2, 0.0, Holder("host", 1))


async def waiters(backends: Sequence[Any], runtime: AsyncioRuntime, number: int) -> list[tuple[Any, Place]]:
    """A waiter for one of two permits reads the whole queue whenever it asks."""
    for _ in range(2):
        await backends[0].join(permit(runtime))
    return [(backend, await backend.join(permit(runtime))) for backend in backends for _ in range(number)]


def test_cancelled_waiters_do_not_end_a_member() -> None:
    """The version is one that panics when a read is cancelled (etcd issue 14110)."""

    async def history(server: EtcdServer) -> None:
        runtime = AsyncioRuntime()
        backends: list[Any] = [find_store(server.url).open_backend(runtime) for _ in range(3)]
        places = await waiters(backends, runtime, 60)
        cancelled = 0
        while cancelled < 1500:
            asking = [asyncio.create_task(backend.turn(place)) for backend, place in random.sample(places, 40)]
            await asyncio.sleep(random.uniform(0.0, 0.02))
            for task in asking:
                task.cancel()
            ends = await asyncio.gather(*asking, return_exceptions=True)
            cancelled += sum(isinstance(end, asyncio.CancelledError) for end in ends)
            assert isinstance(await backends[0].turn(places[0][1]), Place), "the member does not answer any more"
        assert server.status()["version"].startswith("3.5.")
        for backend in backends:
            await backend.close()

    server = EtcdServer(version="3.5")
    with server:
        asyncio.run(history(server))


def test_read_whose_time_ran_out_is_not_cancelled_either(etcd_server: EtcdServer) -> None:
    """For etcd a deadline is a cancellation."""

    async def history(proxy: FaultProxy) -> None:
        runtime = AsyncioRuntime()
        backend: Any = find_store(f"etcd://127.0.0.1:{proxy.port}").open_backend(runtime)
        (_, place), *_ = await waiters([backend], runtime, 1)
        (wire,) = backend._connection._wires
        proxy.delay(0.0, 1.0)
        with pytest.raises(leasehold.BackendUnavailable):
            await backend.turn(place, runtime.now() + 0.3)
        calls = list(wire._uncancelled)
        assert len(calls) == 1
        while wire._uncancelled:
            await asyncio.sleep(0.01)
        assert [str(await call.code()) for call in calls] == ["StatusCode.OK"]
        proxy.delay(0.0, 0.0)
        await backend.withdraw(place.claim)
        await backend.close()

    with FaultProxy(("127.0.0.1", etcd_server.port)) as proxy:
        asyncio.run(history(proxy))
