"""A client that is closed while it holds warns at the line that closed it."""

from __future__ import annotations

import asyncio
import linecache
import warnings
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold import connect_async

if TYPE_CHECKING:
    from collections.abc import Callable


def closes() -> None:
    client = leasehold.connect("memory://")
    lease = client.lock("x").acquire()
    client.close()  # here
    del lease


def leaves_a_block() -> None:
    with leasehold.connect("memory://") as client:  # here
        lease = client.lock("x").acquire()
    del lease


def closes_on_a_loop() -> None:
    async def main() -> None:
        client = connect_async("memory://")
        lease = await client.lock("x").acquire()
        await client.close()  # here
        del lease

    asyncio.run(main())


def leaves_an_async_block() -> None:
    async def main() -> None:
        async with connect_async("memory://") as client:  # here
            lease = await client.lock("x").acquire()
        del lease

    asyncio.run(main())


@pytest.mark.parametrize("program", [closes, leaves_a_block, closes_on_a_loop, leaves_an_async_block])
def test_the_warning_points_at_the_line_that_closed_the_client(program: Callable[[], None]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program()
    (warning,) = [each for each in caught if "closed while it held 'x'" in str(each.message)]
    assert warning.category is ResourceWarning
    assert warning.filename == __file__
    assert "# here" in linecache.getline(__file__, warning.lineno)
