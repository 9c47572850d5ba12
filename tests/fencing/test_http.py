"""A fence over HTTP: what a client sends, what a service refuses, and whom it believes."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import httpx
import psycopg
import pytest
import redis.asyncio
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

import leasehold
from leasehold.errors import ConfigurationError, StaleFence
from leasehold.fencing.asgi import FenceMiddleware, MemoryRegister, RedisRegister, fence_of
from leasehold.fencing.http import (
    HEADER,
    fence_headers,
    fence_hooks,
    fence_hooks_async,
    parse_fence,
    raise_if_stale,
)
from leasehold.sql import DatabaseRegister, guard, guard_async
from tests.sql.desks import fresh_schema, sqlalchemy_url
from tests.waiting import two_in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

KNOWN = {"Authorization": "Bearer a known caller"}
WRITTEN: list[int] = []


@pytest.fixture
def client() -> Iterator[leasehold.Client]:
    WRITTEN.clear()
    with leasehold.connect("memory://") as client:
        yield client


async def write(request: Request) -> JSONResponse:
    WRITTEN.append(fence_of(request.scope))
    return JSONResponse({"fence": fence_of(request.scope)})


async def read(request: Request) -> PlainTextResponse:
    return PlainTextResponse("read")


def is_known(scope: Any) -> bool:
    return (b"authorization", KNOWN["Authorization"].encode()) in scope["headers"]


def service(**options: Any) -> httpx.ASGITransport:
    routes = [Route("/orders/{id}", write, methods=["PUT", "DELETE"]), Route("/orders/{id}", read, methods=["GET"])]
    words: dict[str, Any] = {
        "resource": lambda scope: scope["path"],
        "authenticated": is_known,
        "register": MemoryRegister(),
        **options,
    }
    return httpx.ASGITransport(FenceMiddleware(Starlette(routes=routes), **words))


def ask(
    transport: httpx.ASGITransport, method: str = "PUT", headers: Any = None, path: str = "/orders/1"
) -> httpx.Response:
    async def main() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
            return await http.request(method, path, headers=headers)

    return asyncio.run(main())


def test_late_request_is_answered_with_412_and_the_highest_fence(client: leasehold.Client) -> None:
    stale, current = two_in_turn(client.lock("order:1"))
    transport = service()
    for _ in range(2):
        accepted = ask(transport, headers={**KNOWN, **fence_headers(current)})
        assert accepted.json() == {"fence": current.fence}
    refused = ask(transport, headers={**KNOWN, **fence_headers(stale)})
    assert refused.status_code == 412
    assert refused.headers[HEADER] == str(current.fence)
    assert refused.headers["content-type"] == "application/problem+json"
    assert (refused.json()["fence"], refused.json()["highest"]) == (stale.fence, current.fence)
    assert len(WRITTEN) == 2
    assert set(WRITTEN) == {current.fence}
    assert ask(transport, path="/orders/2", headers={**KNOWN, **fence_headers(stale)}).status_code == 200


def test_fence_of_an_unknown_caller_is_not_even_looked_at() -> None:
    register = MemoryRegister()
    transport = service(register=register)
    assert ask(transport, headers={HEADER: "9007199254740991"}).status_code == 403
    assert ask(transport, headers={HEADER: "nonsense"}).status_code == 403
    assert ask(transport, headers={**KNOWN, HEADER: "5"}).status_code == 200


def test_caller_may_be_recognised_by_something_that_is_awaited() -> None:
    async def later(scope: Any) -> bool:
        await asyncio.sleep(0)
        return is_known(scope)

    transport = service(authenticated=later)
    assert ask(transport, headers={HEADER: "5"}).status_code == 403
    assert ask(transport, headers={**KNOWN, HEADER: "5"}).status_code == 200


@pytest.mark.parametrize("text", ["", "0", "-1", "+5", "05", "5.0", " 5 5", "5,6", "9007199254740992", "1e3", "\u0665"])
def test_what_is_no_fence_is_answered_with_400(text: str) -> None:
    response = ask(service(), headers=[*KNOWN.items(), (HEADER, text.encode())])
    assert response.status_code == 400


def test_two_fences_in_one_request_are_refused() -> None:
    response = ask(service(), headers=[*KNOWN.items(), (HEADER, "5"), (HEADER, "6")])
    assert response.status_code == 400


def test_write_without_a_fence_is_answered_with_428_unless_fences_are_optional() -> None:
    assert ask(service(), headers=KNOWN).status_code == 428
    routes = [Route("/orders/{id}", read, methods=["PUT"])]
    optional = FenceMiddleware(
        Starlette(routes=routes), resource=lambda scope: scope["path"], authenticated=is_known, required=False
    )
    assert ask(httpx.ASGITransport(optional), headers=KNOWN).status_code == 200


def test_reads_and_what_is_no_resource_need_no_fence() -> None:
    assert ask(service(), "GET").status_code == 200
    routes = [Route("/health", read, methods=["POST"])]
    app = FenceMiddleware(
        Starlette(routes=routes),
        resource=lambda scope: None if scope["path"] == "/health" else scope["path"],
        authenticated=is_known,
    )
    assert ask(httpx.ASGITransport(app), "POST", path="/health").status_code == 200


def test_websockets_and_lifespan_pass_untouched() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    middleware = FenceMiddleware(app, resource=lambda scope: "all", authenticated=lambda scope: False)

    async def nothing(*_: Any) -> Any:
        return {}

    for kind in ("lifespan", "websocket"):
        asyncio.run(middleware({"type": kind}, nothing, nothing))
    assert seen == ["lifespan", "websocket"]


@pytest.mark.parametrize("place", ["outside", "inside"])
def test_guard_of_the_handler_is_answered_with_412_too(postgres: Any, client: leasehold.Client, place: str) -> None:
    """This is what closes the gap between the look at the header and the write."""
    url = fresh_schema(postgres)
    stale, current = two_in_turn(client.lock("order:1"))
    engine = create_async_engine(sqlalchemy_url(url))
    with psycopg.connect(url) as connection:
        guard(connection, current.fence, resource="/orders/1")

    async def handler(request: Request) -> JSONResponse:
        async with engine.begin() as tx:
            await guard_async(tx, fence_of(request.scope), resource=request.url.path)
        return JSONResponse({"fence": fence_of(request.scope)})

    words: dict[str, Any] = {"resource": lambda scope: scope["path"], "authenticated": is_known}
    routes = [Route("/orders/{id}", handler, methods=["PUT"])]
    app: Any = FenceMiddleware(Starlette(routes=routes), **words)
    if place == "inside":
        app = Starlette(routes=routes, middleware=[Middleware(FenceMiddleware, **words)])

    async def main() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as http:
            answers = [
                await http.put("/orders/1", headers={**KNOWN, **fence_headers(lease)}) for lease in (stale, current)
            ]
        await engine.dispose()
        assert answers[0].headers[HEADER] == str(current.fence)
        return [answer.status_code for answer in answers]

    assert asyncio.run(main()) == [412, 200]


def test_refusal_after_the_answer_has_begun_is_not_hidden() -> None:
    async def late() -> Any:
        yield b"first"
        raise StaleFence("too late", fence=1, highest=2)

    async def handler(request: Request) -> StreamingResponse:
        return StreamingResponse(late())

    app = FenceMiddleware(
        Starlette(routes=[Route("/x", handler, methods=["PUT"])]),
        resource=lambda scope: scope["path"],
        authenticated=is_known,
    )
    with pytest.raises(StaleFence, match="too late"):
        ask(httpx.ASGITransport(app), path="/x", headers={**KNOWN, HEADER: "1"})


def test_other_errors_of_the_handler_are_answered_and_raised_as_without_us() -> None:
    async def handler(request: Request) -> JSONResponse:
        raise KeyError

    app = FenceMiddleware(
        Starlette(routes=[Route("/x", handler, methods=["PUT"])]),
        resource=lambda scope: scope["path"],
        authenticated=is_known,
    )
    headers = {**KNOWN, HEADER: "1"}
    assert ask(httpx.ASGITransport(app, raise_app_exceptions=False), path="/x", headers=headers).status_code == 500
    with pytest.raises(KeyError):
        ask(httpx.ASGITransport(app), path="/x", headers=headers)


def test_500_that_the_handler_chose_itself_is_passed_on() -> None:
    async def handler(request: Request) -> PlainTextResponse:
        return PlainTextResponse("broken", 500)

    app = FenceMiddleware(
        Starlette(routes=[Route("/x", handler, methods=["PUT"])]),
        resource=lambda scope: scope["path"],
        authenticated=is_known,
    )
    answer = ask(httpx.ASGITransport(app), path="/x", headers={**KNOWN, HEADER: "1"})
    assert (answer.status_code, answer.text) == (500, "broken")


@pytest.mark.parametrize("kind", ["redis", "postgresql"])
def test_register_may_be_shared_by_all_processes(kind: str, request: pytest.FixtureRequest) -> None:
    async def main() -> None:
        register: Any
        close: Any
        if kind == "redis":
            server = request.getfixturevalue("redis_server")
            server.flush()
            connection = redis.asyncio.Redis.from_url(server.url)
            register, close = RedisRegister(connection), connection.connection_pool.disconnect
        else:
            engine = create_async_engine(sqlalchemy_url(fresh_schema(request.getfixturevalue("postgres"))))
            register, close = DatabaseRegister(engine.begin), engine.dispose
        await register.raise_fence("/orders/1", 34)
        await register.raise_fence("/orders/1", 34)
        await register.raise_fence("/orders/2", 33)
        with pytest.raises(StaleFence) as caught:
            await register.raise_fence("/orders/1", 33)
        assert caught.value.highest == 34
        await close()

    asyncio.run(main())


# --- the client's side


def test_hooks_send_the_fence_and_raise_what_the_service_refused(client: leasehold.Client) -> None:
    stale, current = two_in_turn(client.lock("order:1"))
    transport = service()

    async def main() -> None:
        for lease in (current, stale):
            async with httpx.AsyncClient(
                transport=transport, base_url="http://service", headers=KNOWN, event_hooks=fence_hooks_async(lease)
            ) as http:
                if lease is current:
                    assert (await http.put("/orders/1")).status_code == 200
                else:
                    with pytest.raises(StaleFence) as caught:
                        await http.put("/orders/1")
                    assert (caught.value.fence, caught.value.highest) == (stale.fence, current.fence)

    asyncio.run(main())


def test_blocking_hooks_do_the_same_and_feed_back(client: leasehold.Client) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        WRITTEN.append(int(request.headers[HEADER]))
        return httpx.Response(412, headers={HEADER: "5000"}) if WRITTEN[-1] < 5000 else httpx.Response(204)

    def send(lease: leasehold.Lease) -> int:
        with httpx.Client(transport=httpx.MockTransport(handle), event_hooks=fence_hooks(lease)) as http:
            return http.put("http://service/x").status_code

    with client.lock("order").hold() as lease, pytest.raises(StaleFence):
        send(lease)
    with client.lock("order").hold() as lease:
        assert send(lease) == 204
        assert lease.fence > 5000


def test_412_about_something_else_is_left_alone(client: leasehold.Client) -> None:
    with client.lock("order").hold() as lease:
        raise_if_stale(httpx.Response(412), lease)
        raise_if_stale(httpx.Response(409, headers={HEADER: "9"}), lease)
        raise_if_stale(httpx.Response(412, headers={HEADER: "nonsense"}), lease)
        with pytest.raises(StaleFence):
            raise_if_stale(httpx.Response(412, headers={HEADER: "9"}), lease)


def test_lease_that_is_shared_is_not_sent(client: leasehold.Client) -> None:
    with client.rwlock("order").read.hold() as lease, pytest.raises(ConfigurationError, match="exclusive"):
        fence_headers(lease)
    with client.semaphore("pool", 2).hold() as lease, pytest.raises(ConfigurationError, match="semaphore"):
        fence_headers(lease)


def test_number_will_do() -> None:
    assert fence_headers(34) == {"Fencing-Token": "34"}
    assert parse_fence("34") == 34


def test_guard_takes_the_number_from_a_request(tmp_path: Any) -> None:
    with closing(sqlite3.connect(tmp_path / "data.db")) as database, database:
        guard(database, fence_of({"leasehold.fence": 34}), resource="/orders/1")
