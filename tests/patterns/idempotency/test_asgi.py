"""The ASGI middleware for idempotency keys, around real Starlette and FastAPI applications."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI, HTTPException, Request
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from leasehold import ConfigurationError, IdempotencyMiddleware, LeaseLost, RetryKey, connect, connect_async
from leasehold.testing.manual import ManualStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

KEY = {"Idempotency-Key": "k-1", "X-User": "alice"}
STARTED = 409, "Request in flight"


def user(scope: Any) -> str | None:
    return dict(scope["headers"]).get(b"x-user", b"").decode() or None


class Shop:
    """A service with several answers, and a count of how often it did its work."""

    def __init__(self, store: ManualStore, *, on_starlette: bool = False, **options: Any) -> None:
        self.store = store
        self.client = store.connect_async()
        self.charges: list[Any] = []
        self.entered, self.go = asyncio.Event(), asyncio.Event()
        self.status = 201
        self.size = 10
        self.pause = 0.0
        self.after = 0
        keys = {name: options.pop(name) for name in list(options) if name in ("outage", "outage_after", "wait", "ttl")}
        options = {"principal": user, **options}
        self.keys = self.client.idempotency("shop", **keys)
        app: Any = self._starlette() if on_starlette else self._fastapi()
        app.add_middleware(IdempotencyMiddleware, idempotency=self.keys, **options)
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://x"
        )

    async def post(self, path: str = "/charge", headers: Any = KEY, **request: Any) -> httpx.Response:
        return await self.http.post(path, headers=headers, **({"json": {"amount": 1}} | request))

    async def charge(self, request: Request) -> Response:
        body = await request.json()
        self.charges.append(body)
        headers = {"Location": f"/charges/{len(self.charges)}", "Set-Cookie": "session=secret"}
        return JSONResponse({"charge": len(self.charges), **body}, self.status, headers)

    async def slow(self, _request: Request) -> Response:
        self.entered.set()
        await self.go.wait()
        return await self.plain(_request)

    async def plain(self, _request: Request) -> Response:
        self.charges.append(None)
        return PlainTextResponse(f"charge {len(self.charges)}")

    async def fail(self, _request: Request) -> Response:
        self.charges.append(None)
        raise ZeroDivisionError

    async def stream(self, _request: Request) -> Response:
        self.charges.append(None)

        async def parts() -> AsyncIterator[bytes]:
            for number in range(self.size):
                await asyncio.sleep(self.pause)
                yield b"%09d " % number
            if self.status >= 600:
                raise ZeroDivisionError

        return StreamingResponse(parts(), media_type="text/plain")

    async def background(self, _request: Request) -> Response:
        self.charges.append(None)

        async def later() -> None:
            self.entered.set()
            await self.go.wait()
            self.after += 1

        return PlainTextResponse("soon", background=BackgroundTask(later))

    def _starlette(self) -> Starlette:
        names = ("charge", "slow", "plain", "fail", "stream", "background")
        return Starlette(routes=[Route(f"/{name}", getattr(self, name), methods=["POST", "PUT"]) for name in names])

    def _fastapi(self) -> FastAPI:
        app = FastAPI()

        async def pay(amount: int, request: Request) -> dict[str, int]:
            if amount < 0:
                raise HTTPException(402, "declined")
            self.charges.append(amount)
            return {"charge": len(self.charges), "fence": request.scope["leasehold.attempt"].fence}

        app.post("/pay/{amount}", status_code=201)(pay)
        for name in ("charge", "slow", "plain", "fail", "stream", "background"):
            app.add_route(f"/{name}", getattr(self, name), methods=["POST", "PUT"])
        return app


def served(scene: Callable[[Shop], Awaitable[None]], **options: Any) -> None:
    """Play a scene on both frameworks."""

    async def play(on_starlette: bool) -> None:
        shop = Shop(ManualStore(), on_starlette=on_starlette, **options)
        async with shop.client, shop.http:
            await scene(shop)

    for on_starlette in (True, False):
        asyncio.run(play(on_starlette))


def problem(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json"
    facts = response.json()
    assert facts["status"] == response.status_code
    assert facts["detail"]
    return response.status_code, facts["title"]


# --- replay


def test_a_replay_has_status_chosen_headers_and_bytes_of_the_first_response() -> None:
    async def scene(shop: Shop) -> None:
        first = await shop.post()
        again = await shop.post(headers={**KEY, "Idempotency-Key": '"k-1"'})
        assert (first.status_code, first.json()) == (201, {"charge": 1, "amount": 1})
        assert (again.status_code, again.content) == (201, first.content)
        assert again.headers["location"] == first.headers["location"] == "/charges/1"
        assert again.headers["content-type"] == first.headers["content-type"]
        assert again.headers["idempotent-replayed"] == "true"
        assert "idempotent-replayed" not in first.headers
        assert "set-cookie" in first.headers
        assert "set-cookie" not in again.headers
        assert len(shop.charges) == 1

    served(scene)


def test_keys_of_other_callers_routes_and_methods_are_other_keys() -> None:
    async def scene(shop: Shop) -> None:
        await shop.post()
        assert (await shop.post(headers={**KEY, "X-User": "bob"})).json()["charge"] == 2
        assert (await shop.post("/plain")).text == "charge 3"
        assert (await shop.http.put("/plain", headers=KEY)).text == "charge 4"
        assert (await shop.http.put("/plain", headers=KEY)).text == "charge 5"  # PUT is idempotent by itself

    served(scene)


def test_another_payload_is_answered_with_422() -> None:
    async def scene(shop: Shop) -> None:
        await shop.post()
        assert problem(await shop.post(json={"amount": 2})) == (422, "Idempotency key reused")
        assert problem(await shop.post(params={"to": "b"})) == (422, "Idempotency key reused")
        assert (await shop.post()).headers["idempotent-replayed"] == "true"
        assert len(shop.charges) == 1

    served(scene)


def test_a_fingerprint_may_be_a_part_of_the_payload() -> None:
    async def scene(shop: Shop) -> None:
        first = await shop.post(content=b'{"amount": 1}')
        assert (await shop.post(content=b'{"amount":1}')).content == first.content
        assert problem(await shop.post(json={"amount": 2}))[0] == 422

    import json

    served(scene, fingerprint=lambda _, body: json.loads(body)["amount"])


@pytest.mark.parametrize(
    "headers",
    [
        {"X-User": "alice"},
        {"X-User": "alice", "Idempotency-Key": ""},
        {"X-User": "alice", "Idempotency-Key": "two words"},
        {"X-User": "alice", "Idempotency-Key": "x" * 256},
        [("X-User", "alice"), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")],
    ],
)
def test_a_missing_or_invalid_key_is_answered_with_400(headers: Any) -> None:
    async def scene(shop: Shop) -> None:
        assert problem(await shop.post(headers=headers)) == (400, "Idempotency key missing or invalid")
        assert shop.charges == []

    served(scene)


def test_a_key_may_be_left_out_where_it_is_not_required() -> None:
    async def scene(shop: Shop) -> None:
        for number in (1, 2):
            assert (await shop.post(headers={"X-User": "alice"})).json()["charge"] == number
        assert problem(await shop.post(headers={**KEY, "Idempotency-Key": "two words"}))[0] == 400
        await shop.post()
        assert (await shop.post()).headers["idempotent-replayed"] == "true"

    served(scene, required=False)


def test_routes_that_are_left_out_and_unknown_callers_are_passed_on() -> None:
    async def scene(shop: Shop) -> None:
        for number in (1, 2):
            assert (await shop.post("/plain")).text == f"charge {number}"
        for number in (3, 4):
            assert (await shop.post(headers={"Idempotency-Key": "k"})).json()["charge"] == number

    served(scene, applies=lambda scope: scope["path"] != "/plain")


def test_all_callers_share_their_keys_where_that_was_asked_for() -> None:
    async def scene(shop: Shop) -> None:
        await shop.post()
        assert (await shop.post(headers={**KEY, "X-User": "bob"})).headers["idempotent-replayed"] == "true"

    served(scene, principal=None)


def test_a_principal_may_be_awaited() -> None:
    async def who(scope: Any) -> str | None:
        return user(scope)

    async def scene(shop: Shop) -> None:
        await shop.post()
        assert (await shop.post()).headers["idempotent-replayed"] == "true"

    served(scene, principal=who)


# --- in flight


def test_a_request_in_flight_is_answered_with_409_and_retry_after() -> None:
    async def scene(shop: Shop) -> None:
        first = asyncio.create_task(shop.post("/slow"))
        await shop.entered.wait()
        second = await shop.post("/slow")
        assert problem(second) == STARTED
        assert int(second.headers["retry-after"]) >= 1
        assert problem(await shop.post("/slow", json={"amount": 2}))[0] == 422
        shop.go.set()
        assert (await first).text == "charge 1"
        assert (await shop.post("/slow")).text == "charge 1"

    served(scene)


def test_one_that_waits_gets_the_response_of_the_one_in_flight() -> None:
    async def scene(shop: Shop) -> None:
        with shop.store.clock.running():
            tasks = [asyncio.create_task(shop.post("/slow")) for _ in range(5)]
            await shop.entered.wait()
            shop.go.set()
            responses = await asyncio.gather(*tasks)
        assert {response.text for response in responses} == {"charge 1"}
        assert sum("idempotent-replayed" in response.headers for response in responses) == 4

    served(scene, wait=60)


# --- what is not kept


def test_an_exception_and_a_5xx_are_dropped() -> None:
    async def scene(shop: Shop) -> None:
        for _ in range(2):
            assert (await shop.post("/fail")).status_code == 500
        shop.status = 503
        for _ in range(2):
            assert (await shop.post()).status_code == 503
        shop.status = 201
        assert (await shop.post()).status_code == 201
        assert len(shop.charges) == 5

    served(scene)


def test_a_declined_payment_is_kept_and_a_failed_validation_is_not() -> None:
    async def main() -> None:
        shop = Shop(ManualStore())
        async with shop.client, shop.http:
            for _ in range(2):
                response = await shop.post("/pay/-1")
                assert (response.status_code, response.json()) == (402, {"detail": "declined"})
            assert response.headers["idempotent-replayed"] == "true"
            for _ in range(2):
                assert (await shop.post("/pay/much")).status_code == 422
                assert "idempotent-replayed" not in (await shop.post("/pay/much")).headers
            paid = await shop.post("/pay/5")
            assert paid.json()["fence"] > 0

    asyncio.run(main())


def test_which_responses_are_kept_can_be_chosen() -> None:
    async def scene(shop: Shop) -> None:
        shop.status = 500
        await shop.post()
        assert (await shop.post()).headers["idempotent-replayed"] == "true"

    served(scene, keep_status=lambda status: True)


def test_which_headers_are_kept_can_be_chosen() -> None:
    async def scene(shop: Shop) -> None:
        await shop.post()
        again = await shop.post()
        assert again.headers["set-cookie"] == "session=secret"
        assert "location" not in again.headers

    served(scene, keep_headers=["Set-Cookie"])


# --- sizes and streams


def test_a_request_that_is_too_large_is_refused() -> None:
    async def scene(shop: Shop) -> None:
        assert problem(await shop.post(content=b"x" * 101)) == (413, "Request too large")
        assert shop.charges == []
        assert (await shop.post("/plain", content=b"x" * 100)).text == "charge 1"

    served(scene, max_request_size=100)


def test_a_small_stream_is_stored_whole() -> None:
    async def scene(shop: Shop) -> None:
        first = await shop.post("/stream")
        again = await shop.post("/stream")
        assert first.content == again.content
        assert len(first.content) == 100
        assert again.headers["content-length"] == "100"
        assert len(shop.charges) == 1

    served(scene, max_response_size=100)


def test_a_large_response_is_passed_through_and_never_carried_out_twice() -> None:
    async def scene(shop: Shop) -> None:
        shop.size = 11
        first = await shop.post("/stream")
        assert len(first.content) == 110
        again = await shop.post("/stream")
        assert problem(again) == (409, "Response not kept")
        assert "retry-after" not in again.headers
        assert len(shop.charges) == 1

    served(scene, max_response_size=100)


def test_a_stream_that_fails_after_it_was_passed_through_is_dropped() -> None:
    async def scene(shop: Shop) -> None:
        shop.size, shop.status = 11, 600
        await shop.post("/stream")
        shop.status = 200
        assert len((await shop.post("/stream")).content) == 110
        assert len(shop.charges) == 2

    served(scene, max_response_size=100)


def test_work_in_the_background_neither_delays_the_response_nor_keeps_the_key() -> None:
    async def scene(shop: Shop) -> None:
        sent: list[Any] = []
        app: Any = shop.http._transport.app  # type: ignore[attr-defined]
        scope = {"type": "http", "method": "POST", "path": "/background", "query_string": b"", "http_version": "1.1",
                 "headers": [(b"idempotency-key", b"k-1"), (b"x-user", b"alice")], "asgi": {"version": "3.0"},
                 "scheme": "http", "server": ("x", 80), "root_path": ""}  # fmt: skip
        request = [{"type": "http.request", "body": b'{"amount":1}'}]

        async def receive() -> Any:
            return request.pop() if request else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        running = asyncio.create_task(app(scope, receive, send))
        await shop.entered.wait()
        assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
        assert (await shop.post("/background")).headers["idempotent-replayed"] == "true"
        assert shop.after == 0
        shop.go.set()
        await running
        assert (shop.after, len(shop.charges)) == (1, 1)

    served(scene)


def test_a_caller_that_goes_away_does_not_end_the_work() -> None:
    async def scene(shop: Shop) -> None:
        app: Any = shop.http._transport.app  # type: ignore[attr-defined]
        scope = {"type": "http", "method": "POST", "path": "/stream", "query_string": b"", "http_version": "1.1",
                 "headers": [(b"idempotency-key", b"k-1"), (b"x-user", b"alice")], "asgi": {"version": "3.0"},
                 "scheme": "http", "server": ("x", 80), "root_path": ""}  # fmt: skip
        messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": b'{"amount":1}'}]

        async def receive() -> Any:
            return messages.pop() if len(messages) > 1 else messages[0]

        async def send(_message: Any) -> None:
            return

        shop.pause = 0.01  # time enough to notice that the caller has gone
        await app(scope, receive, send)
        again = await shop.post("/stream")
        assert again.headers["idempotent-replayed"] == "true"
        assert len(shop.charges) == 1

    served(scene, fingerprint=lambda _scope, _body: None)


# --- outages and losses


def test_an_outage_is_answered_with_503_or_passed_through(caplog: pytest.LogCaptureFixture) -> None:
    async def closed(shop: Shop) -> None:
        shop.store.faults.refuse_next("read")
        refused = await shop.post()
        assert problem(refused) == (503, "Idempotency not available")
        assert refused.headers["retry-after"] == "1"
        assert shop.charges == []

    async def opened(shop: Shop) -> None:
        shop.store.faults.refuse_next("read")
        with caplog.at_level(logging.WARNING, "leasehold"):
            assert (await shop.post()).status_code == 201
        assert "without protection" in caplog.text
        assert (await shop.post()).status_code == 201
        assert len(shop.charges) == 2

    served(closed, outage_after=0)
    served(opened, outage="open", outage_after=0)


def test_work_that_is_done_is_answered_although_it_could_not_be_recorded(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(shop: Shop) -> None:
        first = asyncio.create_task(shop.post("/slow"))
        await shop.entered.wait()
        shop.store.faults.reject_next("write")
        shop.go.set()
        with caplog.at_level(logging.WARNING, "leasehold"):
            assert (await first).text == "charge 1"
        assert "may not be recorded" in caplog.text

    served(scene)


def test_a_request_whose_key_was_taken_over_is_cancelled_and_sent_back_for_the_result() -> None:
    async def scene(shop: Shop) -> None:
        first = asyncio.create_task(shop.post("/slow"))
        await shop.entered.wait()
        (state,) = await shop.client.locks()
        lease = next(iter(shop.client._opened.keeper._known.values()))  # type: ignore[union-attr]
        tenure: Any = lease()
        shop.client._opened.keeper.lose(tenure, _loss())  # type: ignore[union-attr]
        assert problem(await first)[0] == 503
        assert shop.charges == []
        assert state.holdings

    served(scene)


def test_an_attempt_whose_key_was_taken_over_is_sent_back_for_the_result_that_is_stored() -> None:
    """Its lease looks fine to it, but the store has given the key to another; nothing but its last write tells."""

    async def scene(shop: Shop) -> None:
        first = asyncio.create_task(shop.post("/slow"))
        await shop.entered.wait()
        (lease,) = shop.client._opened.keeper._known.values()  # type: ignore[union-attr]
        tenure: Any = lease()
        (taken,) = await shop.client.locks()
        shop.store.memory.release(tenure.grant)
        async with shop.store.connect_async(label="another host") as other:
            keys = other.idempotency("shop")
            async with keys.attempt(taken.name.removeprefix("idempotency:4:shop:")) as attempt:
                assert not attempt.replayed
                shop.go.set()
                assert problem(await first) == (503, "Idempotency not available")
        assert len(shop.charges) == 1, "it had done its work by then"

    served(scene)


def _loss() -> Any:
    from leasehold.values import Loss, LossReason

    return Loss(LossReason.TAKEN, "a test took it away")


# --- set-up


def test_a_principal_must_be_given() -> None:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None: ...

    keys = connect_async("memory://").idempotency("shop")
    with pytest.raises(ConfigurationError, match="principal must be given"):
        IdempotencyMiddleware(app, keys)
    with pytest.raises(ConfigurationError, match="connect_async"):
        IdempotencyMiddleware(app, connect("memory://").idempotency("shop"), principal=user)  # type: ignore[arg-type]
    for sizes in ({"max_request_size": -1}, {"max_response_size": 1.5}):
        with pytest.raises(ConfigurationError, match="whole number"):
            IdempotencyMiddleware(app, keys, principal=user, **sizes)


def test_what_is_not_http_is_passed_on() -> None:
    seen: list[str] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["type"])

    async def nothing(*_: Any) -> Any: ...

    middleware = IdempotencyMiddleware(app, connect_async("memory://").idempotency("shop"), principal=user)
    for kind in ("lifespan", "websocket"):
        asyncio.run(middleware({"type": kind}, nothing, nothing))
    assert seen == ["lifespan", "websocket"]


async def post_to(app: Any, *parts: bytes, **scope: Any) -> list[Any]:
    """One request without a framework, its body in these parts; what was sent back."""
    sent: list[Any] = []
    coming = list(parts or (b"",))

    async def receive() -> Any:
        return {"type": "http.request", "body": coming.pop(0), "more_body": bool(coming)}

    async def send(message: Any) -> None:
        sent.append(message)

    async with ManualStore().connect_async() as client:
        middleware = IdempotencyMiddleware(app, client.idempotency("shop"), principal=None)
        request = {"type": "http", "method": "POST", "path": "/x", "headers": [(b"idempotency-key", b"k")], **scope}
        await middleware(request, receive, send)
    return sent


def test_a_body_that_comes_in_parts_reaches_the_application_whole() -> None:
    async def app(_scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        assert not message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": message["body"]})

    assert asyncio.run(post_to(app, b"one ", b"two ", b"three"))[-1]["body"] == b"one two three"


def test_an_application_gets_no_way_to_respond_past_the_middleware() -> None:
    seen: list[Any] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        seen.append(scope["extensions"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    asyncio.run(post_to(app, extensions={"http.response.pathsend": {}, "tls": {"version": 1}}))
    assert seen == [{"tls": {"version": 1}}]


def test_the_loss_of_a_lock_of_the_application_is_the_applications_own_error() -> None:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        raise LeaseLost("a lock of the application", name="other")

    with pytest.raises(LeaseLost, match="of the application"):
        asyncio.run(post_to(app))


def test_a_retry_key_of_the_caller_is_understood() -> None:
    async def scene(shop: Shop) -> None:
        for quoted in (True, False):
            key = RetryKey("order 42" if quoted else None, quoted=quoted)
            first = await shop.post(headers=key.headers({"X-User": "alice"}))
            again = await shop.post(headers=key.headers({"X-User": "alice"}))
            assert first.content == again.content

    served(scene)
