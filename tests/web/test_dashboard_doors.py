"""Each door of the dashboard by itself: names of hosts, users, origins, tokens, bodies, orders and their audit."""

from __future__ import annotations

import base64
import json
import logging
import re
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Mount

import leasehold
from leasehold.errors import BackendUnavailable, ConfigurationError, LeaseholdError
from leasehold.web import BasicAuth, ProxyHeader, Role, Viewer, dashboard, hash_password
from leasehold.web.actions import ACTIONS, LONGEST_NAME, _facts, _status, _whole, _wrong_field
from leasehold.web.audit import KEPT, Audit
from leasehold.web.auth import REMEMBERED, _credentials, _digest, read_users
from leasehold.web.openapi import document
from leasehold.web.pages import PAGES
from leasehold.web.protection import COOKIE, Tokens, _foreign_write, _host_name, _is_address
from leasehold.web.requests import LARGEST, MOST_FIELDS
from tests.web.serving import Caller, within

if TYPE_CHECKING:
    from collections.abc import Iterator

ANA = Viewer("ana", Role.WRITE)


def request(method: str = "GET", *, cookie: str | None = None, viewer: Viewer = ANA, **more: Any) -> Request:
    headers = [(b"host", b"locks.example"), *((name.encode(), value.encode()) for name, value in more.items())]
    if cookie is not None:
        headers.append((b"cookie", f"{COOKIE}={cookie}".encode()))
    scope = {
        "type": "http", "method": method, "path": "/", "headers": headers, "query_string": b"", "scheme": "http",
        "server": ("locks.example", 80), "client": ("192.0.2.7", 4711), "leasehold.viewer": viewer,
    }  # fmt: skip
    return Request(scope)


# --- hosts and origins


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Locks.Example:9480", "locks.example"),
        ("locks.example", "locks.example"),
        ("[::1]:9480", "[::1]"),
        ("[FE80::1]", "[fe80::1]"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("", ""),
    ],
)
def test_the_name_of_a_host_is_read_without_its_port(host: str, name: str) -> None:
    assert _host_name(host) == name


def test_an_address_is_no_name_that_could_point_here() -> None:
    assert [_is_address(name) for name in ("127.0.0.1", "[::1]", "::1", "localhost", "127.0.0.1.evil.example", "")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "headers", "passes"),
    [
        ("GET", {"origin": "https://evil.example"}, True),
        ("HEAD", {"sec-fetch-site": "cross-site"}, True),
        ("OPTIONS", {"sec-fetch-site": "cross-site"}, True),
        ("POST", {}, True),  # a program
        ("POST", {"origin": "http://locks.example"}, True),
        ("POST", {"origin": "http://locks.example", "sec-fetch-site": "same-origin"}, True),
        ("POST", {"sec-fetch-site": "same-origin"}, True),
        ("POST", {"origin": "http://locks.example", "sec-fetch-site": "same-site"}, False),
        ("POST", {"origin": "http://evil.example", "sec-fetch-site": "same-origin"}, False),
        ("POST", {"origin": "http://locks.example:81"}, False),
        ("POST", {"origin": "null"}, False),
        ("DELETE", {"origin": "http://evil.example"}, False),
        ("PUT", {"sec-fetch-site": "none"}, False),
    ],
    ids=str,
)
def test_a_write_is_taken_from_a_page_of_the_same_origin_or_from_a_program(
    method: str, headers: Any, passes: bool
) -> None:
    refusal = _foreign_write(request(method, **headers).scope)
    assert (refusal is None) is passes
    if refusal is not None:
        assert refusal.status_code == 403
        assert b"Host header" in refusal.body


def test_every_answer_says_what_a_browser_must_not_do(client: leasehold.Client) -> None:
    with within(client) as caller:
        for path in ("/", "/static/app.js", "/nonsense", "/api/v1/locks"):
            headers = caller.get(path).headers
            policy = headers["content-security-policy"].split("; ")
            assert set(policy) == {
                "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
                "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
            }  # fmt: skip
            assert headers["referrer-policy"] == "same-origin"
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert headers["cross-origin-opener-policy"] == "same-origin"


def test_files_are_kept_by_browsers_and_pages_are_not_also_below_a_prefix(client: leasehold.Client) -> None:
    app = Starlette(routes=[Mount("/ops", dashboard(client, auth=lambda _: ANA))])
    with closing(Caller(app)) as caller:
        assert caller.get("/ops/static/app.css").headers["cache-control"] == "public, max-age=31536000, immutable"
        assert caller.get("/ops/static/app.css").headers["content-type"].startswith("text/css")
        assert caller.get("/ops/static/secret").status_code == 404
        assert caller.get("/ops/lock?name=/static/x").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("viewer", "challenge", "status"), [(None, None, 403), (None, "Basic x", 401), (ANA, "Basic x", 200)]
)
def test_who_is_not_known_is_asked_to_log_in_where_that_is_possible(
    client: leasehold.Client, viewer: Viewer | None, challenge: str | None, status: int
) -> None:
    class Door:
        async def __call__(self, _: object) -> Viewer | None:
            return viewer

    door: Any = Door()
    if challenge is not None:
        door.challenge = challenge
    with within(client, auth=door) as caller:
        answer = caller.get("/")
    assert answer.status_code == status
    assert answer.headers.get("www-authenticate") == (challenge if status == 401 else None)


# --- users


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("Basic " + base64.b64encode(b"ana:pass:word").decode(), ("ana", "pass:word")),
        ("bASIC " + base64.b64encode(b"ana:").decode(), ("ana", "")),
        ("Basic " + base64.b64encode("anä:ü".encode()).decode(), ("anä", "ü")),
        ("Basic " + base64.b64encode(b"ana").decode(), None),
        ("Basic " + base64.b64encode(b"an\xff:x").decode(), None),
        ("Basic YW5h!OngK", None),
        ("Bearer " + base64.b64encode(b"ana:x").decode(), None),
        ("Basic", None),
        ("", None),
    ],
)
def test_name_and_password_are_read_from_their_header(header: str, found: tuple[str, str] | None) -> None:
    assert _credentials(header) == found


def test_a_hash_that_was_made_once_is_good_for_ever() -> None:
    """Files of users have it, and no password could be tried any more if it were made in another way."""
    assert _digest("swordfish", "salt") == (
        "bc811ff1a263c4b009bc69864b6979e7599df9bb79590349d5b1a9d3d589f0cd"
        "97e59f655e59893cce6e4dec83fef53020029e3f05b037ec5919cd6c376e2205"
    )
    scheme, salt, found = hash_password("swordfish").split("$")
    assert (scheme, len(salt), found) == ("scrypt", 32, _digest("swordfish", salt))


def test_a_password_is_hashed_once_with_a_salt_of_its_own_and_few_are_remembered(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hash_password("x") != hash_password("x")
    tried: list[str] = []

    def digest(password: str, salt: str) -> str:
        tried.append(password)
        return "right" if password == "right" else "wrong"

    monkeypatch.setattr("leasehold.web.auth._digest", digest)
    auth = BasicAuth({"ana": (Role.WRITE, "scrypt$salt$right"), "eve": (Role.READ, "scrypt$salt$right")})
    del tried[:]
    with within(client, auth=auth) as caller:
        for _ in range(3):
            assert caller.get("/api/v1/session", auth=("ana", "right")).json()["viewer"] == "ana"
        assert tried == ["right"], "what was right is not hashed again with every request"
        assert caller.get("/api/v1/session", auth=("eve", "right")).json()["role"] == "read"
        for _ in range(2):
            assert caller.get("/", auth=("ana", "guess")).status_code == 401
        assert caller.get("/", auth=("nobody", "right")).status_code == 401
        assert tried == ["right", "right", "guess", "guess", "right"], "also for a name that is not there"
        assert len(auth._known) == 2, "only what was right"
        auth._known.update((bytes([number // 256, number % 256]), ANA) for number in range(REMEMBERED))
        assert caller.get("/", auth=("ana", "right")).status_code == 200
        auth._known.clear()
        auth._known.update((bytes([number // 256, number % 256]), ANA) for number in range(REMEMBERED))
        assert caller.get("/", auth=("ana", "right")).status_code == 200
        assert len(auth._known) == 1


def test_a_file_of_users_is_read_line_by_line_and_a_wrong_one_is_named() -> None:
    users = read_users("\n  # who\n ana:write:scrypt$a$b \n\nben:read:scrypt$c$d:e\n")
    assert users == {"ana": (Role.WRITE, "scrypt$a$b"), "ben": (Role.READ, "scrypt$c$d:e")}
    for cut in ("scrypt$", "scrypt$salt", "scrypt$salt$hash$more"):  # as a line that was copied in part
        with pytest.raises(ConfigurationError, match=r"line 1 of the file"):
            read_users(f"ana:write:{cut}")
    with pytest.raises(ConfigurationError, match=r"line 3 of the file"):
        read_users("# one\n\nana:admin:scrypt$a$b")
    with pytest.raises(ConfigurationError, match="has none"):
        read_users("# one\n\n")


@pytest.mark.parametrize(
    ("addresses", "address", "user"),
    [
        (["10.0.0.0/8"], "10.9.8.7", "ben"),
        (["10.0.0.0/8", "192.0.2.1"], "192.0.2.1", "ben"),
        (["10.0.0.0/8"], "11.0.0.1", None),
        ([], "127.0.0.1", None),
    ],
)
def test_a_proxy_is_known_by_its_network_and_readers_stay_readers(
    addresses: list[str], address: str, user: str | None
) -> None:
    scope = {"type": "http", "headers": [(b"x-user", b"ben")], "client": (address, 1)}
    viewer = ProxyHeader("X-User", addresses=addresses, writers=["ana", "be"])(HTTPConnection(scope))
    assert viewer == (None if user is None else Viewer("ben", Role.READ))


def test_an_address_of_a_proxy_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="address or network"):
        ProxyHeader("X-User", addresses=["proxy.local"])


# --- tokens


def test_a_token_belongs_to_a_key_a_cookie_and_a_viewer() -> None:
    tokens = Tokens("secret")
    token = tokens.token("session", ANA)
    assert Tokens("secret").token("session", ANA) == token, "processes that share the secret agree"
    others = [
        Tokens("other").token("session", ANA),
        tokens.token("other", ANA),
        tokens.token("session", Viewer("eve", Role.WRITE)),
        Tokens(None).token("session", ANA),
        Tokens(None).token("session", ANA),
    ]
    assert len({token, *others}) == 6
    assert tokens.is_right(request(cookie="session"), token)
    assert not tokens.is_right(request(cookie="session"), "")
    assert not tokens.is_right(request(cookie="session"), "ä")
    assert not tokens.is_right(request(), token)
    assert not tokens.is_right(request(), tokens.token("", ANA))


def test_a_browser_keeps_its_session() -> None:
    tokens = Tokens(None)
    assert tokens.session(request(cookie="mine")) == "mine"
    new = {tokens.session(request()) for _ in range(3)}
    assert len(new) == 3
    assert min(map(len, new)) >= 32


@pytest.mark.parametrize(("scheme", "root"), [("http", ""), ("https", "/ops/locks")])
def test_the_cookie_is_for_this_dashboard_alone(scheme: str, root: str) -> None:
    asked, response = request(), Response()
    asked.scope.update({"scheme": scheme, "root_path": root})
    Tokens(None).remember(asked, response, "session")
    parts = {part.lower() for part in response.headers["set-cookie"].split("; ")}
    assert parts == {f"{COOKIE}=session", f"path={root}/", "httponly", "samesite=strict"} | (
        {"secure"} if scheme == "https" else set()
    )


# --- bodies


@pytest.fixture
def caller(client: leasehold.Client) -> Iterator[Caller]:
    with within(client) as caller:
        yield caller


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "application/json", 403),  # read; there is no token
        (b"{}", "application/json; charset=utf-8", 403),
        (b"{}", "text/plain", 400),
        (b"{}", "", 400),
        (b"[]", "application/json", 400),
        (b"[" * 10_000, "application/json", 400),
        (b"{}" + b" " * (LARGEST - 2), "application/json", 403),
        (b"{}" + b" " * (LARGEST - 1), "application/json", 400),
    ],
    ids=lambda value: value[:30] if isinstance(value, bytes) else None,
)
def test_a_body_is_json_and_not_too_large(caller: Caller, body: bytes, kind: str, status: int) -> None:
    answer = caller.post("/api/v1/resume", content=body, headers={"content-type": kind} if kind else {})
    assert answer.status_code == status
    assert answer.json()["done"] is False
    assert answer.json()["message"]


def test_a_form_has_few_fields_that_are_text(caller: Caller) -> None:
    assert caller.post("/resume", content=b"&".join([b"a=1"] * MOST_FIELDS)).status_code == 403
    assert caller.post("/resume", content=b"&".join([b"a=1"] * (MOST_FIELDS + 1))).status_code == 400
    assert caller.post("/resume", content=b"\xff").status_code == 400
    assert "larger than" in caller.post("/resume", content=b"a=" + b"x" * LARGEST).text


# --- orders


@pytest.mark.parametrize(
    ("action", "changes", "sentence"),
    [
        ("break", {}, None),
        ("break", {"name": ""}, "Missing: name"),
        ("break", {"reason": " \t"}, "Missing: reason"),
        ("break", {"confirm": None}, "Missing: confirm"),
        ("break", {"fence": "7x"}, "fence must be a whole number"),
        ("break", {"fence": "-7"}, "fence must be a whole number"),
        ("break", {"fence": "9" * 20}, "fence must be a whole number"),
        ("break", {"confirm": " a\nb "}, None),
        ("break", {"confirm": "a\\nb"}, None),
        ("break", {"confirm": "ab"}, "another one"),
        ("break", {"name": "ab\n ", "confirm": "ab\\n"}, None),  # as it is shown, without the spaces around it
        ("break", {"now": None}, None),
        ("pause", {"duration": None}, None),
        ("pause", {"reason": ""}, "Missing: reason"),
        ("resume", {}, None),
        ("forget", {"slot": ""}, "Missing: slot"),
        ("retry", {"job": "first"}, "job must be a whole number"),
        ("delete", {"reason": ""}, "Missing: reason"),
        ("delete", {"job": 5}, None),
    ],
)
def test_what_is_wrong_with_an_order_is_said_in_a_sentence(
    action: str, changes: dict[str, Any], sentence: str | None
) -> None:
    right: dict[str, Any] = {
        "name": "a\nb", "fence": 7, "confirm": "a\nb", "reason": "why", "now": "1", "duration": "2h", "slot": "s",
        "queue": "q", "job": "5",
    }  # fmt: skip
    order = {field: (right | changes)[field] for field in ACTIONS[action].fields}
    wrong = _wrong_field(ACTIONS[action], order)
    assert (wrong is None) if sentence is None else (sentence in str(wrong))


@pytest.mark.parametrize(
    ("value", "number"),
    [(7, 7), ("7", 7), ("0", 0), ("9" * 19, int("9" * 19)), ("9" * 20, None), ("-1", None), ("1.5", None), ("²", None),
     ("", None), (None, None), (True, None)],
)  # fmt: skip
def test_a_whole_number_is_read_from_a_form_or_from_json(value: object, number: int | None) -> None:
    assert _whole(value) == number


def test_what_an_error_of_the_store_is_answered_with() -> None:
    errors = (BackendUnavailable("away"), ConfigurationError("wrong"), LeaseholdError("else"))
    assert [_status(error) for error in errors] == [503, 422, 409]


def test_an_order_is_written_down_with_who_gave_it_and_what_for() -> None:
    asked, action = request(), ACTIONS["break"]
    order = {"name": "x", "fence": "7", "confirm": "x", "reason": "why", "now": None}
    assert _facts(asked, action, order) == {
        "viewer": "ana", "address": "192.0.2.7", "action": "break", "target": "x", "reason": "why", "fence": 7,
    }  # fmt: skip
    asked.scope["client"] = None
    job = _facts(asked, ACTIONS["retry"], {"queue": "refunds", "job": "5"})
    assert (job["target"], job["address"], job["reason"], job["fence"]) == ("job 5 of refunds", "unknown", "", None)


def test_the_name_of_a_viewer_is_cut_to_what_the_store_keeps(client: leasehold.Client) -> None:
    with within(client, auth=lambda _: Viewer("n" * 250, Role.WRITE)) as caller:
        assert caller.order("pause", name="x", reason="audit").json()["done"]
    state = client.inspect("x")
    assert state is not None
    assert state.paused is not None
    assert state.paused.by == "n" * LONGEST_NAME + " (dashboard)"
    assert state.paused.expires_in is None


def test_a_pause_lasts_as_long_as_was_said_and_what_cannot_be_meant_is_refused(
    client: leasehold.Client, caller: Caller
) -> None:
    assert caller.order("pause", name="x", reason="audit", duration=" 2h ").json()["done"]
    state = client.inspect("x")
    assert state is not None
    assert state.paused is not None
    assert state.paused.reason == "audit"
    assert 7_000 < (state.paused.expires_in or 0) <= 7_200
    answer = caller.order("pause", name="x", reason="audit", duration="soon")
    assert (answer.status_code, answer.json()["done"]) == (422, False)
    outcomes = [entry["outcome"] for entry in caller.get("/api/v1/audit").json()["entries"]]
    assert outcomes == ["failed", "ordered", "done", "ordered"]
    (failed, *_) = caller.get("/api/v1/audit").json()["entries"]
    assert "soon" in failed["detail"]


def test_a_break_keeps_the_lock_for_its_ttl_unless_the_next_is_let_in_now(
    client: leasehold.Client, caller: Caller
) -> None:
    for now, is_free in (({}, False), ({"now": False}, False), ({"now": True}, True)):
        name = f"x{len(now)}{is_free}"
        fence = client.lock(name).acquire().fence
        assert caller.order("break", name=name, fence=fence, confirm=name, reason="stuck", **now).json()["done"]
        assert (client.lock(name).try_acquire() is not None) is is_free, now


def test_a_form_leads_back_to_what_was_changed_and_says_so_only_to_its_own_pages(
    client: leasehold.Client, caller: Caller
) -> None:
    token = caller.get("/api/v1/session").json()["token"]
    done = caller.post("/pause?name=a/b", data={"reason": "audit", "token": token})
    assert (done.status_code, done.headers["location"]) == (303, "lock?name=a%2Fb&done=pause")
    assert "Paused: it is not granted now." in caller.get("/lock?name=a/b&done=pause").text
    for site, is_own in (("same-origin", True), ("same-site", False), ("none", False), ("cross-site", False)):
        shown = caller.get("/lock?name=a/b&done=pause", headers={"Sec-Fetch-Site": site}).text
        assert ("Paused: it is not granted now." in shown) is is_own, site
    assert caller.get("/lock?name=a/b&done=nonsense").status_code == 200
    assert caller.post("/resume?name=a/b", data={"token": token}).status_code == 303
    nothing = caller.post("/resume?name=a/b", data={"token": token})
    assert nothing.status_code == 409
    assert "It was not paused." in nothing.text


def test_what_the_link_says_counts_more_than_what_a_form_says(client: leasehold.Client, caller: Caller) -> None:
    token = caller.get("/api/v1/session").json()["token"]
    form = {"name": "other", "reason": "audit", "token": token}
    assert caller.post("/pause?name=mine", data=form).headers["location"] == "lock?name=mine&done=pause"
    assert client.inspect("other") is None
    assert client.inspect("mine") is not None


def test_a_link_fills_in_neither_the_confirmation_nor_the_reason(client: leasehold.Client, caller: Caller) -> None:
    """Else a link that somebody sent would break a lock with one click, and with a reason that nobody typed."""
    token = caller.get("/api/v1/session").json()["token"]
    with client.lock("x").hold() as lease:
        link = f"/break?name=x&fence={lease.fence}&confirm=x&reason=sent&now=1"
        assert "sent" not in re.sub(r'data-stream="[^"]*"', "", caller.get(link).text)
        refused = caller.post(link, data={"token": token})
        assert (refused.status_code, "Missing: confirm" in refused.text) == (422, True)
        refused = caller.post(link, data={"token": token, "confirm": "x"})
        assert (refused.status_code, "Missing: reason" in refused.text) == (422, True)
        refused = caller.post(link, data={"token": token, "confirm": "y", "reason": "typed"})
        assert (refused.status_code, "is another one" in refused.text) == (422, True)
        lease.check()


def test_the_slot_of_a_link_is_the_one_that_is_forgotten(client: leasehold.Client, caller: Caller) -> None:
    for slot in ("one\r\ntwo", "other"):
        client.once("job", slot=slot).run(lambda: None)
    link = "/forget?name=job&slot=one%0D%0Atwo"
    form = caller.get(link).text
    assert 'action="forget?name=job&amp;slot=one%0D%0Atwo"' in form
    assert 'name="slot"' not in form, "a form would change the ends of its lines"
    token = caller.get("/api/v1/session").json()["token"]
    answer = caller.post(link, data={"slot": "other", "reason": "empty", "token": token})
    assert answer.headers["location"] == "lock?name=job&done=forget"
    last = client.last_run("job", slot="one\r\ntwo")
    assert last is not None
    assert last.forgotten == "empty (by ana (dashboard))"


def test_the_form_of_a_break_is_for_a_grant_that_is_there(client: leasehold.Client, caller: Caller) -> None:
    with client.lock("x", reason="charging").hold() as lease:
        form = caller.get(f"/break?name=x&fence={lease.fence}")
        assert form.status_code == 200
        assert "charging" in form.text
        assert form.headers["set-cookie"].startswith(f"{COOKIE}=")
        gone = caller.get(f"/break?name=x&fence={lease.fence + 1}")
        assert gone.status_code == 404
        assert "nothing to break" in gone.text
        assert caller.get("/break?fence=1").status_code == 422
        pause = caller.get("/pause?name=x").text
        assert 'name="reason" maxlength="200" required' in pause
        assert 'name="duration" maxlength="200">' in pause
        assert 'name="name"' not in pause, "the link has it"


def test_an_order_has_its_fields_and_its_answers_in_the_openapi_document() -> None:
    paths = document()["paths"]
    required = {
        "break": ["name", "fence", "confirm", "reason"],
        "pause": ["name", "reason"],
        "resume": ["name"],
        "forget": ["name", "slot", "reason"],
        "retry": ["queue", "job"],
        "delete": ["queue", "job", "reason"],
    }
    kinds = {"fence": "integer", "job": "integer", "now": "boolean"}
    for name, fields in required.items():
        post = paths[f"/{name}"]["post"]
        schema = post["requestBody"]["content"]["application/json"]["schema"]
        assert schema["required"] == fields
        assert post["summary"] == ACTIONS[name].summary
        assert {field: facts["description"] for field, facts in schema["properties"].items()} == ACTIONS[name].fields
        for field, facts in schema["properties"].items():
            assert facts["type"] == kinds.get(field, "string"), (name, field)
        assert post["parameters"][0]["name"] == "X-Leasehold-Token"
        assert list(post["responses"]) == ["200", "400", "403", "409", "422", "503"]
    parameters = {each["name"]: each["description"] for each in paths["/locks"]["get"]["parameters"]}
    assert list(parameters) == ["q", "long", "waiters", "sort", "order", "page"]
    assert parameters == PAGES["locks"].parameters


# --- the audit


def entry(**facts: Any) -> dict[str, Any]:
    return {"viewer": "ana", "address": "::1", "action": "break", "target": "x", "outcome": "ordered", **facts}


def test_the_audit_keeps_the_last_entries_newest_first_and_logs_each(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(None)
    with caplog.at_level(logging.WARNING, "leasehold.audit"):
        for number in range(KEPT + 2):
            audit.write(**entry(target=f"{number}\n"))
    entries = audit.entries()
    assert [each.target for each in entries[:2]] == [f"{KEPT + 1}\n", f"{KEPT}\n"]
    assert len(entries) == KEPT
    assert caplog.messages[-1] == f"ana (::1): break '{KEPT + 1}\\n': ordered"
    assert re.fullmatch(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{3}\+00:00", entries[0].time)


def test_the_file_of_the_audit_is_private_and_each_line_is_a_whole_entry(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    audit = Audit(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    audit.write(**entry(fence=7, detail="a\nb"))
    path.rename(tmp_path / "rotated")
    audit.write(**entry(outcome="done"))
    (first,) = (tmp_path / "rotated").read_text().splitlines()
    (second,) = path.read_text().splitlines()
    assert (json.loads(first)["fence"], json.loads(first)["detail"]) == (7, "a\nb")
    assert json.loads(second)["outcome"] == "done"
    with pytest.raises(ConfigurationError, match="cannot be opened: Is a directory"):
        Audit(tmp_path)


def test_a_line_that_was_written_in_part_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = Audit(tmp_path / "audit")
    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr("os.write", lambda _, line: len(line) - 1)
        audit.write(**entry())
    assert audit.entries() == (), "and the order is not carried out"


def test_no_file_stays_open_for_the_audit(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit")
    audit.write(**entry())
    opened = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert str(tmp_path / "audit") not in opened
