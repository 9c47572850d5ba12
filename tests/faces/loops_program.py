"""Tests as a user writes them, with one client for all, and a loop for each; see `test_loops_of_frameworks.py`."""

from __future__ import annotations

import os

import pytest

import leasehold

client = leasehold.connect_async(os.environ["URL_OF_THE_TEST"], ttl=10)
last = 0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
@pytest.mark.parametrize("number", range(3))
async def test_a_lock_can_be_had(number: int) -> None:
    global last  # noqa: PLW0603 - what one test leaves for the next is what this is about
    async with client.lock("x").hold(timeout=30) as lease:
        assert lease.fence > last
        last = lease.fence
