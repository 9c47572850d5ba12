"""Nothing is lost or mixed up on its way: from an option, an order or a query to the store, and from it to a page."""

from __future__ import annotations

import asyncio
import html
import json
import re
import sqlite3
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import pytest
from starlette.requests import Request

import leasehold
from leasehold.errors import BackendUnavailable, Conflict
from leasehold.findings import Finding, Level
from leasehold.fleet import FleetState
from leasehold.sql import Queue
from leasehold.values import Capability, Holder, Holding, LastRun, LockState, Mode, Pause
from leasehold.web import Role, Viewer, app
from leasehold.web.actions import ACTIONS, PATIENCE, perform
from leasehold.web.audit import Audit
from leasehold.web.board import Board
from leasehold.web.history import History
from leasehold.web.pages import EXAMINED_FOR, LONG_PATIENCE, PAGES, SHOWN
from leasehold.web.protection import Tokens
from leasehold.web.site import Site
from leasehold.web.source import FRESH, Source
from leasehold.web.source import PATIENCE as QUESTION_PATIENCE
from tests.web.clocks import clock_of
from tests.web.serving import within

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ANA, BEN = Holder("db-1", 7, "nightly", "the ledger"), Holder("db-2", 8)
WRITER, READER = Viewer("ana", Role.WRITE), Viewer("ben", Role.READ)


class Recorder:
    """In the place of a client: what it was asked for, and the answer that was given for the verb."""

    def __init__(self, **answers: Any) -> None:
        self.calls: list[Any] = []
        self._answers = answers

    def __getattr__(self, verb: str) -> Any:
        def called(*words: Any, **options: Any) -> Any:
            self.calls.append((verb, words, options))
            answer = self._answers.get(verb)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return called


# --- orders


@pytest.mark.parametrize(
    ("action", "order", "call"),
    [
        (
            "break",
            {"name": "a", "fence": "7", "confirm": "a", "reason": "stuck", "now": None},
            ("break_lock", ("a",), {"fence": 7, "reason": "stuck", "by": "eve", "now": False}),
        ),
        (
            "break",
            {"name": "a", "fence": 8, "confirm": "a", "reason": "hangs", "now": "1"},
            ("break_lock", ("a",), {"fence": 8, "reason": "hangs", "by": "eve", "now": True}),
        ),
        (
            "pause",
            {"name": "b", "reason": "moving", "duration": " 2h "},
            ("pause", ("b",), {"reason": "moving", "by": "eve", "duration": "2h"}),
        ),
        (
            "pause",
            {"name": "b", "reason": "moving", "duration": " "},
            ("pause", ("b",), {"reason": "moving", "by": "eve", "duration": None}),
        ),
        ("resume", {"name": "c"}, ("resume", ("c",), {"by": "eve"})),
        (
            "forget",
            {"name": "d", "slot": "Monday ", "reason": "empty"},
            ("forget", ("d",), {"slot": "Monday ", "reason": "empty", "by": "eve"}),
        ),
    ],
)
def test_an_order_reaches_the_store_with_every_word_and_its_author(action: str, order: Any, call: Any) -> None:
    for answer in (True, False):
        client = Recorder(break_lock=answer, resume=answer, forget=answer)
        source: Any = SimpleNamespace(client=client)
        assert ACTIONS[action].run(source, order, "eve") is (answer or action == "pause")
        assert client.calls == [call]


@pytest.mark.parametrize(("action", "ready"), [("retry", 1), ("delete", 0)])
def test_of_several_dead_jobs_only_the_one_that_was_named_is_changed(action: str, ready: int, tmp_path: Path) -> None:
    queue = Queue("refunds", max_attempts=1)
    with closing(sqlite3.connect(tmp_path / "app.db")) as database:
        queue.create_tables(database)
        for key in ("first", "second"):
            queue.enqueue(database, {}, key=key)
        for job in queue.claim(database, limit=2):
            queue.fail(database, job, "HTTP 502")
        first, second = sorted(queue.jobs(database, state="dead"), key=lambda job: job.id)
        order = {"queue": "refunds", "job": str(second.id), "reason": "paid by hand"}
        assert ACTIONS[action].run(database, order, "eve") is True
        assert [job.id for job in queue.jobs(database, state="dead")] == [first.id]
        assert [job.id for job in queue.jobs(database, state="ready")] == [second.id] * ready
        assert ACTIONS[action].run(database, order, "eve") is False, "it is not dead any more"


class Ordered:
    """A source of a board: how it was asked, and that its answers were forgotten."""

    database = None

    def __init__(self, client: Any) -> None:
        self.client = client
        self.patience: list[float] = []
        self.forgotten = 0

    async def ask(self, question: Any, patience: float) -> Any:
        self.patience.append(patience)
        return question()

    def forget_answers(self) -> None:
        self.forgotten += 1


def ordered(
    client: Any, *, action: str = "pause", viewer: Viewer = WRITER, with_token: bool = True, **fields: Any
) -> tuple[Any, Ordered, Any]:
    """The outcome of an order, the source that was asked, and the entries of the audit, newest first."""
    source: Any = Ordered(client)
    board = Board(source, Audit(None), Tokens("secret"), elections=(), jobs=(), title="")
    scope = {
        "type": "http", "method": "POST", "path": "/", "headers": [(b"cookie", b"leasehold_session=mine")],
        "client": ("192.0.2.7", 4711), "leasehold.viewer": viewer,
    }  # fmt: skip
    given = {"name": "x", "reason": "why", **fields}
    token = board.tokens.token("mine", viewer) if with_token else "other"
    outcome = asyncio.run(perform(board, Request(scope), ACTIONS[action], given, token))
    found = [(entry.viewer, entry.outcome, entry.detail) for entry in board.audit.entries()]
    return outcome, source, found


def test_an_order_may_take_longer_than_a_look_and_what_was_read_before_it_is_forgotten() -> None:
    outcome, source, entries = ordered(Recorder())
    assert (outcome.status, outcome.done, outcome.message) == (200, True, ACTIONS["pause"].done)
    assert (source.patience, source.forgotten) == ([PATIENCE], 1)
    assert PATIENCE > QUESTION_PATIENCE
    assert entries == [("ana", "done", ""), ("ana", "ordered", "")]


def test_an_order_that_had_nothing_to_do_is_written_down_as_that() -> None:
    outcome, source, entries = ordered(Recorder(resume=False), action="resume")
    assert (outcome.status, outcome.done, outcome.message) == (200, False, ACTIONS["resume"].nothing)
    assert (entries, source.forgotten) == ([("ana", "nothing to do", ""), ("ana", "ordered", "")], 1)


@pytest.mark.parametrize(
    ("error", "status"), [(BackendUnavailable("no route"), 503), (Conflict("another kind of lock"), 409)]
)
def test_an_order_that_fails_is_written_down_with_its_reason_and_may_have_been_carried_out(
    error: Exception, status: int
) -> None:
    outcome, source, entries = ordered(Recorder(pause=error))
    assert (outcome.status, outcome.done, outcome.message) == (status, False, str(error))
    assert entries == [("ana", "failed", str(error)), ("ana", "ordered", "")]
    assert source.forgotten == 1, "nobody knows whether it was done: the next page looks"


def test_an_order_that_is_refused_is_written_down_with_the_reason_and_asks_nobody() -> None:
    client = Recorder()
    outcome, source, entries = ordered(client, viewer=READER)
    assert (outcome.status, outcome.done) == (403, False)
    assert "ben may look" in outcome.message
    assert entries == [("ben", "refused", "read-only")]
    outcome, source, entries = ordered(client, with_token=False)
    assert (outcome.status, outcome.done) == (403, False)
    assert "Reload it" in outcome.message
    assert entries == [("ana", "refused", "no token of this browser")]
    outcome, source, entries = ordered(client, reason="")
    assert (outcome.status, entries) == (422, []), "nothing was meant yet"
    assert (client.calls, source.patience, source.forgotten) == ([], [], 0)


# --- what the application is made of


def test_every_option_of_the_dashboard_arrives_where_it_is_used(
    client: leasehold.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def connect(*words: Any, **options: Any) -> leasehold.Client:
        asked.append((words, options))
        return client

    monkeypatch.setattr(app, "connect", connect)
    options: dict[str, Any] = {
        "namespace": "shop", "database": f"{tmp_path}/app.db", "elections": ["boss:*"], "jobs": ["nightly"],
        "audit": str(tmp_path / "audit"), "hosts": ["Locks.Example"], "title": "our locks",
    }  # fmt: skip
    (tmp_path / "app.db").touch()
    with within("redis://db-1", **options) as caller:
        assert asked == [(("redis://db-1",), {"namespace": "shop", "label": "leasehold dashboard"})]
        known = {"host": "locks.example"}
        assert caller.get("/").status_code == 421
        facts = {name: caller.get(f"/api/v1/{name}", headers=known).json() for name in ("leaders", "jobs", "audit")}
        assert facts["leaders"]["patterns"] == ["boss:*"]
        assert [job["name"] for job in facts["jobs"]["jobs"]] == ["nightly"]
        assert facts["audit"]["file"] == str(tmp_path / "audit")
        assert caller.get("/api/v1/queue", headers=known).json()["database"] == f"sqlite {tmp_path}/app.db"
        assert "<title>Audit · our locks</title>" in caller.get("/audit", headers=known).text
    with within(client) as caller:
        assert caller.facts("leaders")["patterns"] == ["election:*", "leader:*"]
        assert caller.get("/", headers={"host": "any.example"}).status_code == 200


@pytest.mark.parametrize(("secrets", "status"), [(("s", "s"), 200), (("s", "t"), 403), ((None, None), 403)])
def test_processes_that_share_a_secret_take_each_others_tokens(
    client: leasehold.Client, secrets: tuple[str | None, str | None], status: int
) -> None:
    first, second = secrets
    with within(client, secret=first) as one, within(client, secret=second) as other:
        session = one.get("/api/v1/session")
        headers = {
            "X-Leasehold-Token": session.json()["token"],
            "Cookie": session.headers["set-cookie"].partition(";")[0],
        }
        assert other.post("/api/v1/resume", json={"name": "x"}, headers=headers).status_code == status


def test_the_reader_of_the_fleet_asks_as_often_and_waits_as_long_as_a_page(client: leasehold.Client) -> None:
    reader: Any = Source(client, None)._reader
    assert (reader._max_age, reader.patience, reader._prefix) == (FRESH, QUESTION_PATIENCE, "")


def test_who_comes_later_waits_only_for_what_is_left_of_the_patience(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_of(monkeypatch, "source", now=1_003.5)
    limits: list[float] = []
    silent = FleetState(error="silent", read_at=7.0)
    reader = SimpleNamespace(
        latest=FleetState(error="of the last time"),
        began=1_000.0,
        begin=lambda: SimpleNamespace(is_set=lambda: False),
        silence=lambda: silent,
    )

    class Over:
        def __init__(self, limit: float) -> None:
            limits.append(limit)

        def __enter__(self) -> None:
            """Time is up at the first pause."""

        def __exit__(self, *error: object) -> bool:
            return error[0] is TimeoutError

    async def sleep(_: float) -> None:
        raise TimeoutError

    monkeypatch.setattr("leasehold.web.source.anyio", SimpleNamespace(move_on_after=Over, sleep=sleep))
    source = Source(client, None)
    source._reader = reader  # type: ignore[assignment]
    assert asyncio.run(source.fleet()).error == "silent", "an old answer is none to this question"
    assert limits == [QUESTION_PATIENCE - 3.5]


# --- facts


RUN = LastRun("report", "monday", ANA, 90.0, 60.0, 41, failed=True, closed=False, again="empty (by eve)")
RUN_FACTS = {
    "slot": "monday", "outcome": "failed", "finished": 90.0, "began": 60.0, "fence": 41, "closed": False,
    "runner": {"host": "db-1", "pid": 7, "label": "nightly", "reason": "the ledger"},
    "again": "empty (by eve)", "forgotten": None,
}  # fmt: skip


def lock(name: str, *holdings: Holding, waiting: tuple[Holder, ...] = (), **more: Any) -> LockState:
    facts = {"mode": Mode.EXCLUSIVE, "capacity": 1, **more}
    return LockState(name, facts.pop("mode"), facts.pop("capacity"), holdings, waiting, **facts)


class Facts:
    """A source with these locks, read 2.5 s ago; what was asked of it is kept."""

    database = None

    def __init__(self, *locks: LockState, error: str | None = None, client: Any = None) -> None:
        self.state = FleetState(locks, error, 997.5)
        self.history = History()
        self.client = client or Recorder()
        self.asked: list[Any] = []

    def has(self, _: Capability) -> bool:
        return True

    async def fleet(self) -> FleetState:
        return self.state

    async def lock(self, name: str) -> LockState | None:
        return next((each for each in self.state.locks if each.name == name), None)

    async def shared(self, key: Any, question: Any, *limits: float) -> Any:
        self.asked.append((key, *limits))
        return question()


def facts_of(page: str, source: Facts, monkeypatch: pytest.MonkeyPatch, **query: str) -> dict[str, Any]:
    """The facts of a page, at the instant 1000."""
    clock_of(monkeypatch, "pages", "facts")
    any_source: Any = source
    board = Board(any_source, Audit(None), Tokens(None), elections=("boss*",), jobs=("report", "idle"), title="")
    board.jobs = SimpleNamespace(look=_looked(source))  # type: ignore[assignment]
    return collected(page, board, query)


def collected(page: str, board: Board, query: Mapping[str, str]) -> dict[str, Any]:
    async def collect() -> dict[str, Any]:
        return await PAGES[page].collect(board, query)

    return asyncio.run(collect())


def _looked(source: Facts) -> Any:
    async def look(declared: Any, seen: Any) -> dict[str, LastRun | None]:
        source.asked.append((sorted(declared), sorted(seen)))
        return {"idle": None, "report": RUN}

    return look


def test_a_job_is_told_with_its_runner_its_pause_and_its_last_run(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Facts(
        lock(
            "report", Holding(ANA, 42, 5.0, 12.0), Holding(BEN, 43, 6.0, 13.0), paused=Pause("audit", "eve", 9.0, 4.0)
        ),
        lock("pool", Holding(BEN, 1, 1.0, 1.0), mode=Mode.PERMIT),
        lock("idempotency:1:a:k", Holding(BEN, 1, 1.0, 1.0)),
    )
    facts = facts_of("jobs", source, monkeypatch)
    assert source.asked == [(["idle", "report"], ["report"])]
    assert facts == {
        "error": None, "age": 2.5, "supported": True, "pausable": True,
        "jobs": [
            {"name": "idle", "running": None, "paused": None, "last_run": None},
            {
                "name": "report",
                "running": {
                    "host": "db-1", "pid": 7, "label": "nightly", "reason": "the ledger", "held_for": 5.0,
                },
                "paused": {"reason": "audit", "by": "eve", "expires_in": 9.0, "paused_for": 4.0},
                "last_run": RUN_FACTS,
            },
        ],
    }  # fmt: skip


def test_while_the_store_is_away_it_is_not_asked_for_jobs_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Facts(lock("report"), error="no route")
    facts = facts_of("jobs", source, monkeypatch)
    assert (facts["error"], facts["jobs"], source.asked) == ("no route", [], [])


def test_a_lock_is_told_with_the_run_of_its_own_job(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Facts(lock("report", Holding(ANA, 42, 5.0, 12.0)), lock("other", Holding(BEN, 43, 6.0, 13.0)))
    source.history.note_fleet(source.state)
    facts = facts_of("lock", source, monkeypatch, name="report")
    assert (facts["lock"]["name"], facts["last_run"]) == ("report", RUN_FACTS)
    assert [(grant["fence"], grant["holder"]) for grant in facts["grants"]] == [(42, str(ANA))]
    assert facts["seen_since"] == source.history.since
    facts = facts_of("lock", source, monkeypatch, name="other")
    assert (facts["lock"]["holdings"][0]["fence"], facts["last_run"]) == (43, None)


def test_a_key_is_told_with_its_own_attempt_and_its_own_record(monkeypatch: pytest.MonkeyPatch) -> None:
    class Keys(Recorder):
        def idempotency(self, scope: str) -> Any:
            self.calls.append(scope)
            return SimpleNamespace(inspect=self.found)

        def found(self, key: str) -> Any:
            self.calls.append(key)
            return SimpleNamespace(state="completed", since=65.0, expires_in=7_200.0) if key == "cart:7" else None

    client = Keys()
    source = Facts(
        lock("idempotency:6:a:b pay:k:1", Holding(ANA, 42, 5.0, 12.0)),
        lock("idempotency:3:pay:k2", Holding(BEN, 43, 6.0, 13.0)),
        lock("idempotency:3:pay:paused"),
        lock("report", Holding(BEN, 44, 6.0, 13.0)),
        client=client,
    )
    facts = facts_of("keys", source, monkeypatch, scope="pay", key="cart:7")
    rows = [(row["scope"], row["key"], row["name"], row["fence"], row["held_for"]) for row in facts["running"]]
    assert rows == [
        ("a:b pa", ":k:1", "idempotency:6:a:b pay:k:1", 42, 5.0),
        ("pay", "k2", "idempotency:3:pay:k2", 43, 6.0),
    ]
    assert (facts["found"], facts["age"]) == (2, 2.5)
    assert facts["asked"] == {"scope": "pay", "key": "cart:7"}
    assert facts["answer"] == {"found": True, "state": "completed", "since": 65.0, "expires_in": 7_200.0}
    assert client.calls == ["pay", "cart:7"]
    assert facts_of("keys", source, monkeypatch, scope="pay", key="cart:8")["answer"] == {"found": False}
    for query in ({"scope": "pay"}, {"key": "k"}):
        assert facts_of("keys", source, monkeypatch, **query)["asked"] is None


def test_keys_that_are_called_alike_have_answers_of_their_own(client: leasehold.Client) -> None:
    """They are asked for within the moment for which an answer is shared."""
    with client.idempotency("a").attempt("k") as attempt:
        attempt.complete(1)
    with within(client) as caller:
        found = [
            caller.facts("keys", scope=scope, key=key)["answer"]["found"]
            for scope, key in (("a", "k"), ("a", "other"), ("b", "k"))
        ]
    assert found == [True, False, False]


def test_the_doctor_is_asked_seldom_and_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Finding("fsync", Level.WARNING, "it is off", "fences go back", "set it")
    client: Any = SimpleNamespace(examine=lambda: [finding], capabilities={Capability.FIFO})
    source = Facts(client=client)
    facts = facts_of("doctor", source, monkeypatch)
    assert source.asked == [("doctor", EXAMINED_FOR, LONG_PATIENCE)]
    assert EXAMINED_FOR > 10 * FRESH
    assert LONG_PATIENCE > QUESTION_PATIENCE
    assert facts["findings"] == [
        {"check": "fsync", "level": "warning", "found": "it is off", "why": "fences go back", "advice": "set it"}
    ]
    assert {name for name, has in facts["capabilities"].items() if has} == {"fifo"}


def test_of_very_many_rows_the_first_are_shown_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [lock(f"boss-{number:04}", Holding(ANA, number, 1.0, 2.0)) for number in range(1, SHOWN + 8)]
    facts = facts_of("leaders", Facts(*reversed(many)), monkeypatch)
    assert (facts["found"], len(facts["leaders"]), facts["leaders"][0]["name"]) == (SHOWN + 7, SHOWN, "boss-0001")
    assert (facts["age"], facts["leaders"][-1]["leader"]["fence"]) == (2.5, SHOWN)
    keys = [lock(f"idempotency:1:a:{number}", Holding(ANA, number, 1.0, 2.0)) for number in range(1, SHOWN + 8)]
    facts = facts_of("keys", Facts(*keys), monkeypatch)
    assert (facts["found"], len(facts["running"])) == (SHOWN + 7, SHOWN)


def test_a_leader_is_told_with_its_own_candidates_and_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Facts(
        lock("boss-a", Holding(ANA, 42, 5.0, 12.0), waiting=(BEN, BEN, ANA)),
        lock("boss-b", Holding(BEN, 43, 6.0, 13.0), waiting=(ANA,)),
    )
    source.history.note_fleet(FleetState((lock("boss-b", Holding(BEN, 40, 6.0, 13.0)),)))
    source.history.note_fleet(source.state)
    rows = facts_of("leaders", source, monkeypatch)["leaders"]
    assert [(row["leader"]["fence"], row["candidates"], row["terms_seen"]) for row in rows] == [(42, 3, 1), (43, 1, 2)]
    assert [row["leader"]["holder"]["host"] for row in rows] == ["db-1", "db-2"]


def test_the_audit_shows_as_many_entries_as_a_page_has_rows(client: leasehold.Client) -> None:
    board = Board(Source(client, None), Audit(None), Tokens(None), elections=(), jobs=(), title="")
    for number in range(SHOWN + 5):
        board.audit.write(
            viewer="ana", address="::1", action="break", target=f"t{number}", outcome="done", reason="why", fence=number
        )
    entries = collected("audit", board, {})["entries"]
    assert [entry["target"] for entry in entries] == [f"t{number}" for number in range(SHOWN + 4, 4, -1)]
    assert (entries[0]["fence"], entries[0]["reason"], entries[0]["address"]) == (SHOWN + 4, "why", "::1")


def test_a_queue_is_told_with_each_count_and_its_jobs_without_their_payload(
    client: leasehold.Client, tmp_path: Path
) -> None:
    path, queue = str(tmp_path / "app.db"), Queue("refunds", max_attempts=2)
    with closing(sqlite3.connect(path)) as database:
        queue.create_tables(database)
        for number in range(3):
            queue.enqueue(database, {"n": number}, delay=3_600)
        for number in range(2):
            queue.enqueue(database, {"n": number}, key=f"k{number}")
        (job, _) = queue.claim(database, limit=2)
        queue.complete(database, job)
        database.commit()
    with within(client, database=path) as caller:
        facts = caller.facts("queue", queue="refunds", state="claimed")
    (counts,) = facts["queues"]
    assert {word: counts[word] for word in ("queue", "ready", "delayed", "claimed", "done", "dead")} == {
        "queue": "refunds", "ready": 0, "delayed": 3, "claimed": 1, "done": 1, "dead": 0,
    }  # fmt: skip
    (claimed,) = facts["jobs"]
    assert (claimed["key"], claimed["attempts"], claimed["state"]) == ("k1", 1, "claimed")
    assert (claimed["queue"], "payload" in claimed) == ("refunds", False)
    assert (facts["database"], facts["state"], facts["queue"]) == (f"sqlite {path}", "claimed", "refunds")


# --- pages and their streams


def test_the_stream_of_a_page_asks_for_what_the_page_asked_for(client: leasehold.Client) -> None:
    with within(client) as caller:
        for path, query in (
            ("/", [("q", "a&b"), ("long", "1")]),
            ("/lock", [("name", "a/b ü")]),
            ("/keys", [("scope", "s"), ("key", "k")]),
            ("/locks", [("q", "a"), ("q", "b")]),
            ("/locks", [("of", "jobs"), ("q", "a")]),  # not a question of the page
        ):
            text = caller.get(path, params=query).text
            found = re.search(r'data-stream="([^"]*)"', text)
            assert found is not None
            asked = [each for each in query if each[0] != "of"]
            expected = [("of", "locks" if path == "/" else path[1:]), *asked]
            assert parse_qsl(html.unescape(found[1])) == expected


@pytest.mark.parametrize(("viewer", "offers"), [(WRITER, True), (READER, False)])
def test_a_frame_is_for_its_viewer_and_its_query(client: leasehold.Client, viewer: Viewer, offers: bool) -> None:
    board = Board(Source(client, None), Audit(None), Tokens(None), elections=(), jobs=(), title="")
    site = Site(board)

    def frame(query: bytes, page: str) -> str:
        scope = {
            "type": "http", "method": "GET", "path": "/stream", "query_string": query, "headers": [],
            "leasehold.viewer": viewer,
        }  # fmt: skip

        async def first() -> str:
            frames: Any = site._frames(Request(scope), PAGES[page])
            try:
                text: str = await anext(frames)
                return text
            finally:
                await frames.aclose()

        data: str = json.loads(asyncio.run(first()).splitlines()[1].removeprefix("data: "))
        return data

    with client.lock_all(["cart", "other"]).hold():
        text = frame(b"name=cart&of=lock", "lock")
        assert 'href="lock?name=cart"' in text or "<bdi>cart</bdi>" in text
        assert ('href="pause?name=cart"' in text) is offers
        text = frame(b"of=locks&q=cart&sort=held&order=desc", "locks")
        assert "cart" in text
        assert "other" not in text
        assert 'aria-sort="descending"><a href="./?q=cart&amp;sort=held&amp;order=asc">' in text


@pytest.mark.parametrize(
    ("error", "status"), [(BackendUnavailable("no route"), 503), (Conflict("another kind of lock"), 422)]
)
def test_a_page_that_cannot_be_collected_has_the_status_of_its_error(
    client: leasehold.Client, error: Exception, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(leasehold.Client, "inspect", fail)
    monkeypatch.setattr(leasehold.Client, "locks", fail)
    with within(client) as caller:
        for path in ("/lock?name=x", "/break?name=x&fence=7"):
            answer = caller.get(path)
            assert (answer.status_code, str(error) in answer.text) == (status, True)
        answer = caller.get("/api/v1/lock?name=x")
        assert (answer.status_code, answer.json()) == (status, {"error": str(error)})
        assert (caller.get("/").status_code, caller.get("/api/v1/locks").status_code) == (200, 503)
        assert caller.facts("locks")["error"] == str(error)


def test_the_form_of_a_break_shows_the_holder_with_the_fence_that_was_named(client: leasehold.Client) -> None:
    pool = client.semaphore("pool", 2, reason="the first")
    with (
        pool.hold() as first,
        client.semaphore("pool", 2, reason="the second").hold() as second,
        within(client) as caller,
    ):
        for lease, reason, other in ((first, "the first", "the second"), (second, "the second", "the first")):
            text = caller.get(f"/break?name=pool&fence={lease.fence}").text
            assert f'<dd class="fence">{lease.fence}</dd>' in text
            assert reason in text
            assert other not in text


def test_a_form_that_is_refused_says_why_with_the_status_of_the_refusal(client: leasehold.Client) -> None:
    with within(client) as caller:
        token = caller.get("/api/v1/session").json()["token"]
        for path, data, status, told in (
            ("/pause?name=x", {"token": token}, 422, "Missing: reason"),
            ("/pause?name=x", {"reason": "why", "token": "other"}, 403, "Reload it"),
            ("/pause", {"reason": "why", "token": token}, 422, "Missing: name"),
            ("/pause?name=", {"name": "typed", "reason": "why", "token": token}, 303, ""),
            ("/resume?name=x", {"token": token}, 409, "It was not paused."),
        ):
            answer = caller.post(path, data=data)
            assert (answer.status_code, told in answer.text) == (status, True), path
    state = client.inspect("typed")
    assert state is not None, "a link that says nothing leaves it to the form"
    assert state.paused is not None
    with within(client, auth=lambda _: READER) as caller:
        answer = caller.get("/pause?name=x")
        assert (answer.status_code, "Your role is read-only" in answer.text) == (403, True)


# --- what was seen


def test_a_grant_that_is_broken_while_it_is_watched_ends_as_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = clock_of(monkeypatch, "history")
    history = History()
    history.note_lock("x", lock("x", Holding(ANA, 1, 1.0, 20.0)))
    clock.now += 1
    history.note_lock("x", lock("x", Holding(ANA, 1, 2.0, 19.0, broken="stuck (by eve)")))
    assert history.of("x")[0].broken == "stuck (by eve)"
    clock.now += 1
    history.note_lock("x", lock("x", Holding(BEN, 2, 0.5, 20.0)))
    newest, oldest = history.of("x")
    assert (newest.end, newest.broken, newest.holder) == (None, None, str(BEN))
    assert (oldest.end, oldest.holder) == ("broken: stuck (by eve)", str(ANA))


def test_every_holder_of_a_lock_that_was_looked_at_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_of(monkeypatch, "history")
    history = History()
    pool = lock("p", Holding(ANA, 1, 1.0, 20.0), Holding(BEN, 2, 1.0, 30.0), mode=Mode.PERMIT, capacity=3)
    history.note_lock("p", pool)
    assert [(grant.fence, grant.left) for grant in history.of("p")] == [(2, 30.0), (1, 20.0)]
