"""FastAPI and Starlette: a lock as a dependency, what the caller is told, and when the lock is free again."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Path
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import leasehold
from leasehold import AsyncLease, IdempotencyMiddleware, events
from leasehold.errors import (
    AcquireTimeout,
    BackendRejected,
    BackendUnavailable,
    ConfigurationError,
    FenceAhead,
    PreconditionFailed,
    StaleFence,
)
from leasehold.integrations.fastapi import Locks, _fields, _PathTemplate
from leasehold.integrations.starlette import Locks as StarletteLocks
from leasehold.integrations.starlette import _answer
from leasehold.testing.manual import ManualStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request


class Shop:
    """An application with carts, one lock each, on a store whose clock is turned by hand."""

    def __init__(self, **options: Any) -> None:
        self.store = ManualStore()
        self.client = self.store.connect_async(timeout=0, **options)
        self.locks = Locks(self.client)
        self.app = FastAPI(lifespan=self.locks.lifespan)
        self.locks.answer_errors(self.app)
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.leases: list[AsyncLease] = []
        self.error: Exception | None = None
        self.app.post("/carts/{cart_id}")(self.endpoint())
        self.app.post("/plain/{cart_id}")(self.plain_endpoint())

    def endpoint(self) -> Callable[..., Any]:
        held = self.locks.held("cart:{cart_id}")

        async def pay(cart_id: int, lease: AsyncLease = held) -> dict[str, Any]:
            self.leases.append(lease)
            self.entered.set()
            await self.go.wait()
            if self.error is not None:
                raise self.error
            return {"lock": lease.name, "fence": lease.fence}

        return pay

    def plain_endpoint(self) -> Callable[..., Any]:
        held = self.locks.held("cart:{cart_id}")

        def pay(cart_id: int, lease: AsyncLease = held) -> str:
            self.leases.append(lease)
            self.store.lose(lease)
            return lease.name

        return pay

    async def post(self, path: str = "/carts/7", **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
            return await http.post(path, **options)

    async def is_free(self, name: str = "cart:7") -> bool:
        lease = await self.client.lock(name).try_acquire()
        return lease is not None and await lease.release()


def play(scene: Callable[[Shop], Awaitable[None]]) -> None:
    async def main() -> None:
        shop = Shop()
        async with shop.app.router.lifespan_context(shop.app):
            await asyncio.wait_for(scene(shop), 60)

    asyncio.run(main())


def problem(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, response.json()["title"]


# --- names


def test_the_function_runs_under_the_lock_that_its_path_names() -> None:
    async def scene(shop: Shop) -> None:
        first = asyncio.create_task(shop.post())
        await shop.entered.wait()
        assert not await shop.is_free()
        assert await shop.is_free("cart:8")
        shop.go.set()
        assert (await first).json()["lock"] == "cart:7"
        assert await shop.is_free()

    play(scene)


def test_two_spellings_of_one_number_are_one_lock() -> None:
    async def scene(shop: Shop) -> None:
        shop.go.set()
        assert (await shop.post("/carts/007")).json()["lock"] == "cart:7"
        refused = await shop.post("/carts/seven")
        assert refused.status_code == 422
        assert refused.json()["detail"][0]["loc"] == ["path", "cart_id"]

    play(scene)


def test_a_template_that_a_path_cannot_fill_is_refused_when_the_application_starts() -> None:
    locks = Locks("memory://")
    router = APIRouter(prefix="/tenants/{tenant}")

    held = locks.held("cart:{cart_id}")

    @router.post("/carts/{cart}")
    async def pay(cart: UUID, lease: AsyncLease = held) -> None:
        """Never called."""

    app = FastAPI(lifespan=locks.lifespan)
    app.include_router(router)

    async def start() -> None:
        async with locks.lifespan(app):
            """Never reached."""

    with pytest.raises(ConfigurationError, match=r"needs 'cart_id', but /tenants/\{tenant\}/carts/\{cart\} has no"):
        asyncio.run(start())


def test_a_path_may_be_mounted_under_another_with_parameters_of_its_own() -> None:
    locks = Locks("memory://")
    inner = FastAPI()
    held = locks.held("cart:{tenant}:{cart_id}")

    @inner.post("/carts/{cart_id}")
    async def pay(cart_id: UUID, lease: AsyncLease = held) -> str:
        return lease.name

    app = FastAPI()
    app.router.routes.append(Mount("/tenants/{tenant}", inner))

    async def main() -> str:
        async with locks.lifespan(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
                answer = await http.post("/tenants/acme/carts/6F0D5C3C-0B6A-4C3E-9D0F-6C6A7B8E9F10")
                return str(answer.json())

    assert asyncio.run(main()) == "cart:acme:6f0d5c3c-0b6a-4c3e-9d0f-6c6a7b8e9f10"


def test_a_path_may_be_mounted_twice_and_each_part_has_its_parameters() -> None:
    locks = Locks("memory://")
    inner = FastAPI()
    held = locks.held("cart:{region}:{tenant}:{cart_id}")

    @inner.post("/carts/{cart_id}")
    async def pay(cart_id: int, lease: AsyncLease = held) -> str:
        return lease.name

    app = FastAPI()
    app.router.routes.append(Mount("/in/{region}", routes=[Mount("/of/{tenant}", inner)]))

    async def main() -> str:
        async with locks.lifespan(app):
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as http:
                return str((await http.post("/in/north/of/acme/carts/007")).json())

    assert asyncio.run(main()) == "cart:north:acme:7"


def test_a_parameter_may_have_another_name_in_the_function_than_in_the_path() -> None:
    locks = Locks("memory://")
    app = FastAPI(lifespan=locks.lifespan)
    held = locks.held("cart:{cartId}:{line}")

    @app.post("/carts/{cartId}/{line}")
    async def pay(cart: Annotated[int, Path(alias="cartId")], line: int, lease: AsyncLease = held) -> list[Any]:
        return [cart, line, lease.name]

    async def main() -> Any:
        async with locks.lifespan(app):
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as http:
                return (await http.post("/carts/007/03")).json()

    assert asyncio.run(main()) == [7, 3, "cart:7:3"]


def test_a_lock_that_a_dependency_names_is_free_before_the_caller_has_its_answer() -> None:
    async def scene(shop: Shop) -> None:
        free: list[bool] = []

        def cart() -> str:
            return "cart:9"

        held = shop.locks.held(cart)

        @shop.app.post("/ninth")
        async def ninth(lease: AsyncLease = held) -> str:
            free.append(await shop.client.inspect("cart:9") is None)
            return lease.name

        @shop.app.middleware("http")
        async def look(request: Request, call_next: Any) -> Any:
            answer = await call_next(request)
            free.append(await shop.client.inspect("cart:9") is None)
            return answer

        async with httpx.AsyncClient(transport=httpx.ASGITransport(shop.app), base_url="http://shop") as http:
            assert (await http.post("/ninth")).json() == "cart:9"
        assert free == [False, True]

    play(scene)


@pytest.mark.parametrize("template", ["cart:{cart", "cart:{cart.id}", "cart:{}"])
def test_a_template_that_names_no_parameter_is_refused_at_once(template: str) -> None:
    with pytest.raises(ConfigurationError, match="template"):
        Locks("memory://").held(template)


def test_a_lock_of_a_whole_router_is_the_one_that_its_functions_get() -> None:
    locks = Locks("memory://", timeout=0)
    held = locks.held("tenant:{tenant}")
    router = APIRouter(prefix="/tenants/{tenant}", dependencies=[held])

    @router.post("/report")
    async def report(lease: AsyncLease = held) -> str:
        return lease.name

    app = FastAPI(lifespan=locks.lifespan)
    app.include_router(router)

    async def main() -> str:
        async with locks.lifespan(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
                return str((await http.post("/tenants/acme/report")).json())

    assert asyncio.run(main()) == "tenant:acme"


def test_a_name_from_elsewhere_in_the_request_comes_from_a_dependency() -> None:
    locks = Locks("memory://")
    app = FastAPI(lifespan=locks.lifespan)

    def tenant(x_tenant: str = Header()) -> str:
        return f"tenant:{x_tenant}"

    held = locks.held(tenant)

    @app.post("/reports")
    async def report(lease: AsyncLease = held) -> str:
        return lease.name

    async def main() -> httpx.Response:
        async with locks.lifespan(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
                return await http.post("/reports", headers={"X-Tenant": "acme"})

    assert asyncio.run(main()).json() == "tenant:acme"


# --- answers


def test_a_busy_lock_is_409_and_always_says_when_to_come_back() -> None:
    async def scene(shop: Shop) -> None:
        async with shop.client.lock("cart:7", min_hold=0).hold():
            answer = await shop.post()
        assert problem(answer) == (409, "Busy")
        assert int(answer.headers["retry-after"]) >= 1
        assert "cart:7" not in answer.text, "the names of locks, hosts and processes are not the caller's business"
        assert not shop.leases

    play(scene)


def test_a_paused_lock_is_423_with_the_time_that_is_left() -> None:
    async def scene(shop: Shop) -> None:
        await shop.client.pause("cart:7", reason="audit", duration="10m")
        answer = await shop.post()
        assert problem(answer) == (423, "Paused")
        assert int(answer.headers["retry-after"]) >= 1

    play(scene)


def test_a_lease_that_is_lost_while_the_function_runs_is_never_a_success() -> None:
    async def scene(shop: Shop) -> None:
        first = asyncio.create_task(shop.post())
        await shop.entered.wait()
        shop.store.lose(shop.leases[0])  # `go` is never set: the function is cancelled
        answer = await first
        assert problem(answer) == (503, "Lock lost")
        assert "retry-after" not in answer.headers, "what is half done is not to be repeated blindly"

    play(scene)


def test_a_plain_function_that_returned_after_the_loss_is_no_success_either() -> None:
    async def scene(shop: Shop) -> None:
        assert problem(await shop.post("/plain/7")) == (503, "Lock lost")
        assert len(shop.leases) == 1

    play(scene)


@pytest.mark.parametrize(
    ("error", "status", "come_back"),
    [
        (StaleFence("late", fence=1, highest=2), 412, None),
        (PreconditionFailed("changed", etag='"5"'), 412, None),
        (BackendUnavailable("away"), 503, "1"),
        (AcquireTimeout("busy", retry_after=None), 409, "1"),
        (AcquireTimeout("busy", retry_after=6.5), 409, "7"),
        (leasehold.VersionConflict("changed"), 409, None),
        (leasehold.RetryTransaction("again"), 503, "1"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_errors_of_the_function_are_answered_and_its_lock_is_free(
    error: Exception, status: int, come_back: str | None
) -> None:
    async def scene(shop: Shop) -> None:
        shop.error = error
        shop.go.set()
        answer = await shop.post()
        assert answer.status_code == status
        assert answer.headers.get("retry-after") == come_back
        assert answer.headers.get("etag") == getattr(error, "etag", None)
        assert await shop.is_free()

    play(scene)


@pytest.mark.parametrize("error", [BackendRejected("no rights"), FenceAhead("the store has lost its state")])
def test_what_an_operator_has_to_see_is_not_answered_away(error: Exception) -> None:
    async def scene(shop: Shop) -> None:
        shop.error = error
        shop.go.set()
        with pytest.raises(type(error)):
            await shop.post()

    play(scene)


# --- life


def test_a_cancelled_request_frees_its_lock_at_once_and_leaves_the_queue() -> None:
    async def scene(shop: Shop) -> None:
        first = asyncio.create_task(shop.post())
        await shop.entered.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await shop.is_free()

    play(scene)


def test_a_lock_is_free_before_the_caller_has_its_answer() -> None:
    async def scene(shop: Shop) -> None:
        free: list[bool] = []

        @shop.app.middleware("http")
        async def look(request: Request, call_next: Any) -> Any:
            answer = await call_next(request)
            free.append(await shop.is_free())
            return answer

        shop.go.set()
        assert (await shop.post()).status_code == 200
        assert free == [True]

    play(scene)


def test_the_client_opens_with_the_application_and_gives_everything_back_at_its_end() -> None:
    store = "memory://lifespan"
    locks = Locks(store, namespace="shop")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with locks.lifespan(app):
            yield

    app = FastAPI(lifespan=lifespan)

    async def run() -> AsyncLease:
        async with app.router.lifespan_context(app):
            with pytest.raises(ConfigurationError, match="runs already"):
                await locks.lifespan(app).__aenter__()
            return await locks.client.lock("x").acquire()

    first, second = asyncio.run(run()), asyncio.run(run())  # two applications in turn, as tests have them
    assert second.fence > first.fence
    assert first.lost.is_set()
    with pytest.raises(ConfigurationError, match="lifespan"):
        _ = locks.client


def test_options_of_a_client_that_exists_are_refused() -> None:
    client = ManualStore().connect_async()
    with pytest.raises(ConfigurationError, match="connect_async"):
        Locks(client, ttl=5)


def test_starlette_has_the_same_client_and_answers() -> None:
    locks = StarletteLocks("memory://", timeout=0)

    async def pay(request: Request) -> PlainTextResponse:
        name = f"cart:{request.path_params['cart_id']}"
        async with locks.client.lock(name).hold(), locks.client.lock(name).hold():
            return PlainTextResponse("never")

    app = Starlette(routes=[Route("/carts/{cart_id}", pay, methods=["POST"])], lifespan=locks.lifespan)
    locks.answer_errors(app)

    async def main() -> httpx.Response:
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
                return await http.post("/carts/7")

    assert problem(asyncio.run(main())) == (409, "Busy")


# --- with idempotency keys


@pytest.mark.parametrize("trouble", ["busy", "paused", "lost", "late"])
def test_a_refusal_is_not_replayed_and_the_same_key_runs_when_it_is_over(trouble: str) -> None:
    async def scene(shop: Shop) -> None:
        shop.app.add_middleware(IdempotencyMiddleware, idempotency=shop.client.idempotency("pay"), principal=None)
        key: dict[str, Any] = {"headers": {"Idempotency-Key": "one"}}
        if trouble == "busy":
            async with shop.client.lock("cart:7").hold():
                assert (await shop.post(**key)).status_code == 409
        elif trouble == "paused":
            await shop.client.pause("cart:7", reason="audit")
            assert (await shop.post(**key)).status_code == 423
            await shop.client.resume("cart:7")
        elif trouble == "lost":
            first = asyncio.create_task(shop.post(**key))
            await shop.entered.wait()
            shop.store.lose(shop.leases[0])
            assert (await first).status_code == 503
        else:
            shop.error = StaleFence("late")
            shop.go.set()
            assert (await shop.post(**key)).status_code == 412
        shop.error = None
        shop.go.set()
        done = await shop.post(**key)
        assert done.status_code == 200
        async with shop.client.lock("cart:7").hold():  # a replay needs no lock
            again = await shop.post(**key)
        assert again.headers["idempotent-replayed"] == "true"
        assert again.json() == done.json()

    play(scene)


# --- options and templates


def test_options_and_groups_of_a_dependency_are_those_of_its_lock() -> None:
    locks = Locks("memory://", timeout=0)
    app = FastAPI(lifespan=locks.lifespan)
    by_path = locks.held("cart:{cart_id}", ttl=7, reason="paying")
    by_name = locks.held(lambda: "till", ttl=8, timeout=0.01)
    own_group = locks.held("order:{cart_id}", group="orders")

    @app.post("/carts/{cart_id}")
    async def pay(
        cart_id: int, lease: AsyncLease = by_path, till: AsyncLease = by_name, order: AsyncLease = own_group
    ) -> list[Any]:
        return [lease.ttl, lease.holder.reason, till.name, till.ttl, order.name]

    async def main() -> None:
        async with locks.lifespan(app):
            groups: list[Any] = []
            locks.client.on_event(
                lambda event: groups.append(event.group) if isinstance(event, events.Acquired) else None
            )
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as http:
                assert (await http.post("/carts/7")).json() == [7, "paying", "till", 8, "order:7"]
                assert groups == ["cart:{cart_id}", None, "orders"]
                locks.answer_errors(app)

    asyncio.run(main())


@pytest.mark.parametrize(("kind", "timeout"), [(Locks, 5.0), (StarletteLocks, 5.0)])
def test_a_request_waits_five_seconds_unless_something_else_is_said(kind: Any, timeout: float) -> None:
    async def main() -> None:
        app = Starlette()
        for given, expected in (({}, timeout), ({"timeout": 2}, 2.0), ({"timeout": None}, None)):
            locks = kind("memory://", **given)
            async with locks.lifespan(app):
                assert locks.client._timeout == expected

    asyncio.run(main())


@pytest.mark.parametrize(
    ("template", "fields"),
    [("cart", ()), ("cart:{a}", ("a",)), ("{a}:{b}:{a}", ("a", "b", "a")), ("{{a}}:{b}", ("b",))],
)
def test_a_template_names_parameters_of_a_path(template: str, fields: tuple[str, ...]) -> None:
    assert _fields(template) == fields


def test_a_function_that_was_added_after_the_start_is_checked_when_it_is_called() -> None:
    locks = Locks("memory://")
    app = FastAPI(lifespan=locks.lifespan)
    held = locks.held("cart:{cart_id}")

    async def main() -> None:
        async with locks.lifespan(app):

            @app.post("/late/{cart}")
            async def pay(cart: int, lease: AsyncLease = held) -> None:
                """Never called."""

            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as http:
                with pytest.raises(ConfigurationError, match=r"needs 'cart_id', but /late/\{cart\}"):
                    await http.post("/late/7")

    asyncio.run(main())


@pytest.mark.parametrize(("known", "has"), [((), "none"), (("b", "a"), "a, b")])
def test_a_template_that_cannot_be_filled_says_what_there_is(known: tuple[str, ...], has: str) -> None:
    names = _PathTemplate("cart:{cart}:{a}")
    with pytest.raises(ConfigurationError, match=rf"needs 'cart', but /carts has no such parameter; it has {has}\."):
        names.check("/carts", known)


def test_a_parameter_is_read_with_the_type_that_the_function_itself_gives_it() -> None:
    """A dependency may read the same parameter as text."""
    locks = Locks("memory://")
    app = FastAPI(lifespan=locks.lifespan)
    held = locks.held("cart:{cart_id}")

    def look(cart_id: str) -> str:
        return cart_id

    @app.post("/carts/{cart_id}")
    async def pay(cart_id: int, seen: str = Depends(look), lease: AsyncLease = held) -> list[str]:
        return [seen, lease.name]

    @app.post("/plain/{cart_id}")
    async def plain(lease: AsyncLease = held) -> str:
        return lease.name

    async def main() -> None:
        async with locks.lifespan(app):
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as http:
                assert (await http.post("/carts/007")).json() == ["007", "cart:7"]
                assert (await http.post("/plain/007")).json() == "cart:007"

    asyncio.run(main())


def test_when_the_application_stops_what_is_held_is_given_back_and_the_client_is_gone() -> None:
    store = ManualStore()
    locks = StarletteLocks(store)
    app = Starlette()

    async def main() -> None:
        for error in (None, ZeroDivisionError()):
            with suppress(ZeroDivisionError):
                async with locks.lifespan(app):
                    lease = await locks.client.lock("x").acquire()
                    if error is not None:
                        raise error
            assert store.memory.list("") == []
            assert lease.lost.is_set()
            with pytest.raises(ConfigurationError):
                _ = locks.client

    asyncio.run(main())


def test_an_error_that_is_no_answer_is_raised_again() -> None:
    error = FenceAhead("the store has lost its state")
    request: Any = None
    with pytest.raises(FenceAhead):
        asyncio.run(_answer(request, error))
    answer = asyncio.run(_answer(request, AcquireTimeout("busy", retry_after=7)))
    assert (answer.status_code, answer.headers["retry-after"]) == (409, "7")
