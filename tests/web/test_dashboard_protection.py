"""Who may look and who may change something: asked as programs and foreign pages ask."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import HTTPConnection

import leasehold
from leasehold.web import BasicAuth, ProxyHeader, Role, Viewer, dashboard, hash_password
from tests.web.serving import dashboard_at, program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leasehold import Lease

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
SECRET = "swordfish-4711"


@pytest.fixture
def lease(client: leasehold.Client) -> Iterator[Lease]:
    lease = client.lock("migration").acquire()
    yield lease
    lease.release()


def is_broken(client: leasehold.Client) -> bool:
    state = client.inspect("migration")
    return state is not None and state.holdings[0].broken is not None


def break_it(lease: Lease, **changes: Any) -> dict[str, Any]:
    return {"name": lease.name, "fence": lease.fence, "confirm": lease.name, "reason": "it hangs", **changes}


def test_a_dashboard_without_auth_is_not_made(client: leasehold.Client) -> None:
    with pytest.raises(leasehold.ConfigurationError, match="needs auth="):
        dashboard(client, auth=None)  # type: ignore[arg-type] # what is tested


def test_every_answer_forbids_frames_foreign_scripts_and_copies(client: leasehold.Client) -> None:
    with dashboard_at(client, hosts=["localhost"]) as address, program(address) as caller:
        for path, status in (("", 200), ("api/v1/locks", 200), ("lock", 422), ("nonsense", 404)):
            answer = caller.get(path)
            assert answer.status_code == status
            for name, value in HEADERS.items():
                assert answer.headers[name].startswith(value), path
        strange = caller.get("", headers={"Host": "evil.example"})
        assert strange.status_code == 421
        assert strange.headers["x-frame-options"] == "DENY"
        assert "immutable" in caller.get("static/app.css").headers["cache-control"]
        cookie = caller.get("api/v1/session").headers["set-cookie"].lower()
        assert "samesite=strict" in cookie
        assert "httponly" in cookie


def test_a_page_that_fails_is_logged_and_answered_without_a_trace_of_the_code(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("leasehold.web.facts.PAGE_SIZE", 0)
    with dashboard_at(client) as address, program(address) as caller:
        answer = caller.get("")
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert answer.headers["x-frame-options"] == "DENY"
    assert "ZeroDivisionError" in caplog.text


def test_only_own_names_and_addresses_are_answered(client: leasehold.Client) -> None:
    with dashboard_at(client, hosts=["locks.example"]) as address, program(address) as caller:
        for host, status in (
            ("locks.example", 200), ("LOCKS.example:9480", 200), ("127.0.0.1:9480", 200), ("[::1]:9480", 200),
            ("evil.example", 421), ("locks.example.evil.example", 421), ("", 421),
        ):  # fmt: skip
            assert caller.get("", headers={"Host": host}).status_code == status, host


def test_basic_auth_knows_users_by_hashes_and_gives_them_their_role(client: leasehold.Client, lease: Lease) -> None:
    users = {"ana": (Role.WRITE, hash_password("right")), "ben": (Role.READ, hash_password("also"))}
    with dashboard_at(client, auth=BasicAuth(users)) as address, program(address) as caller:
        assert caller.get("").status_code == 401
        assert caller.get("").headers["www-authenticate"].startswith("Basic ")
        for login in (("ana", "wrong"), ("nobody", "right"), ("ana", "")):
            assert caller.get("", auth=login).status_code == 401
        assert caller.get("", headers={"Authorization": "Basic ???"}).status_code == 401
        assert caller.get("api/v1/session", auth=("ben", "also")).json() == {
            "viewer": "ben", "role": "read", "token": None,
        }  # fmt: skip
        with program(address, auth=("ben", "also")) as ben:
            assert ben.order("break", **break_it(lease)).status_code == 403
        assert not is_broken(client)
        with program(address, auth=("ana", "right")) as ana:
            assert ana.order("break", **break_it(lease)).json()["done"] is True
        assert is_broken(client)


def test_a_proxys_header_is_believed_only_from_the_proxy(client: leasehold.Client) -> None:
    headers = {"X-User": "ana"}
    with (
        dashboard_at(client, auth=ProxyHeader("X-User", writers=["ana"])) as address,
        program(address, headers=headers) as caller,
    ):
        assert caller.facts("session")["role"] == "write"
        assert caller.get("", headers={"X-User": ""}).status_code == 403
    with (
        dashboard_at(client, auth=ProxyHeader("X-User", addresses=["10.0.0.0/8"])) as address,
        program(address, headers=headers) as caller,
    ):
        assert caller.get("").status_code == 403


@pytest.mark.parametrize(
    ("names", "address", "user"),
    [
        (["ana"], "127.0.0.1", "ana"),
        ([" ana "], "::1", "ana"),
        ([], "127.0.0.1", None),
        ([" "], "127.0.0.1", None),
        (["ana", "eve"], "127.0.0.1", None),  # the caller sent one, and the proxy another: nobody knows which is whose
        (["eve", "ana"], "127.0.0.1", None),
        (["ana"], "127.0.0.2", None),
        (["ana"], "a-name", None),
        (["ana"], None, None),
    ],
)
def test_a_proxy_names_one_user_from_its_own_address(names: list[str], address: str | None, user: str | None) -> None:
    headers = [(b"x-user", name.encode()) for name in names]
    client = None if address is None else (address, 4711)
    viewer = ProxyHeader("X-User")(HTTPConnection({"type": "http", "headers": headers, "client": client}))
    assert (viewer and viewer.name) == user


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_a_write_from_another_site_is_refused(client: leasehold.Client, lease: Lease, headers: dict[str, str]) -> None:
    with dashboard_at(client) as address, program(address, headers=headers) as caller:
        assert caller.order("break", **break_it(lease)).status_code == 403
    assert not is_broken(client)


def test_a_write_needs_the_token_of_its_own_browser_and_viewer(client: leasehold.Client, lease: Lease) -> None:
    def auth(connection: Any) -> Viewer:
        return Viewer(connection.headers.get("x-me", "ana"), Role.WRITE)

    with dashboard_at(client, auth=auth) as address, program(address) as caller, program(address) as other:
        foreign = other.facts("session")["token"]
        own = caller.facts("session")["token"]
        for token, me in (("", "ana"), (foreign, "ana"), (own, "eve"), ("ä", "ana")):
            headers = [(b"X-Leasehold-Token", token.encode()), (b"X-Me", me.encode())]
            answer = caller.post("api/v1/break", json=break_it(lease), headers=headers)
            assert answer.status_code == 403, (token, me)
        form = break_it(lease, token=own)
        with program(address) as without_cookie:
            assert without_cookie.post("break", data=form).status_code == 403
        assert not is_broken(client)
        assert caller.post("break", data=form).status_code == 303
    assert is_broken(client)


def test_a_role_that_was_taken_away_counts_although_the_token_is_right(client: leasehold.Client, lease: Lease) -> None:
    roles = {"ana": Role.WRITE}
    with dashboard_at(client, auth=lambda _: Viewer("ana", roles["ana"])) as address, program(address) as caller:
        headers = {"X-Leasehold-Token": caller.facts("session")["token"]}
        roles["ana"] = Role.READ
        assert caller.post("api/v1/break", json=break_it(lease), headers=headers).status_code == 403
    assert not is_broken(client)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"fence": 1}, 200), ({"fence": "x"}, 422), ({"fence": None}, 422), ({"confirm": "other"}, 422),
        ({"confirm": ""}, 422), ({"reason": " "}, 422), ({"name": ""}, 422),
    ],
)  # fmt: skip
def test_a_break_without_the_right_fence_name_and_reason_does_nothing(
    client: leasehold.Client, lease: Lease, changes: dict[str, Any], status: int
) -> None:
    with dashboard_at(client) as address, program(address) as caller:
        answer = caller.order("break", **break_it(lease, **changes))
        assert answer.status_code == status
        assert answer.json()["done"] is False
    assert not is_broken(client)


def test_bodies_that_are_too_large_or_no_json_are_refused(client: leasehold.Client) -> None:
    with dashboard_at(client) as address, program(address) as caller:
        assert caller.order("break", name="x" * 20_000).status_code == 400
        assert caller.post("api/v1/break", content=b"{").status_code == 400
        json_type = {"Content-Type": "application/json"}
        for content in (b"{", b"[]", b"\xff"):
            assert caller.post("api/v1/break", content=content, headers=json_type).status_code == 400
        assert caller.get("api/v1/break").status_code == 405


def test_every_order_is_written_down_before_and_after(client: leasehold.Client, lease: Lease, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text('{"an earlier": "line"}\n')
    with dashboard_at(client, audit=file) as address, program(address) as caller:
        caller.order("break", **break_it(lease, fence=1))
        caller.order("break", **break_it(lease))
        with dashboard_at(client, audit=file, role=Role.READ) as reading, program(reading) as reader:
            reader.order("break", **break_it(lease))
        shown = caller.facts("audit")["entries"]
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    assert entries[0] == {"an earlier": "line"}
    assert [entry["outcome"] for entry in entries[1:]] == ["ordered", "nothing to do", "ordered", "done", "refused"]
    assert entries[4] == shown[0]
    assert {key: entries[4][key] for key in ("viewer", "action", "target", "fence", "reason", "address")} == {
        "viewer": "ana", "action": "break", "target": "migration", "fence": lease.fence, "reason": "it hangs",
        "address": "127.0.0.1",
    }  # fmt: skip


def test_an_order_that_cannot_be_written_down_is_not_carried_out(client: leasehold.Client, lease: Lease) -> None:
    with dashboard_at(client, audit="/dev/full") as address, program(address) as caller:
        answer = caller.order("break", **break_it(lease))
        assert answer.status_code == 500
        assert "Nothing was done" in answer.json()["message"]
    assert not is_broken(client)


def test_no_secret_of_a_url_is_in_any_page_answer_or_log(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both servers are away, so that every page has an error to tell of as well."""
    store = f"redis://someone:{SECRET}@127.0.0.1:1/0"
    database = f"postgresql://someone:{SECRET}@127.0.0.1:1/app"
    pages = ("", "lock?name=x", "leaders", "jobs", "keys", "queue", "partitions", "doctor", "audit")
    with dashboard_at(store, database=database) as address, program(address) as caller:
        answers = [caller.get(page) for page in (*pages, *(f"api/v1/{page or 'locks'}" for page in pages))]
        answers.append(caller.order("break", name="x", fence=1, confirm="x", reason="y"))
    texts = [answer.text for answer in answers]
    assert "127.0.0.1:1" in texts[0]
    written = "".join((*texts, caplog.text, *capsys.readouterr()))
    assert SECRET not in written
