"""The decorator: names from arguments, busy answers, and mistakes that show at import."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import leasehold
from leasehold.errors import AcquireTimeout, ConfigurationError
from leasehold.testing import ManualStore


def test_the_name_is_made_from_the_arguments_and_the_lease_is_passed_on() -> None:
    client = ManualStore().connect()
    seen: list[tuple[str, int]] = []

    @client.locked("order:{order.id}:{kind}")
    def ship(order: Any, kind: str = "air", lease: leasehold.Lease | None = None) -> str:
        assert lease is not None
        seen.append((lease.name, lease.fence))
        return "done"

    assert ship(SimpleNamespace(id=7)) == "done"
    assert ship(SimpleNamespace(id=8), kind="sea") == "done"
    assert [name for name, _ in seen] == ["order:7:air", "order:8:sea"]
    client.close()


def test_current_stands_for_the_lease_and_says_so_where_no_decorator_put_it_there() -> None:
    client = ManualStore().connect()

    def ship(order: int, lease: leasehold.Lease = leasehold.CURRENT) -> str:
        return f"{order}: {lease.name}"

    assert client.locked("order:{order}")(ship)(7) == "7: order:7"
    assert repr(leasehold.CURRENT) == "leasehold.CURRENT"
    with pytest.raises(TypeError, match=r"has no name: .* without the decorator"):
        ship(7)
    client.close()


def test_a_busy_lock_raises_or_gives_the_result_of_on_busy() -> None:
    client = ManualStore().connect()

    @client.locked("x", timeout=0)
    def strict() -> str:
        return "ran"

    @client.locked("x", timeout=0, on_busy=lambda busy: f"busy: {busy.name}")
    def relaxed() -> str:
        return "ran"

    with client.lock("x").hold():
        with pytest.raises(AcquireTimeout):
            strict()
        assert relaxed() == "busy: x"
    assert relaxed() == "ran"
    client.close()


def test_a_timeout_inside_the_function_is_not_taken_for_a_busy_lock() -> None:
    client = ManualStore().connect()

    @client.locked("x", on_busy=lambda busy: "busy")
    def fails() -> str:
        raise AcquireTimeout("another lock")

    with pytest.raises(AcquireTimeout, match="another lock"):
        fails()
    client.close()


def test_a_timeout_inside_an_async_function_is_not_taken_for_a_busy_lock() -> None:
    async def main() -> None:
        async with ManualStore().connect_async() as client:

            @client.locked("x", on_busy=lambda busy: "busy")
            async def fails() -> str:
                raise AcquireTimeout("another lock")

            with pytest.raises(AcquireTimeout, match="another lock"):
                await fails()
            async with client.lock("x").hold(0):
                assert await client.locked("x", timeout=0, on_busy=lambda busy: busy.name)(fails)() == "x"

    asyncio.run(main())


def test_async_functions_are_locked_by_async_clients() -> None:
    async def main() -> str:
        async with leasehold.connect_async("memory://") as client:

            @client.locked("user:{user_id}")
            async def greet(user_id: int) -> str:
                state = await client.inspect(f"user:{user_id}")
                assert state is not None
                return "hello"

            return await greet(3)

    assert asyncio.run(main()) == "hello"


def mistakes(client: leasehold.Client, async_client: leasehold.AsyncClient) -> list[Any]:
    async def asynchronous() -> None: ...
    def plain(a: int) -> None: ...
    def generator() -> Any:
        yield 1

    async def async_generator() -> Any:
        yield 1

    return [
        lambda: client.locked("x:{b}")(plain),
        lambda: client.locked("x:{")(plain),
        lambda: client.locked("x")(asynchronous),
        lambda: client.locked("x")(generator),
        lambda: async_client.locked("x")(plain),  # type: ignore[arg-type]
        lambda: async_client.locked("x")(async_generator),
    ]


@pytest.mark.parametrize("number", range(6))
def test_a_mistake_shows_when_the_decorator_is_applied(number: int) -> None:
    store = ManualStore()
    with pytest.raises(ConfigurationError):
        mistakes(store.connect(), store.connect_async())[number]()


def test_a_template_does_not_reach_private_attributes() -> None:
    client = ManualStore().connect()

    @client.locked("x:{a.__class__}")
    def peek(a: int) -> None: ...

    with pytest.raises(ConfigurationError, match="private"):
        peek(1)
