"""How the dashboard asks its store: few questions, each bounded in time; what its pages and streams answer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.requests import Request

import leasehold
from leasehold.errors import BackendRejected, BackendUnavailable, ConfigurationError
from leasehold.findings import Finding, Level
from leasehold.fleet import FleetState
from leasehold.sql import Queue
from leasehold.values import Capability, LockState, Mode
from leasehold.web import Role, Viewer, dashboard
from leasehold.web.audit import Audit
from leasehold.web.board import Board
from leasehold.web.pages import PAGES, _scope_and_key
from leasehold.web.protection import Tokens
from leasehold.web.site import MOST_STREAMS, Site
from leasehold.web.source import ANSWERS, QUESTIONS, Source
from tests.waiting import LIMIT, eventually
from tests.web.clocks import Clock, clock_of
from tests.web.serving import within


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What time it is for answers that are remembered."""
    return clock_of(monkeypatch, "source")


class Asked:
    """A question that counts how often it is asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.times = 0

    def __call__(self) -> Any:
        self.times += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


# --- the source


def test_an_answer_is_shared_for_a_moment_and_an_error_as_well(client: leasehold.Client, clock: Clock) -> None:
    source = Source(client, None)
    good, bad = Asked("first", "second"), Asked(BackendRejected("no rights"))

    async def main() -> None:
        for _ in range(2):
            assert await source.shared("good", good) == "first"
            with pytest.raises(BackendRejected):
                await source.shared("bad", bad)
        clock.now += 1.4
        assert await source.shared("good", good) == "first"
        clock.now += 0.2
        assert await source.shared("good", good) == "second"
        clock.now += 20
        assert await source.shared("good", good, max_age=30.0) == "second"
        for number in (2, 3):
            assert good.times == number
            await source.shared("good", good, max_age=30.0)
            assert good.times == number, "not long ago"
            source.forget_answers()
            await source.shared("good", good, max_age=30.0)

    asyncio.run(main())
    assert (good.times, bad.times) == (4, 1)


def test_of_many_who_ask_the_same_at_once_one_asks_the_store(client: leasehold.Client) -> None:
    source, question = Source(client, None), Asked("answer")

    async def main() -> list[Any]:
        return await asyncio.gather(*(source.shared("key", question, max_age=60) for _ in range(9)))

    assert asyncio.run(main()) == ["answer"] * 9
    assert question.times == 1
    assert source._turns == {}, "nothing is left of those who waited"


def test_few_answers_are_remembered_and_the_oldest_are_forgotten(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.web.source.ANSWERS", 2)
    source = Source(client, None)

    async def main() -> None:
        for key in ("a", "b", "a", "c"):
            await source.shared(key, Asked(key), max_age=0)

    asyncio.run(main())
    assert list(source._answers) == ["a", "c"], "one that was asked again is young"
    assert ANSWERS >= 1_000


def test_a_store_that_is_slow_is_asked_by_few_and_nobody_waits_for_ever(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, go_on = Source(client, None), threading.Event()
    begun: list[bool] = []
    limits: list[float] = []
    real = anyio.move_on_after

    def note(limit: float) -> Any:
        limits.append(limit)
        return real(limit)

    monkeypatch.setattr("leasehold.web.source.anyio.move_on_after", note)

    def wait() -> str:
        begun.append(True)
        go_on.wait()
        return "at last"

    async def main() -> None:
        with pytest.raises(BackendUnavailable, match=r"within 0\.01 s"):
            await Source(client, None).ask(go_on.wait, 0.01)
        others = [asyncio.create_task(source.ask(wait, 60)) for _ in range(QUESTIONS)]
        while len(begun) < QUESTIONS:
            await asyncio.sleep(0.001)
        with pytest.raises(BackendUnavailable, match=f"{QUESTIONS} questions wait"):
            await source.ask(lambda: "never")
        go_on.set()
        assert await asyncio.gather(*others) == ["at last"] * QUESTIONS
        assert limits == [0.01] + [60] * QUESTIONS
        while True:
            try:
                assert await source.ask(wait) == "at last"
            except BackendUnavailable:
                await asyncio.sleep(0.01)
            else:
                return

    asyncio.run(asyncio.wait_for(main(), LIMIT))


def test_a_question_that_fails_leaves_its_place_to_the_next(client: leasehold.Client) -> None:
    source = Source(client, None)

    async def main() -> None:
        for _ in range(QUESTIONS + 1):
            with pytest.raises(BackendRejected):
                await source.ask(Asked(BackendRejected("no rights")))

    asyncio.run(main())


def test_a_question_that_nobody_waits_for_before_it_began_leaves_its_place(client: leasehold.Client) -> None:
    source = Source(client, None)

    async def main() -> None:
        for _ in range(QUESTIONS + 1):
            task = asyncio.create_task(source.ask(lambda: None))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        while True:
            try:
                await source.ask(lambda: None)
            except BackendUnavailable:
                await asyncio.sleep(0.01)
            else:
                return

    asyncio.run(asyncio.wait_for(main(), LIMIT))


class Reader:
    """Stands for the reader of the fleet: gives these answers in turn."""

    def __init__(self, *states: FleetState) -> None:
        self.states = list(states)
        self.latest: FleetState | None = None
        self.began = 0.0

    def begin(self) -> None:
        self.latest = self.states.pop(0)


def test_while_the_store_is_away_the_last_that_was_known_is_shown_with_the_error(client: leasehold.Client) -> None:
    locks = (LockState("x", Mode.EXCLUSIVE, 1, (), ()),)
    good = FleetState(locks, None, 7.0, 0.5, {"x": 3.0})
    source = Source(client, None)
    later = FleetState((*locks, LockState("y", Mode.EXCLUSIVE, 1, (), ())), None, 8.0, 0.25, {"y": 4.0})
    away = FleetState(error="gone", read_at=99.0)
    reader: Any = Reader(FleetState(error="away", read_at=1.0), good, away, later, away)
    source._reader = reader

    async def main() -> list[FleetState]:
        return [await source.fleet() for _ in range(5)]

    first, second, third, fourth, fifth = asyncio.run(main())
    assert (first.error, tuple(first.locks)) == ("away", ())
    assert second is good
    assert third == FleetState(locks, "gone", 7.0, 0.5, {"x": 3.0})
    assert fourth is later
    assert fifth == FleetState(later.locks, "gone", 8.0, 0.25, {"y": 4.0}), "the last, and not the first"


def test_one_lock_is_read_by_its_name_and_its_grant_is_noted(client: leasehold.Client) -> None:
    source = Source(client, None)
    with client.lock("x").hold() as lease, client.lock("y").hold():
        state = asyncio.run(source.lock("x"))
        assert state is not None
        assert (state.name, state.holdings[0].fence) == ("x", lease.fence)
    assert source.history.names() == ("x",)
    assert asyncio.run(Source(client, None).lock("free")) is None


def test_a_database_is_asked_in_a_connection_that_is_committed_and_closed(
    client: leasehold.Client, tmp_path: Path
) -> None:
    path = str(tmp_path / "app.db")
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (n)")
    source, seen = Source(client, path), list[Any]()

    def write(database: Any) -> str:
        seen.append(database)
        database.cursor().execute("INSERT INTO t VALUES (1)")
        return "done"

    def fail(error: Exception) -> Any:
        def ask(database: Any) -> None:
            write(database)
            raise error

        return ask

    async def main() -> None:
        assert await source.with_database(write) == "done"
        with pytest.raises(ConfigurationError, match="no such queue"):
            await source.with_database(fail(ConfigurationError("no such queue")))
        with pytest.raises(BackendUnavailable, match="failed with ZeroDivisionError"):
            await source.with_database(fail(ZeroDivisionError("of secrets")))
        with pytest.raises(ConfigurationError, match="no database"):
            await Source(client, None).with_database(write)

    asyncio.run(main())
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM t").fetchone() == (1,), "what failed is rolled back"
    opened = [str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert len(seen) == 3
    assert path not in opened


# --- pages


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("idempotency:3:a:b:k:e:y", ("a:b", "k:e:y")),
        ("idempotency:1:a:k", ("a", "k")),
        ("idempotency:1:a:", None),
        ("idempotency:x:a:k", None),
        ("idempotency:²:a:k", None),
        ("idempotency:", None),
        ("other:1:a:k", None),
        ("1:a:k", None),
    ],
)
def test_scope_and_key_are_read_from_the_name_of_a_lock(name: str, parts: tuple[str, str] | None) -> None:
    assert _scope_and_key(name) == parts


def test_leaders_are_chosen_by_name_with_their_candidates_and_terms(client: leasehold.Client) -> None:
    with within(client) as caller:
        with client.lock("election:boss").hold(), client.lock("leader:x").hold(), client.lock("other").hold():
            caller.facts("leaders")
        caller.order("resume", name="x")  # after an order the next page is new
        facts = caller.facts("leaders")
        assert [row["leader"] for row in facts["leaders"]] == [None, None]
        assert [row["terms_seen"] for row in facts["leaders"]] == [1, 1]
        with client.lock("election:boss").hold() as lease:
            caller.order("resume", name="x")
            facts = caller.facts("leaders")
        boss, other = facts["leaders"]
        assert (boss["name"], other["name"]) == ("election:boss", "leader:x")
        assert (boss["leader"]["fence"], boss["terms_seen"], boss["candidates"]) == (lease.fence, 2, 0)
        assert facts["patterns"] == ["election:*", "leader:*"]
        assert facts["found"] == 2
        assert 0 <= facts["age"] < 60
        client.pause("leader:x", reason="audit")
        caller.order("resume", name="x")
        boss, other = caller.facts("leaders")["leaders"]
        assert other["leader"] is None, "a lock that nobody holds may be listed, because it is paused"


def test_what_is_no_exclusive_lock_or_a_key_is_not_taken_for_a_job(client: leasehold.Client) -> None:
    for name in ("a job", "pool"):
        client.once(name, slot="1").run(lambda: None)
    with (
        within(client) as caller,
        client.semaphore("pool", 2).hold(),
        client.idempotency("pay").attempt("k"),
        client.lock("a job").hold(),
    ):
        eventually(lambda: caller.facts("jobs")["jobs"])
        assert [job["name"] for job in caller.facts("jobs")["jobs"]] == ["a job"]
        assert caller.facts("jobs")["jobs"][0]["running"]["label"] == "worker-1"


def test_what_is_told_of_a_run(client: leasehold.Client) -> None:
    job = client.once("report", slot="monday", on_failure="close")
    with pytest.raises(ZeroDivisionError), job.attempt() as run:
        raise ZeroDivisionError
    assert run
    with within(client) as caller:
        facts = caller.facts("lock", name="report")
        last = facts["last_run"]
        assert (last["slot"], last["outcome"], last["closed"], last["fence"]) == ("monday", "failed", True, run.fence)
        assert (last["again"], last["forgotten"], last["runner"]["label"]) == (None, None, "worker-1")
        assert last["began"] <= last["finished"]
        assert (facts["lock"], facts["queues"], facts["pausable"]) == (None, True, True)
    client.forget("report", slot="monday", reason="again", by="ben")
    with within(client) as caller:
        last = caller.facts("lock", name="report")["last_run"]
        assert last["outcome"] == "forgotten"
        assert "ben" in last["forgotten"]
        assert "Forget…" not in caller.get("/lock", params={"name": "report"}).text


def test_jobs_of_a_queue_are_those_of_the_state_that_was_asked_for(client: leasehold.Client, tmp_path: Path) -> None:
    path = str(tmp_path / "app.db")
    queue = Queue("refunds", max_attempts=1)
    with closing(sqlite3.connect(path)) as database:
        queue.create_tables(database)
        for key in ("dead", "claimed", "ready"):
            queue.enqueue(database, {}, key=key)
        (first,) = queue.claim(database, limit=1)
        queue.fail(database, first, "HTTP 502")
        queue.claim(database, limit=1)
        database.commit()
    with within(client, database=path) as caller:
        for state in ("ready", "claimed", "dead"):
            facts = caller.facts("queue", queue="refunds", state=state)
            assert [job["key"] for job in facts["jobs"]] == [state]
            assert (facts["state"], facts["queue"]) == (state, "refunds")
        assert caller.facts("queue", queue="refunds", state="secret")["state"] == "dead"
        assert caller.facts("queue", queue="refunds")["state"] == "dead"
        assert caller.facts("queue")["jobs"] == []
        assert caller.facts("queue")["queue"] is None
        page = caller.get("/queue", params={"queue": "refunds"}).text
        assert f'href="retry?queue=refunds&amp;job={first.id}"' in page
        assert "Retry…" not in caller.get("/queue", params={"queue": "refunds", "state": "ready"}).text
        for order, more in (("retry", {}), ("delete", {"reason": "x"})):
            answer = caller.order(order, queue="refunds", job=first.id + 1, **more)
            assert answer.json() == {"done": False, "message": "There is no such dead job any more."}
        token = caller.get("/api/v1/session").json()["token"]
        done = caller.post(f"/retry?queue=refunds&job={first.id}", data={"token": token})
        assert (done.status_code, done.headers["location"]) == (303, "queue?queue=refunds&done=retry")
        assert "The job is ready again." in caller.get(f"/{done.headers['location']}").text
        assert caller.facts("queue", queue="refunds", state="dead")["jobs"] == []
    with within(client) as caller:
        assert caller.facts("queue")["supported"] is False
        assert "No database was named" in caller.get("/queue").text


def test_the_worst_finding_of_the_doctor_comes_first(client: leasehold.Client, monkeypatch: pytest.MonkeyPatch) -> None:

    found = [Finding(level.name, level, "x", "y", "") for level in sorted(Level)]
    monkeypatch.setattr(type(client), "examine", lambda _: found)
    with within(client) as caller:
        facts = caller.facts("doctor")
    assert [each["check"] for each in facts["findings"]] == [each.name for each in sorted(Level, reverse=True)]
    assert facts["capabilities"] == {str(each): each in client.capabilities for each in Capability}


def test_a_page_says_what_the_store_cannot_do(client: leasehold.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "has", lambda *_: False)
    with within(client) as caller:
        for page, told in (("jobs", "keeps no records"), ("keys", "keeps no records"), ("partitions", "no semaphores")):
            assert caller.facts(page)["supported"] is False
            assert told in caller.get(f"/{page}").text
        facts = caller.facts("lock", name="x")
        assert (facts["queues"], facts["pausable"], facts["last_run"]) == (False, False, None)
        assert caller.facts("locks")["queues"] is False


@pytest.mark.parametrize(("page", "status"), [("lock", 422), ("locks", 200), ("secret", 404)])
def test_a_page_without_what_it_needs_says_so(client: leasehold.Client, page: str, status: int) -> None:
    with within(client) as caller:
        assert caller.get(f"/{page}").status_code == status
        assert caller.get(f"/api/v1/{page}").status_code == status
        if status == 422:
            assert "Add its name" in caller.get(f"/{page}").text
            assert "Add its name" in caller.get(f"/api/v1/{page}").json()["error"]


def test_the_menu_has_all_pages_but_that_of_one_lock(client: leasehold.Client) -> None:
    with within(client, title="our locks") as caller:
        text = caller.get("/audit").text
        for page in PAGES.values():
            assert (f'href="{page.name}"' in text) is page.in_menu or page.name == "locks"
        assert 'href="audit" aria-current="page"' in text
        assert "<title>Audit · our locks</title>" in text
        assert client.store in text


# --- streams


def stream_of(board: Board) -> tuple[Any, Request]:
    scope = {
        "type": "http", "method": "GET", "path": "/stream", "query_string": b"of=locks", "headers": [],
        "leasehold.viewer": Viewer("ana"),
    }  # fmt: skip
    return Site(board), Request(scope)


def test_a_stream_sends_the_page_again_and_again_and_ends_so_that_its_viewer_is_asked_for_anew(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.web.site.INTERVAL", 0.001)
    monkeypatch.setattr("leasehold.web.site.FRAMES", 3)
    board = Board(Source(client, None), Audit(None), Tokens(None), elections=(), jobs=(), title="")
    site, request = stream_of(board)

    async def main() -> list[str]:
        frames = [frame async for frame in site._frames(request, PAGES["locks"])]
        assert site._streams == 0
        half = site._frames(request, PAGES["locks"])
        await anext(half)
        assert site._streams == 1
        await half.aclose()
        assert site._streams == 0, "a viewer that leaves makes room"
        return frames

    frames = asyncio.run(main())
    assert len(frames) == 3
    for frame in frames:
        assert frame.startswith("event: page\ndata: ")
        assert frame.endswith("\n\n")
        assert frame.count("\n") == 3
        assert "No lock is in use" in frame
        assert "doctype" not in frame


def test_streams_are_few_and_of_pages_that_there_are(client: leasehold.Client) -> None:
    board = Board(Source(client, None), Audit(None), Tokens(None), elections=(), jobs=(), title="")
    site, request = stream_of(board)
    answer = asyncio.run(site._stream(request))
    assert (answer.status_code, answer.media_type) == (200, "text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    site._streams = MOST_STREAMS
    assert asyncio.run(site._stream(request)).status_code == 503
    site._streams = MOST_STREAMS - 1
    assert asyncio.run(site._stream(request)).status_code == 200
    with within(client) as caller:
        assert caller.get("/stream?of=secret").status_code == 404
        assert caller.get("/stream").status_code == 404


# --- the application


def test_a_dashboard_of_a_url_closes_its_own_client_and_leaves_anothers_open(
    client: leasehold.Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[object] = []
    close = leasehold.Client.close

    def note(client: leasehold.Client, **_: object) -> None:
        closed.append(client)
        close(client)

    monkeypatch.setattr(leasehold.Client, "close", note)

    async def live(app: Any) -> None:
        messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

        async def receive() -> Any:
            return messages.pop(0)

        async def send(_: object) -> None:
            """The end is enough."""

        await app({"type": "lifespan"}, receive, send)

    asyncio.run(live(dashboard(client, auth=lambda _: None)))
    assert closed == []
    asyncio.run(live(dashboard(url, auth=lambda _: None)))
    assert len(closed) == 1


def test_what_is_no_store_is_refused(client: leasehold.Client) -> None:
    async def main() -> None:
        async with leasehold.connect_async("memory://") as other:
            with pytest.raises(ConfigurationError, match="beside an async client"):
                dashboard(other, auth=lambda _: None)  # type: ignore[arg-type] # what is tested

    asyncio.run(main())
    with pytest.raises(ConfigurationError, match="has its namespace already"):
        dashboard(client, auth=lambda _: None, namespace="other")


def test_a_namespace_is_that_of_the_urls_client(client: leasehold.Client, url: str) -> None:
    with leasehold.connect(url, namespace="shop") as shop, shop.lock("mine").hold(), client.lock("theirs").hold():
        with within(url, namespace="shop", auth=lambda _: Viewer("ana", Role.READ)) as caller:
            assert [lock["name"] for lock in caller.facts("locks")["locks"]] == ["mine"]
