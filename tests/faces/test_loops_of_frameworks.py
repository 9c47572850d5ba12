"""Event loops as frameworks have them: pytest, Starlette, Celery, unittest; and what is no asyncio: trio."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import unittest
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trio
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import leasehold
from leasehold.errors import ConfigurationError
from tests.waiting import LIMIT

if TYPE_CHECKING:
    from starlette.requests import Request

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Starlette, that httpx has a successor
    from starlette.testclient import TestClient

ONE_TEST_FILE = Path(__file__).parent / "loops_program.py"


def test_pytest_has_a_loop_for_each_test(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    options = ["-q", "-p", "anyio", "-p", "no:cacheprovider", "-W", "error", "-c", os.devnull]
    program = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(ONE_TEST_FILE)],
        env={**os.environ, "URL_OF_THE_TEST": url, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert program.returncode == 0, program.stdout + program.stderr
    assert "3 passed" in program.stdout


def test_unittest_has_a_loop_for_each_test(tmp_path: Path) -> None:
    client = leasehold.connect_async(f"sqlite:///{tmp_path}/locks.db")

    class Tests(unittest.IsolatedAsyncioTestCase):
        async def test_one(self) -> None:
            async with client.lock("x").hold(timeout=LIMIT):
                pass

        async def test_two(self) -> None:
            await self.test_one()

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Tests).run(result)
    assert (result.testsRun, result.errors, result.failures) == (2, [], [])


@pytest.mark.parametrize("keeps_its_loop", [False, True], ids=["a loop per request", "a loop per client"])
def test_an_app_works_under_the_test_client_of_starlette(tmp_path: Path, *, keeps_its_loop: bool) -> None:
    client = leasehold.connect_async(f"sqlite:///{tmp_path}/locks.db")

    async def sell(request: Request) -> JSONResponse:
        async with client.lock(f"seat:{request.path_params['seat']}").hold(timeout=LIMIT) as lease:
            return JSONResponse({"fence": lease.fence})

    app = Starlette(routes=[Route("/sell/{seat}", sell, methods=["POST"])])
    fences: list[int] = []
    for _ in range(2):
        browser = TestClient(app)
        if keeps_its_loop:
            with browser:
                fences += [browser.post("/sell/1").json()["fence"] for _ in range(2)]
        else:
            fences += [browser.post("/sell/1").json()["fence"] for _ in range(2)]
    assert fences == sorted(set(fences))
    assert not client._open_clients.all()


def test_tasks_of_celery_may_each_run_a_loop() -> None:
    celery: Any = import_module("celery")  # slow to import, and without types
    workers: Any = import_module("celery.contrib.testing.worker")
    client = leasehold.connect_async("memory://")
    app = celery.Celery("loops", broker="memory://", backend="cache+memory://")

    async def settle() -> int:
        async with client.lock("auction").hold(timeout=LIMIT) as lease:
            await asyncio.sleep(0.01)
            return lease.fence

    @app.task  # type: ignore[untyped-decorator]  # Celery has no types
    def settle_auction() -> int:
        return asyncio.run(settle())

    def leave_it(**_: Any) -> None:
        """While somebody else sets logging up, Celery does not take over the root logger of this test run."""

    import_module("celery.signals").setup_logging.connect(leave_it)
    with workers.start_worker(app, pool="threads", concurrency=2, perform_ping_check=False, shutdown_timeout=LIMIT):
        results = [settle_auction.delay() for _ in range(4)]
        fences = [result.get(timeout=LIMIT) for result in results]
    import_module("celery.signals").setup_logging.disconnect(leave_it)
    assert len(set(fences)) == 4
    assert not client._open_clients.all()


# --- anyio, and what is no asyncio


async def _hold(client: leasehold.AsyncClient) -> int:
    async with client.lock("x").hold(timeout=LIMIT) as lease:
        await anyio.sleep(0)
        return lease.fence


def test_anyio_on_asyncio_just_works() -> None:
    client = leasehold.connect_async("memory://")

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(_hold, client)
            group.start_soon(_hold, client)
        await client.close()

    anyio.run(main, backend="asyncio")


def test_a_deadline_of_anyio_ends_a_wait_for_a_lock() -> None:
    async def main() -> None:
        async with leasehold.connect_async("memory://") as client, client.lock("x").hold():
            with anyio.move_on_after(0.05) as scope:
                await client.lock("x").acquire(timeout=None)
            assert scope.cancelled_caught
            state = await client.inspect("x")
            assert state is not None
            assert not state.waiting

    anyio.run(main, backend="asyncio")


@pytest.mark.parametrize("url", ["memory://", "redis://localhost"])
@pytest.mark.parametrize("run", [trio.run, lambda main: anyio.run(main, backend="trio")], ids=["trio", "anyio on trio"])
def test_trio_is_refused_with_what_to_do_instead(run: Any, url: str) -> None:
    async def main() -> None:
        async with leasehold.connect_async(url) as client:
            await _hold(client)

    with pytest.raises(ConfigurationError, match=r"trio runs this task: .* trio\.to_thread\.run_sync\(\)"):
        run(main)


def test_under_trio_the_blocking_client_works_in_threads(tmp_path: Path) -> None:
    client = leasehold.connect(f"sqlite:///{tmp_path}/locks.db")
    inside: list[int] = []

    def work() -> None:
        with client.lock("x").hold(timeout=LIMIT):
            inside.append(1)
            assert len(inside) == 1
            inside.pop()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(trio.to_thread.run_sync, work)

    trio.run(main)
    client.close()
