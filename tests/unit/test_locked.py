"""The decorator: names from arguments, busy answers, and mistakes that show at import."""

from __future__ import annotations

import asyncio
import functools
from types import SimpleNamespace
from typing import Any

import pytest

import leasehold
from leasehold import Backoff, events
from leasehold._face.name_template import NameTemplate
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


def order(number: int, kind: str | None = None, *parts: str, lease: Any = None, **more: Any) -> None:
    """A function of all kinds of parameters."""


@pytest.mark.parametrize(
    ("template", "given", "name"),
    [
        ("fixed", ((7,), {}), "fixed"),
        ("{number}", ((7,), {}), "7"),
        ("{number:04d}/{kind}", ((), {"number": 7, "kind": "air"}), "0007/air"),
        ("{kind}", ((7,), {}), "None"),  # its default
        ("{parts[1]}", ((7, "air", "a", "b"), {}), "b"),
        ("{more[colour]}", ((7,), {"colour": "red"}), "red"),
        ("{kind!r}", ((7, "air"), {}), "'air'"),
        ("{{{number}}}", ((7,), {}), "{7}"),
    ],
)
def test_how_a_name_is_made(template: str, given: tuple[tuple[Any, ...], dict[str, Any]], name: str) -> None:
    assert NameTemplate(template, order).name(*given) == name


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{nubmer}", "uses 'nubmer', but order takes kind, lease, more, number, parts"),
        ("{order.id}", "uses 'order'"),
        ("{orders[0]}", "uses 'orders'"),
        ("{}", "uses ''"),
        ("{number", "cannot be read"),
    ],
)
def test_a_template_that_does_not_fit_is_refused_at_once(template: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        NameTemplate(template, order)


def test_a_name_is_not_made_of_nothing() -> None:
    def ship(thing: Any, kind: Any = None) -> None: ...

    nothing = SimpleNamespace(id=None, _secret=7)
    with pytest.raises(ConfigurationError, match=r"thing\.id is None in this call"):
        NameTemplate("{thing.id}", ship).name((nothing,), {})
    assert NameTemplate("{kind.id}", ship).name((1, nothing), {}) == "None"
    with pytest.raises(ConfigurationError, match="private attribute"):
        NameTemplate("{thing._secret}", ship).name((nothing,), {})


@pytest.mark.parametrize(
    ("given", "lease"),
    [(((7,), {}), "ours"), (((7,), {"kind": "air"}), "ours"), (((7,), {"lease": "theirs"}), "theirs")],
)
def test_the_lease_is_put_where_the_caller_left_it_out(
    given: tuple[tuple[Any, ...], dict[str, Any]], lease: str
) -> None:
    args, kwargs = given
    assert NameTemplate("x", order).with_lease(args, kwargs, "ours") == {**kwargs, "lease": lease}

    def early(lease: Any, number: int) -> None: ...
    def without(number: int) -> None: ...

    assert NameTemplate("x", early).with_lease(("theirs", 7), {}, "ours") == {}
    assert NameTemplate("x", without).with_lease((7,), {}, "ours") == {}


def test_a_name_is_made_of_public_attributes_and_items_whatever_is_within_their_names() -> None:
    def ship(order: Any, by_day: dict[str, int]) -> None: ...

    template = NameTemplate("{order.customer_id}:{order.line_items[0]}:{by_day[_id]}", ship)
    assert template.name((SimpleNamespace(customer_id=7, line_items=[8]), {"_id": 9}), {}) == "7:8:9"
    for field in ("order._id", "order.customer_id._id", "order.line_items[0].__class__"):
        with pytest.raises(ConfigurationError, match="private attribute"):
            NameTemplate(f"{{{field}}}", ship).name((SimpleNamespace(customer_id=7, line_items=[8], _id=1), {}), {})


class Face:
    """Both faces as one: `call` decorates a function and calls it."""

    def __init__(self, is_async: bool, **options: Any) -> None:
        self.is_async = is_async
        self.store = ManualStore()
        self.other = self.store.connect()
        self.options = options
        self.seen: list[Any] = []

    def call(self, work: Any, *args: Any, **decoration: Any) -> Any:
        if self.is_async:
            return asyncio.run(self._call_async(work, args, decoration))
        with self.store.connect(**self.options) as client:
            client.on_event(self.seen.append)
            return client.locked("order:{number}", **decoration)(work)(*args)

    async def _call_async(self, work: Any, args: tuple[Any, ...], decoration: dict[str, Any]) -> Any:
        @functools.wraps(work)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            return work(*args, **kwargs)

        async with self.store.connect_async(**self.options) as client:
            client.on_event(self.seen.append)
            decorated = client.locked("order:{number}", **decoration)(asynchronous)
            assert decorated.__name__ == work.__name__
            return await decorated(*args)


both_faces = pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])


@both_faces
def test_a_decorated_call_runs_under_its_own_lock_with_the_options_of_the_decorator(is_async: bool) -> None:
    face = Face(is_async)

    def ship(number: int, lease: Any = leasehold.CURRENT) -> tuple[Any, ...]:
        assert face.other.lock("order:7").try_acquire() is None
        return number, lease.name, lease.ttl, lease.holder.reason, type(lease)

    expected = (7, "order:7", 9.0, "audit", leasehold.AsyncLease if is_async else leasehold.Lease)
    assert face.call(ship, 7, ttl=9, reason="audit") == expected
    assert [event.group for event in face.seen if isinstance(event, events.Acquired)] == ["order:{number}"]
    assert face.other.inspect("order:7") is None
    assert face.call(ship, 7, ttl=9, reason="audit", group="shop") == expected
    assert face.seen[-2].group == "shop"


@both_faces
@pytest.mark.parametrize(("of_client", "of_decorator"), [(0, ...), (None, 0), (3600, 0)], ids=str)
def test_a_decorated_call_has_the_timeout_of_its_client_unless_it_has_its_own(
    is_async: bool, of_client: Any, of_decorator: Any
) -> None:
    face = Face(is_async, timeout=of_client)
    with face.other.lock("order:7", ttl=36_000).hold(), pytest.raises(AcquireTimeout, match="at once"):
        face.call(lambda number: None, 7, timeout=of_decorator)


@both_faces
def test_a_decorated_call_waits_as_its_decorator_says(is_async: bool) -> None:
    face, heard = Face(is_async), list[Any]()
    how = {"backoff": Backoff(("1ms",), tries=3), "on_wait": lambda *facts: heard.append(facts)}
    with face.other.lock("order:7").hold(), pytest.raises(AcquireTimeout, match="and 3 tries"):
        face.call(lambda number: None, 7, timeout=None, **how)
    assert heard[0][0] is None, "there is no place in a queue"


@both_faces
@pytest.mark.parametrize("on_busy", [7, False, "busy"])
def test_what_cannot_be_called_when_a_lock_is_busy_is_refused_by_the_decorator(is_async: bool, on_busy: Any) -> None:
    store = ManualStore()
    client: Any = store.connect_async() if is_async else store.connect()
    with pytest.raises(ConfigurationError, match="on_busy must be a function"):
        client.locked("x", on_busy=on_busy)
    store.close()


@both_faces
def test_a_busy_call_may_be_taken_away_and_made_later_under_the_lock(is_async: bool) -> None:
    face, taken = Face(is_async), list[Any]()

    def later(busy: AcquireTimeout, call: Any) -> str:
        taken.append((busy.name, call.args, call.keywords))
        return "later"

    with face.other.lock("order:7").hold():
        assert face.call(lambda number: "now", 7, timeout=0, on_busy=later) == "later"
    assert taken == [("order:7", (7,), {})]
