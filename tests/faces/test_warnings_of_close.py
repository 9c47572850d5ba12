"""A client that is closed while it holds warns at the line that closed it."""

from __future__ import annotations

import asyncio
import linecache
import warnings
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold import LossReason, connect_async, events
from leasehold.testing import ManualStore

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


def test_a_lease_whose_ttl_is_over_is_not_named_as_held_although_the_keeper_has_not_looked_yet() -> None:
    async def main() -> list[str]:
        store = ManualStore()
        client = store.connect_async()
        losses: list[events.Lost] = []
        client.on_event(lambda event: losses.append(event) if isinstance(event, events.Lost) else None)
        over = await client.lock("over", ttl=10, renew=False).acquire()
        held = await client.lock("held", ttl=60).acquire()
        store.clock.advance(11)  # the keeper's task does not run before the next await that suspends
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            await client.close()
        assert over.loss is not None
        assert held.loss is not None
        assert (over.loss.reason, held.loss.reason) == (LossReason.EXPIRED, LossReason.CLOSED)
        assert {lost.name for lost in losses} == {"over", "held"}
        return [str(each.message) for each in caught]

    (warning,) = asyncio.run(main())
    assert "'held'" in warning
    assert "'over'" not in warning


def test_a_warning_that_is_raised_leaves_no_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    client = leasehold.connect("memory://")
    lease = client.lock("x").acquire()
    opened = client._twin._opened
    assert opened is not None

    async def close() -> None:
        closed.append("connections")

    monkeypatch.setattr(opened.backend, "close", close)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ResourceWarning, match="closed while it held 'x'"):
            client.close()
    assert closed == ["connections"]
    del lease
