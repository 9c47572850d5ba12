"""What a guard knows of a lease, whom it refuses, what it says, and who is told; no resource."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import aiosqlite
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

import leasehold
from leasehold.errors import ConfigurationError, FenceAhead, LeaseLost, StaleFence
from leasehold.fencing import asgi, checks, http, token
from leasehold.fencing.etcd import still_held
from leasehold.fencing.redis import AsyncFencedRedis, FencedRedis
from leasehold.fencing.token import Token, checked_fence, feed_back, refused, token_of, wrong_lock
from leasehold.sql import fenced_update, fenced_update_async, guard, guard_async
from leasehold.values import MAX_FENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def client() -> Iterator[leasehold.Client]:
    with leasehold.connect("memory://", namespace="app") as client:
        yield client


@pytest.fixture
def noted() -> Iterator[list[str]]:
    heard: list[str] = []
    end = checks.subscribe(heard.append)
    yield heard
    end()


def number(fence: int, resource: str = "r") -> Token:
    return token_of(fence, resource)


# --- tokens


def test_a_lease_names_its_lock_its_grant_and_its_resource(client: leasehold.Client) -> None:
    with client.lock("a:b").hold() as lease:
        found = token_of(lease, None)
        assert (found.fence, found.resource, found.lock, found.shared) == (lease.fence, "app:a:b", "app:a:b", False)
        assert found.name == "a:b"
        assert token_of(lease, "table").resource == "table"
        assert token_of(lease, "table").lock == "app:a:b"
        owner = lease._twin._tenure.grant.claim.owner
        assert found.grant is not None
        assert len(found.grant) == 32
        assert owner not in found.grant
        assert token_of(lease, None).grant == found.grant
    with client.lock("a:b").hold() as later:
        assert token_of(later, None).grant != found.grant
    with client.rwlock("a:b").read.hold() as reader:
        assert token_of(reader, None).shared is True


def test_a_number_has_a_resource_and_nothing_else() -> None:
    assert token_of(7, "r") == Token(7, "r", None, shared=False, grant=None)
    assert token_of(7, "r").name is None
    with pytest.raises(ConfigurationError, match="does not name what it protects"):
        token_of(7, None)
    for lease in (7, object()):
        with pytest.raises(ConfigurationError, match="resource must not be empty"):
            token_of(lease, "")  # type: ignore[arg-type]


def test_what_is_no_lease_or_several_is_refused(client: leasehold.Client) -> None:
    with pytest.raises(ConfigurationError, match="not str"):
        token_of("7", "r")  # type: ignore[arg-type]
    with client.lock_all(["a", "b"]).hold() as both:
        with pytest.raises(ConfigurationError, match="these are several leases"):
            token_of(both, "r")  # type: ignore[arg-type]
    with client.semaphore("pool", 2).hold() as permit, pytest.raises(ConfigurationError, match="semaphore"):
        token_of(permit, "r")


@pytest.mark.parametrize("fence", [1, 2, MAX_FENCE])
def test_a_fence_is_a_whole_number_that_a_store_may_give(fence: int) -> None:
    assert checked_fence(fence) == fence


@pytest.mark.parametrize("fence", [0, -1, MAX_FENCE + 1, True])
def test_what_no_store_gives_is_no_fence(fence: int) -> None:
    with pytest.raises(ConfigurationError, match="a fence is a whole number from 1 to"):
        checked_fence(fence)
    with pytest.raises(ConfigurationError, match="a fence is a whole number from 1 to"):
        token_of(fence, "r")


# --- refusals


@pytest.mark.parametrize(("gap", "is_absurd"), [(1, False), (10**12, False), (10**12 + 1, True)])
def test_a_gap_between_two_stores_is_called_so(gap: int, is_absurd: bool) -> None:
    error = refused(number(5), 5 + gap)
    assert (error.fence, error.highest, error.name) == (5, 5 + gap, None)
    assert f"'r' has seen fence {5 + gap}, and this one is 5" in str(error)
    assert ("another store than before" in str(error)) is is_absurd


def test_a_refusal_has_the_name_of_the_lock_or_that_which_the_guard_knows() -> None:
    ours = Token(5, "r", "app:x", shared=False, grant=None)
    assert refused(ours, 6, "other").name == "x"
    assert refused(number(5), 6, "other").name == "other"


def test_a_resource_of_another_lock_names_both() -> None:
    message = str(wrong_lock(Token(5, "r", "app:x", shared=False, grant=None), "app:y"))
    assert "'r' is guarded by the lock 'app:y', and this lease is of 'app:x'" in message


@pytest.mark.parametrize(("gap", "kind"), [(token.AN_HOUR, StaleFence), (token.AN_HOUR + 1, FenceAhead)])
def test_a_holder_that_is_far_behind_is_told_that_its_store_has_gone_back(
    client: leasehold.Client, gap: int, kind: type[Exception]
) -> None:
    with client.lock("x").hold() as lease:
        highest = lease.fence + gap
        error = feed_back(lease, refused(token_of(lease, None), highest))
        assert type(error) is kind
        assert (error.fence, error.highest, error.name) == (lease.fence, highest, "x")
        if kind is FenceAhead:
            assert f"the resource has seen fence {highest}" in str(error)
            assert "leasehold fence" in str(error)
            assert error.backend == "memory://"


def test_a_holder_whose_time_is_over_is_late_however_far_it_is_behind(client: leasehold.Client) -> None:
    lease = client.lock("x").acquire()
    lease.release()
    error = feed_back(lease, refused(token_of(lease, None), lease.fence + 10**13))
    assert type(error) is StaleFence


def test_a_number_tells_no_store_anything() -> None:
    refusal = refused(number(5), 10**15)
    assert feed_back(5, refusal) is refusal


def test_a_refusal_without_a_number_is_passed_on(client: leasehold.Client) -> None:
    with client.lock("x").hold() as lease:
        refusal = StaleFence("late", fence=1, highest=None)
        assert feed_back(lease, refusal) is refusal


# --- who is told


def test_every_decision_of_a_guard_is_told_until_the_listener_leaves() -> None:
    one: list[str] = []
    other: list[str] = []
    ends = [checks.subscribe(one.append), checks.subscribe(other.append)]
    checks.note_passed()
    refused(number(1), 2)
    ends[0]()
    checks.note_passed()
    ends[0]()
    ends[1]()
    checks.note_stale()
    assert (one, other) == (["ok", "stale"], ["ok", "stale", "ok"])


def test_the_register_of_one_process_tells_what_it_let_pass_and_what_not(noted: list[str]) -> None:
    async def main() -> None:
        register = asgi.MemoryRegister()
        for fence in (5, 5, 7):
            await register.raise_fence("a", fence)
        await register.raise_fence("b", 1)
        with pytest.raises(StaleFence) as caught:
            await register.raise_fence("a", 6)
        assert (caught.value.fence, caught.value.highest) == (6, 7)
        await register.raise_fence("a", 7)

    asyncio.run(main())
    assert noted == ["ok"] * 4 + ["stale", "ok"]


@pytest.mark.parametrize("face", ["def", "driver", "sqlalchemy"])
def test_every_write_that_a_database_lets_pass_or_not_is_told_once(noted: list[str], face: str, tmp_path: Path) -> None:
    path = tmp_path / "data.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, fence BIGINT NOT NULL)")
        database.execute("INSERT INTO orders VALUES (1, 0)")
    words: dict[str, Any] = {"table": "orders", "values": {}}

    def blocking() -> None:
        with closing(sqlite3.connect(path)) as tx:
            guard(tx, 7, resource="r")
            assert fenced_update(tx, 7, where={"id": 1}, **words)
            assert not fenced_update(tx, 7, where={"id": 2}, **words), "no row, and nothing to tell"
            with pytest.raises(StaleFence):
                fenced_update(tx, 6, where={"id": 1}, **words)
            with pytest.raises(StaleFence):
                guard(tx, 6, resource="r")

    async def awaited(tx: Any) -> None:
        await guard_async(tx, 7, resource="r")
        assert await fenced_update_async(tx, 7, where={"id": 1}, **words)
        assert not await fenced_update_async(tx, 7, where={"id": 2}, **words)
        with pytest.raises(StaleFence):
            await fenced_update_async(tx, 6, where={"id": 1}, **words)
        with pytest.raises(StaleFence):
            await guard_async(tx, 6, resource="r")

    async def main() -> None:
        if face == "driver":
            async with aiosqlite.connect(path) as tx:
                await awaited(tx)
            return
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        async with engine.connect() as tx:
            await awaited(tx)
        await engine.dispose()

    if face == "def":
        blocking()
    else:
        asyncio.run(main())
    assert noted == ["ok", "ok", "stale", "stale"]


# --- HTTP


@pytest.mark.parametrize(
    ("text", "fence"),
    [
        ("1", 1),
        ("9007199254740991", MAX_FENCE),
        ("9007199254740992", None),
        ("90071992547409910", None),
        ("0", None),
        ("01", None),
        ("", None),
        (" 1", None),
        ("+1", None),
        ("1_0", None),
        ("٣", None),
    ],
)
def test_a_fence_in_a_header_is_digits_and_nothing_else(text: str, fence: int | None) -> None:
    assert http.parse_fence(text) == fence


@pytest.mark.parametrize("name", ["Fencing-Token", "fencing-token"])
def test_a_refusal_is_read_in_whatever_case_the_header_has(name: str) -> None:
    response: Any = SimpleNamespace(status_code=412, headers={name: "9"})
    with pytest.raises(StaleFence) as caught:
        http.raise_if_stale(response, 5)
    assert (caught.value.fence, caught.value.highest) == (5, 9)


def test_the_hooks_send_the_fence_of_their_lease_and_look_at_each_answer() -> None:
    request = SimpleNamespace(headers={"other": "kept"})
    stale: Any = SimpleNamespace(status_code=412, headers={"Fencing-Token": "9"})
    hooks = http.fence_hooks(5)
    for send in hooks["request"]:
        send(request)
    assert request.headers == {"other": "kept", "Fencing-Token": "5"}
    with pytest.raises(StaleFence):
        for check in hooks["response"]:
            check(stale)


def test_a_lease_of_another_store_has_no_condition_in_etcd(client: leasehold.Client) -> None:
    with client.lock("x").hold() as lease, pytest.raises(ConfigurationError, match="no etcd store"):
        still_held(lease)
    with pytest.raises(ConfigurationError, match="needs a lease, not int"):
        still_held(7)  # type: ignore[arg-type]


# --- the service


async def _answered(scope: dict[str, Any], **options: Any) -> tuple[int, dict[str, Any] | None]:
    """The status, and the scope that the application saw."""
    seen: list[dict[str, Any]] = []
    sent: list[Any] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        seen.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    words: dict[str, Any] = {"resource": lambda _: "r", "authenticated": lambda _: True, **options}
    await asgi.FenceMiddleware(app, **words)(scope, None, send)  # type: ignore[arg-type]
    if not seen:
        assert int(dict(sent[0]["headers"])[b"content-length"]) == len(sent[1]["body"])
    return sent[0]["status"], seen[0] if seen else None


def answered(method: str, headers: list[tuple[bytes, bytes]], **options: Any) -> tuple[int, dict[str, Any] | None]:
    return asyncio.run(_answered({"type": "http", "method": method, "headers": headers}, **options))


@pytest.mark.parametrize(
    ("method", "is_checked"),
    [("POST", True), ("PUT", True), ("PATCH", True), ("DELETE", True), ("GET", False), ("HEAD", False)],
)
def test_only_methods_that_write_need_a_fence(method: str, is_checked: bool) -> None:
    assert answered(method, [])[0] == (428 if is_checked else 200)


def test_the_methods_that_write_may_be_named() -> None:
    assert answered("PUT", [], methods=["LOCK"])[0] == 200
    assert answered("LOCK", [], methods=["LOCK"])[0] == 428


def test_the_header_is_found_in_whatever_case_and_the_handler_gets_its_number() -> None:
    status, seen = answered("PUT", [(b"FENCING-token", b"7")])
    assert status == 200
    assert seen is not None
    assert asgi.fence_of(seen) == 7


def test_a_fence_that_is_not_required_is_looked_at_where_it_is_sent() -> None:
    assert answered("PUT", [], required=False)[0] == 200
    assert answered("PUT", [(b"fencing-token", b"x")], required=False)[0] == 400
    assert answered("PUT", [(b"fencing-token", b"7")], required=False, authenticated=lambda _: False)[0] == 403


def test_a_register_that_does_not_know_the_highest_fence_refuses_without_it() -> None:
    class Register:
        async def raise_fence(self, resource: str, fence: int) -> None:
            raise StaleFence("late", fence=fence, highest=None)

    assert answered("PUT", [(b"fencing-token", b"7")], register=Register())[0] == 412


async def _told(headers: list[tuple[bytes, bytes]], **options: Any) -> tuple[int, dict[str, str], dict[str, Any]]:
    """The status, the headers and the problem of a refusal."""
    sent: list[Any] = []

    async def app(*_: Any) -> None:
        pytest.fail("it must not be asked")

    async def receive() -> Any:
        pytest.fail("nothing is read of it")

    async def send(message: Any) -> None:
        sent.append(message)

    words: dict[str, Any] = {"resource": lambda _: "r", "authenticated": lambda _: True, **options}
    scope = {"type": "http", "method": "PUT", "headers": headers}
    await asgi.FenceMiddleware(app, **words)(scope, receive, send)
    start, body = sent
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    named = {name.decode(): value.decode() for name, value in start["headers"]}
    assert named.pop("content-length") == str(len(body["body"]))
    assert named.pop("content-type") == "application/problem+json"
    return start["status"], named, json.loads(body["body"])


class Refusing:
    """A register that has seen this."""

    def __init__(self, highest: int | None) -> None:
        self._highest = highest

    async def raise_fence(self, resource: str, fence: int) -> None:
        raise StaleFence("late", fence=fence, highest=self._highest)


SENT = [(b"fencing-token", b"7")]


@pytest.mark.parametrize(
    ("headers", "options", "status", "title", "detail", "facts", "more"),
    [
        ([], {}, 428, "Fence required", "send the fence of your lease as Fencing-Token", {}, {}),
        (
            [(b"fencing-token", b"x")], {}, 400, "Bad fence",
            "Fencing-Token must be one whole number from 1 to 2^53 - 1", {}, {},
        ),
        (SENT * 2, {}, 400, "Bad fence", "Fencing-Token must be one whole number from 1 to 2^53 - 1", {}, {}),
        (
            SENT, {"authenticated": lambda _: False}, 403, "Fence of an unknown caller",
            "Fencing-Token is taken from authenticated callers only", {}, {},
        ),
        (
            SENT, {"register": Refusing(9)}, 412, "Stale fence",
            "another holder of the lock came later; stop, and do not repeat the request",
            {"fence": 7, "highest": 9}, {"fencing-token": "9"},
        ),
        (
            SENT, {"register": Refusing(None)}, 412, "Stale fence",
            "another holder of the lock came later; stop, and do not repeat the request",
            {"fence": 7, "highest": None}, {},
        ),
    ],
)  # fmt: skip
def test_a_refusal_of_the_service_says_what_is_wrong(
    headers: Any, options: Any, status: int, title: str, detail: str, facts: Any, more: Any
) -> None:
    answered, named, problem = asyncio.run(_told(headers, **options))
    assert (answered, named) == (status, more)
    assert problem == {"title": title, "status": status, "detail": detail, **facts}


def test_a_resource_is_named_by_its_request_and_its_register_is_asked_with_the_number_of_that_request() -> None:
    asked: list[tuple[str, int]] = []

    class Register:
        async def raise_fence(self, resource: str, fence: int) -> None:
            asked.append((resource, fence))

    async def main() -> None:
        for path, number in (("/a", b"7"), ("/b", b"8"), ("/free", b"9")):
            scope = {"type": "http", "method": "PUT", "headers": [(b"fencing-token", number)], "path": path}
            status, seen = await _answered(
                scope,
                resource=lambda scope: None if scope["path"] == "/free" else f"order {scope['path']}",
                register=Register(),
            )
            assert status == 200
            assert seen is not None
            assert (asgi.KEY in seen) is (path != "/free")
            assert asgi.KEY not in scope, "the scope of the server is its own"

    asyncio.run(main())
    assert asked == [("order /a", 7), ("order /b", 8)]


@pytest.mark.parametrize(("keep_ms", "kept"), [(None, "0"), (900, "900")])
def test_a_register_in_redis_is_kept_as_long_as_was_said(keep_ms: int | None, kept: str) -> None:
    scripts = Scripts(1)
    asyncio.run(asgi.RedisRegister(scripts, keep_ms=keep_ms).raise_fence("/orders/1", 34))
    assert scripts.asked[0][2:] == (1, "leasehold:guard:/orders/1", "34", "", "", "exclusive", kept)


# --- etcd, as far as nothing is sent


class Conditions:
    """A store that knows the condition of one grant, or none any more."""

    label = "etcd, host b"

    def __init__(self, found: tuple[bytes, int, bytes] | None) -> None:
        self._found = found
        self.asked: list[object] = []

    def grant_condition(self, grant: object) -> tuple[bytes, int, bytes] | None:
        self.asked.append(grant)
        return self._found


@pytest.mark.parametrize("face", ["async", "blocking"])
def test_the_condition_that_a_grant_exists_is_its_key_and_its_revision(face: str) -> None:
    store = Conditions((b"locks/\xff/7", 2**40, b"message"))
    twin = SimpleNamespace(name="x", _tenure=SimpleNamespace(grant="the grant"), _opened=SimpleNamespace(backend=store))
    lease: Any = twin if face == "async" else SimpleNamespace(name="x", _twin=twin)
    held = still_held(lease)
    assert store.asked == ["the grant"]
    assert (held.key, held.create_revision, held.as_message()) == (b"locks/\xff/7", 2**40, b"message")
    assert held.as_json() == {
        "key": "bG9ja3Mv/y83", "result": "EQUAL", "target": "CREATE", "create_revision": "1099511627776",
    }  # fmt: skip
    gone: Any = SimpleNamespace(
        name="x", _tenure=twin._tenure, _opened=SimpleNamespace(backend=Conditions(None)), fence=5
    )
    with pytest.raises(LeaseLost, match="the lock 'x' is not held any more") as caught:
        still_held(gone)
    assert (caught.value.name, caught.value.backend) == ("x", "etcd, host b")


# --- Redis, as far as nothing is sent


@pytest.mark.parametrize("keep", [0, -5, True, False])
def test_a_time_to_keep_the_register_is_above_zero(keep: int) -> None:
    with pytest.raises(ConfigurationError, match="keep_ms must be a whole number above 0"):
        AsyncFencedRedis(None, 5, resource="r", keep_ms=keep)


def test_a_write_of_nothing_is_refused() -> None:
    fenced = FencedRedis(None, 5, resource="r")
    with pytest.raises(ConfigurationError, match="at least one field"):
        fenced.hset("key", {})
    with pytest.raises(ConfigurationError, match="at least one key"):
        fenced.delete()


class Scripts:
    """A client of Redis that notes what it is asked to run."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Any, ...]] = []

    def _answer(self, *words: Any) -> Any:
        self.asked.append(words)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def evalsha(self, *words: Any) -> Any:
        return self._answer("evalsha", *words)

    def eval(self, *words: Any) -> Any:
        return self._answer("eval", *words)

    def hget(self, *words: Any) -> Any:
        return self._answer("hget", *words)


def test_a_script_that_redis_does_not_know_is_sent_whole_and_another_error_is_the_users(noted: list[str]) -> None:
    scripts = Scripts(Exception("NOSCRIPT No matching script"), 1, type("NoScriptError", (Exception,), {})("x"), 1)
    fenced = FencedRedis(scripts, 5, resource="r")
    fenced.raise_fence()
    fenced.raise_fence()
    assert [words[0] for words in scripts.asked] == ["evalsha", "eval"] * 2
    assert scripts.asked[0][2:] == scripts.asked[1][2:] == (1, "leasehold:guard:r", "5", "", "", "exclusive", "0")
    assert noted == ["ok", "ok"]
    broken = Scripts(ValueError("another"))
    with pytest.raises(ValueError, match="another"):
        FencedRedis(broken, 5, resource="r").raise_fence()
    assert len(broken.asked) == 1
    assert noted == ["ok", "ok"], "nobody knows whether it passed"


def test_a_script_gets_its_keys_its_arguments_and_how_long_the_register_is_kept(client: leasehold.Client) -> None:
    scripts = Scripts(1, 1)
    with client.lock("x").hold() as lease:
        FencedRedis(scripts, lease, keep_ms=900).run("return 1", keys=["a", "b"], args=["c"])
        grant = token_of(lease, None).grant
        assert scripts.asked[0][2:] == (
            3, "leasehold:guard:app:x", "a", "b", str(lease.fence), "app:x", grant, "exclusive", "900", "c",
        )  # fmt: skip
    with client.rwlock("y").read.hold() as reader:
        FencedRedis(scripts, reader).raise_fence()
        assert scripts.asked[1][7] == "shared"


def test_every_write_to_redis_sends_its_keys_and_its_values_on_both_faces() -> None:
    """A time to live of nothing is for Redis to refuse, and is not taken for none at all."""
    wanted = [
        (1, (), ()),
        (2, ("k",), ("v",)),
        (2, ("k",), ("v", 0)),
        (2, ("k",), ("v", 70)),
        (2, ("h",), ("a", 1, "b", 2)),
        (4, ("x", "y", "z"), ()),
        (3, ("x", "y"), ("p", "q")),
    ]
    scripts = Scripts(*[each for n in (1, 2) for each in (n, n, n, n, b"5", b"6", "own")])
    fenced: Any = FencedRedis(scripts, 5, resource="r", keep_ms=800)
    blocking: list[Any] = [
        fenced.raise_fence(), fenced.set("k", "v"), fenced.set("k", "v", ttl_ms=0), fenced.set("k", "v", ttl_ms=70),
        fenced.hset("h", {"a": 1, "b": 2}), fenced.delete("x", "y", "z"),
        fenced.run("return 1", keys=["x", "y"], args=["p", "q"]),
    ]  # fmt: skip

    async def main() -> list[Any]:
        same: Any = AsyncFencedRedis(scripts, 5, resource="r", keep_ms=800)
        return [
            await same.raise_fence(), await same.set("k", "v"), await same.set("k", "v", ttl_ms=0),
            await same.set("k", "v", ttl_ms=70), await same.hset("h", {"a": 1, "b": 2}),
            await same.delete("x", "y", "z"), await same.run("return 1", keys=["x", "y"], args=["p", "q"]),
        ]  # fmt: skip

    assert blocking == asyncio.run(main()) == [None, None, None, None, 5, 6, "own"]
    token = ("5", "", "", "exclusive", "800")
    sent = [(count, "leasehold:guard:r", *keys, *token, *args) for count, keys, args in wanted]
    assert [words[2:] for words in scripts.asked] == sent * 2
    digests = [words[1] for words in scripts.asked[:7]]
    assert digests[2] == digests[3] != digests[1]


def test_a_stale_writer_of_redis_is_told_to_the_statistics_once(noted: list[str]) -> None:
    fenced = FencedRedis(Scripts(Exception("LEASEHOLD_STALE 9")), 5, resource="r")
    with pytest.raises(StaleFence) as caught:
        fenced.raise_fence()
    assert (caught.value.highest, noted) == (9, ["stale"])


def test_a_register_of_another_lock_is_asked_for_its_name() -> None:
    scripts = Scripts(Exception("LEASEHOLD_LOCK x"), b"app:other")
    with pytest.raises(ConfigurationError, match="'app:other'"):
        FencedRedis(scripts, 5, resource="r").set("k", 1)
    assert scripts.asked[1] == ("hget", "leasehold:guard:r", "lock")
