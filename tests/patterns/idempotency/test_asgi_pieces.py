"""The ASGI middleware without a framework: message by message, with the limits exactly met."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import IdempotencyMiddleware, events
from leasehold._patterns.idempotency_asgi import _plain_extensions, _refusal
from leasehold._patterns.idempotency_states import Begin
from leasehold.errors import (
    AttemptExpired,
    BackendUnavailable,
    ClientClosed,
    InFlight,
    KeyReused,
    LeaseLost,
)
from leasehold.testing.manual import ManualStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

KEY = [(b"Idempotency-Key", b'"k"')]
START = {"type": "http.response.start", "status": 201, "headers": [(b"location", b"/1"), (b"set-cookie", b"s=1")]}
DISCONNECT = {"type": "http.disconnect"}


def end(body: bytes = b"", *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


def part(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


class Door:
    """A middleware around an application that sends these messages, and what it was asked."""

    def __init__(self, *messages: Any, **options: Any) -> None:
        self.store = ManualStore()
        self.client = self.store.connect_async()
        self.messages = messages
        self.scopes: list[Any] = []
        self.bodies: list[bytes] = []
        self.heard: list[Any] = []
        self.unread = 0
        self.client.on_event(self.heard.append)
        keys = self.client.idempotency("shop", **options.pop("keys", {}))
        self.middleware = IdempotencyMiddleware(self.app, keys, **{"principal": None, **options})

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["type"] == "http":
            self.bodies.append((await receive())["body"])
        for message in self.messages:
            if isinstance(message, BaseException):
                raise message
            await send(message)

    async def ask(
        self, *parts: dict[str, Any], method: str = "POST", headers: Any = KEY, **more: Any
    ) -> list[dict[str, Any]]:
        """What the caller gets."""
        sent: list[Any] = []
        coming = list(parts or [part(b"")])

        async def receive() -> Any:
            return coming.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": method, "path": "/x", "headers": headers, **more}
        await asyncio.wait_for(self.middleware(scope, receive, send), 60)
        self.unread = len(coming)
        return sent


def play(door: Door, scene: Callable[[Door], Awaitable[None]]) -> None:
    async def main() -> None:
        async with door.client:
            await scene(door)

    asyncio.run(main())


def status(sent: list[dict[str, Any]]) -> int:
    found: int = sent[0]["status"]
    return found


def body(sent: list[dict[str, Any]]) -> bytes:
    return b"".join(message.get("body", b"") for message in sent[1:])


# --- what is protected


@pytest.mark.parametrize(
    ("method", "headers", "options", "protected"),
    [
        ("POST", KEY, {}, True),
        ("PATCH", KEY, {}, True),
        ("PUT", KEY, {}, False),
        ("GET", KEY, {}, False),
        ("DELETE", KEY, {}, False),
        ("PUT", KEY, {"methods": ["PUT"]}, True),
        ("POST", KEY, {"methods": ["PUT"]}, False),
        ("POST", [], {"required": False}, False),
        ("POST", [(b"IDEMPOTENCY-KEY", b"k")], {"required": False}, True),
        ("POST", KEY, {"applies": lambda _: False}, False),
        ("POST", KEY, {"applies": lambda _: True}, True),
        ("POST", KEY, {"principal": lambda _: None}, False),
        ("POST", KEY, {"principal": lambda _: ""}, True),
    ],
)
def test_which_requests_are_protected(method: str, headers: Any, options: dict[str, Any], protected: bool) -> None:
    async def scene(door: Door) -> None:
        for _ in range(2):
            assert status(await door.ask(method=method, headers=headers)) == 201
        assert len(door.scopes) == (1 if protected else 2)
        assert ("leasehold.attempt" in door.scopes[0]) is protected

    play(Door(START, end(b"done"), **options), scene)


@pytest.mark.parametrize(
    "headers", [[], [*KEY, *KEY], [(b"idempotency-key", b"")], [(b"idempotency-key", b"k" * 256)]], ids=len
)
def test_a_request_without_one_good_key_is_refused_and_told(headers: Any) -> None:
    async def scene(door: Door) -> None:
        sent = await door.ask(headers=headers)
        assert status(sent) == 400
        assert json.loads(body(sent))["title"] == "Idempotency key missing or invalid"
        assert door.scopes == []
        assert [event for event in door.heard if isinstance(event, events.KeyRefused)] == [
            events.KeyRefused("shop", "missing")
        ]

    play(Door(), scene)


def test_requests_of_one_route_share_their_keys_whatever_their_paths() -> None:
    async def scene(door: Door) -> None:
        for path in ("/charges/1", "/charges/2"):
            assert status(await door.ask(path=path)) == 201
        assert [scope["path"] for scope in door.scopes] == ["/charges/1"]
        assert status(await door.ask(path="/refunds/1")) == 201
        assert len(door.scopes) == 2

    play(Door(START, end(), route=lambda scope: scope["path"].split("/")[1]), scene)


# --- the request


@pytest.mark.parametrize(
    ("parts", "found", "unread"),
    [
        ([part(b"12345")], 201, 0),
        ([part(b"123", more=True), part(b"45")], 201, 0),
        ([part(b"12345", more=True), part(b"")], 201, 0),
        ([part(b"12345", more=True), part(b"6")], 413, 0),
        ([part(b"123456")], 413, 0),
        ([part(b"123", more=True), part(b"456", more=True), part(b"7" * 100)], 413, 1),
    ],
    ids=["just", "just in parts", "just and nothing", "just and one", "one more", "more in parts"],
)
def test_a_body_may_be_as_large_as_was_said_and_of_a_larger_one_no_more_is_read(
    parts: list[Any], found: int, unread: int
) -> None:
    async def scene(door: Door) -> None:
        assert status(await door.ask(*parts)) == found
        assert door.bodies == ([b"12345"] if found == 201 else [])
        assert door.unread == unread

    play(Door(START, end(), max_request_size=5), scene)


def test_a_caller_that_goes_away_before_its_request_is_complete_has_asked_for_nothing() -> None:
    async def scene(door: Door) -> None:
        assert await door.ask(part(b"half", more=True), DISCONNECT) == []
        assert door.scopes == []
        assert status(await door.ask(part(b"whole"))) == 201

    play(Door(START, end()), scene)


@pytest.mark.parametrize(
    ("first", "second", "is_other"),
    [
        ({"query_string": b"a=1"}, {"query_string": b"a=2"}, True),
        ({"query_string": b"a"}, {}, True),
        ({"query_string": b"a=1"}, {"query_string": b"a=1"}, False),
    ],
)
def test_another_query_is_another_request(first: Any, second: Any, is_other: bool) -> None:
    async def scene(door: Door) -> None:
        assert status(await door.ask(**first)) == 201
        assert status(await door.ask(**second)) == (422 if is_other else 201)

    play(Door(START, end()), scene)


def test_an_application_learns_that_its_caller_has_gone_once_its_response_has() -> None:
    seen: list[Any] = []

    class Waiting(Door):
        async def app(self, scope: Any, receive: Any, send: Any) -> None:
            await receive()
            later = asyncio.create_task(receive())
            await asyncio.sleep(0)
            seen.append(later.done())
            await send(START)
            await send(end(b"12", more=True))  # too large to be held back
            seen.append(await later)
            await send(end(b"3"))

    async def scene(door: Door) -> None:
        sent = await door.ask(part(b""), DISCONNECT)
        assert body(sent) == b"123"
        assert seen == [False, DISCONNECT]

    play(Waiting(max_response_size=1), scene)


# --- the response


@pytest.mark.parametrize("messages", [[end(b"12345")], [end(b"123", more=True), end(b"45")]], ids=["whole", "parts"])
def test_a_response_that_just_fits_is_replayed_with_its_chosen_headers(messages: list[Any]) -> None:
    async def scene(door: Door) -> None:
        first = await door.ask()
        assert [message["type"] for message in first] == ["http.response.start", "http.response.body"]
        assert first[0] is START
        assert first[1] == end(b"12345")
        again = await door.ask()
        assert status(again) == 201
        assert body(again) == b"12345"
        assert again[0]["headers"] == [
            (b"location", b"/1"), (b"content-length", b"5"), (b"idempotent-replayed", b"true"),
        ]  # fmt: skip
        assert len(door.scopes) == 1

    play(Door(START, *messages, max_response_size=5), scene)


@pytest.mark.parametrize(
    "messages", [[end(b"123456")], [end(b"123", more=True), end(b"456", more=True), end(b"7")]], ids=["whole", "parts"]
)
def test_a_response_that_is_one_byte_too_large_is_passed_on_and_not_replayed(messages: list[Any]) -> None:
    async def scene(door: Door) -> None:
        assert body(await door.ask()) == b"".join(message["body"] for message in messages)
        again = await door.ask()
        assert status(again) == 409
        assert json.loads(body(again))["title"] == "Response not kept"
        assert (b"idempotent-replayed", b"true") in again[0]["headers"]
        assert len(door.scopes) == 1

    play(Door(START, *messages, max_response_size=5), scene)


@pytest.mark.parametrize("messages", [[START], [START, end(b"half", more=True)], []], ids=["start", "half", "nothing"])
def test_a_response_without_its_end_is_passed_on_as_it_is_and_the_request_may_be_repeated(messages: list[Any]) -> None:
    async def scene(door: Door) -> None:
        for number in (1, 2):
            sent = await door.ask()
            assert len(door.scopes) == number
            if messages:
                assert status(sent) == 201
                assert sent[-1]["more_body"] is True
                assert body(sent) == (b"half" if len(messages) == 2 else b"")
            else:
                assert sent == []

    play(Door(*messages), scene)


def test_what_comes_after_the_end_is_passed_on() -> None:
    trailers = {"type": "http.response.trailers", "headers": []}

    async def scene(door: Door) -> None:
        assert (await door.ask())[-1] == trailers

    play(Door(START, end(b"x"), trailers), scene)


@pytest.mark.parametrize("failing", [500, 409, 422, 429])
def test_a_response_of_the_moment_is_passed_on_and_the_key_is_free(failing: int) -> None:
    async def scene(door: Door) -> None:
        for number in (1, 2):
            assert status(await door.ask()) == failing
            assert len(door.scopes) == number
        assert await door.client.locks() == []

    play(Door({**START, "status": failing}, end(b"x")), scene)


def test_an_error_of_the_application_is_its_own_and_the_key_is_free() -> None:
    async def scene(door: Door) -> None:
        for number in (1, 2):
            with pytest.raises(ZeroDivisionError):
                await door.ask()
            assert len(door.scopes) == number

    error: Any = ZeroDivisionError()
    play(Door(START, error), scene)


@pytest.mark.parametrize(("answered", "writes"), [(201, 2), (503, 2)])
def test_the_end_of_a_response_is_recorded_once_and_its_key_is_given_back_once(answered: int, writes: int) -> None:
    async def scene(door: Door) -> None:
        assert status(await door.ask()) == answered
        calls = door.store.faults.calls
        assert (calls.count("write"), calls.count("release"), calls[-1]) == (writes, 1, "release")

    play(Door({**START, "status": answered}, end(b"x")), scene)


def test_the_key_is_free_before_the_caller_has_its_response() -> None:
    async def scene(door: Door) -> None:
        free: list[bool] = []

        async def receive() -> Any:
            return part(b"")

        async def send(_: Any) -> None:
            free.append(not await door.client.locks())

        await door.middleware({"type": "http", "method": "POST", "path": "/x", "headers": KEY}, receive, send)
        assert free == [True, True]

    play(Door(START, end(b"x")), scene)


def test_a_result_that_could_not_be_stored_is_told_and_the_caller_has_its_response() -> None:
    async def scene(door: Door) -> None:
        real = door.middleware._app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            door.store.faults.reject_next("write")
            await real(scope, receive, send)

        door.middleware._app = app
        assert status(await door.ask()) == 201
        (told,) = [event for event in door.heard if isinstance(event, events.NotRecorded)]
        assert told.name.startswith("idempotency:4:shop:")

    play(Door(START, end(b"x")), scene)


# --- refusals


@pytest.mark.parametrize(
    ("error", "status", "title", "after"),
    [
        (InFlight("x", retry_after=2.5), 409, "Request in flight", b"3"),
        (KeyReused("x"), 422, "Idempotency key reused", None),
        (AttemptExpired("x"), 409, "Outcome unknown", None),
        (LeaseLost("x"), 503, "Idempotency not available", b"1"),
        (BackendUnavailable("x"), 503, "Idempotency not available", b"1"),
        (ClientClosed("x"), 503, "Idempotency not available", b"1"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_a_caller_is_told_that_is_refused(error: Exception, status: int, title: str, after: bytes | None) -> None:
    answer = _refusal(error)
    assert (answer.status, json.loads(answer.body)["title"]) == (status, title)
    assert dict(answer.headers).get(b"retry-after") == after


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "overtaken"])
def test_a_request_that_cannot_begin_any_more_is_answered_and_not_carried_out(
    monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    async def overtaken(*_: object) -> Begin:
        return Begin.TAKEN

    async def scene(door: Door) -> None:
        if is_closed:
            await door.client.close()
        else:
            monkeypatch.setattr(door.middleware._keys, "_begin", overtaken)
        sent = await door.ask()
        assert (status(sent), json.loads(body(sent))["title"]) == (503, "Idempotency not available")
        assert door.scopes == []

    play(Door(START, end()), scene)


def test_a_vanished_request_is_not_repeated_where_that_was_asked_for() -> None:
    async def scene(door: Door) -> None:
        with pytest.raises(asyncio.CancelledError):
            await door.ask()
        sent = await door.ask()
        assert (status(sent), json.loads(body(sent))["title"]) == (409, "Outcome unknown")

    error: Any = asyncio.CancelledError()  # as when its server stops
    play(Door(error, keys={"on_expired": "refuse"}), scene)


@pytest.mark.parametrize(
    ("scope", "kept"),
    [
        ({}, {}),
        ({"extensions": None}, {}),
        ({"extensions": {"http.response.push": {}, "http.disconnect": 1, "tls": 2}}, {"http.disconnect": 1, "tls": 2}),
    ],
)
def test_only_ways_to_respond_are_taken_from_an_application(scope: dict[str, Any], kept: dict[str, Any]) -> None:
    assert _plain_extensions(scope) == kept
