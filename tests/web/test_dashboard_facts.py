"""What the pages and the JSON interface tell of locks, leaders, jobs, keys, queues and partitions."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from fastapi.openapi.models import OpenAPI

import leasehold
from leasehold._blocking import Client
from leasehold.sql import Queue
from leasehold.values import Holder, Holding, LockState, Mode
from leasehold.web.history import CLOSED_KEPT, NAMES_KEPT, History
from tests.waiting import eventually
from tests.web.serving import dashboard_at, program

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.web.serving import Program


@pytest.fixture
def caller(client: leasehold.Client, tmp_path: Path) -> Iterator[Program]:
    (tmp_path / "app.db").touch()
    options: dict[str, Any] = {"database": str(tmp_path / "app.db"), "elections": ["scheduler"], "jobs": ["report"]}
    with dashboard_at(client, **options) as address, program(address) as caller:
        yield caller


def check(value: Any, schema: dict[str, Any], document: dict[str, Any]) -> None:
    """Whether a value is as its schema says; as much of JSON Schema as the document uses."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        schema = {"type": "null"} if value is None else schema["anyOf"][0]
        check(value, schema, document)
        return
    kinds: dict[str, Any] = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
        "null": type(None),
    }  # fmt: skip
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), (value, schema)
    assert value in schema.get("enum", [value])
    assert set(schema.get("required", ())) <= set(value if isinstance(value, dict) else ())
    for name, inner in schema.get("properties", {}).items():
        check(value[name], inner, document)
    for item in value if "items" in schema else ():
        check(item, schema["items"], document)


def test_the_openapi_document_is_valid_and_every_answer_is_as_it_says(
    client: leasehold.Client, caller: Program
) -> None:
    document = caller.facts("openapi.json")
    OpenAPI.model_validate(document)
    with client.lock("scheduler", reason="x").hold(), client.partitions("orders", count=4):
        client.pause("report", reason="y", by="ana")
        client.once("done", slot="1").run(lambda: None)
        for path, methods in document["paths"].items():
            if "get" in methods:
                query = {"name": "scheduler"} if path == "/lock" else {"scope": "a", "key": "b"}
                answer = caller.get(f"api/v1{path}", params=query)
                assert answer.status_code == 200, answer.text
                schema = methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]
                check(answer.json(), schema, document)
            else:
                check(caller.order(path[1:]).json(), {"$ref": "#/components/schemas/Outcome"}, document)
    routes = {"locks", "lock", "leaders", "jobs", "keys", "queue", "partitions", "doctor", "audit", "session"}
    orders = {"break", "pause", "resume", "forget", "retry", "delete"}
    assert {path[1:] for path in document["paths"]} == routes | orders


def test_an_election_is_listed_with_its_leader_its_candidates_and_without_one(
    client: leasehold.Client, caller: Program
) -> None:
    assert caller.facts("leaders")["leaders"][0]["leader"] is None
    with client.election("scheduler").lead() as term:
        rival = threading.Thread(target=lambda: client.lock("scheduler").acquire(60).release())
        rival.start()
        eventually(lambda: caller.facts("leaders")["leaders"][0]["candidates"] == 1)
        assert caller.facts("leaders")["leaders"][0]["leader"]["fence"] == term.fence
    rival.join()


def test_a_job_has_its_last_run_and_can_be_paused_resumed_and_made_to_forget(
    client: leasehold.Client, caller: Program
) -> None:
    client.once("report", slot="monday").run(lambda: None)

    def job() -> Any:
        return next(job for job in caller.facts("jobs")["jobs"] if job["name"] == "report")

    assert job()["last_run"]["slot"] == "monday"
    assert job()["last_run"]["outcome"] == "done"
    assert caller.order("pause", name="report", reason="the printer burns", duration="2h").json()["done"]
    state = client.inspect("report")
    assert state is not None
    assert state.paused is not None
    assert state.paused.by == "ana (dashboard)"
    assert job()["paused"]["reason"] == "the printer burns"
    assert caller.order("resume", name="report").json()["done"]
    assert not caller.order("resume", name="report").json()["done"]
    assert caller.order("forget", name="report", slot="monday", reason="once more").json()["done"]
    last = client.last_run("report")
    assert last is not None
    assert last.forgotten == "once more (by ana (dashboard))"


def test_a_name_that_has_a_record_of_a_run_is_a_job_once_it_was_seen(client: leasehold.Client, caller: Program) -> None:
    client.once("surprise", slot="1").run(lambda: None)
    assert [job["name"] for job in caller.facts("jobs")["jobs"]] == ["report"]
    with client.lock("surprise").hold(), client.lock("no job").hold():
        eventually(lambda: [job["name"] for job in caller.facts("jobs")["jobs"]] == ["report", "surprise"])


def test_a_key_is_found_by_scope_and_key_and_its_result_is_not_told(client: leasehold.Client, caller: Program) -> None:
    keys = client.idempotency("a:b charges")
    with keys.attempt("cart:7") as attempt:
        eventually(lambda: [row["key"] for row in caller.facts("keys")["running"]] == ["cart:7"])
        assert caller.facts("keys")["running"][0]["scope"] == "a:b charges"
        assert caller.facts("keys", scope="a:b charges", key="cart:7")["answer"]["state"] == "in progress"
        attempt.complete({"card": "4111-1111"})
    found = keys.inspect("cart:7")
    assert found is not None
    assert found.state == "completed"
    assert 86_000 < found.expires_in <= 86_400
    eventually(lambda: caller.facts("keys", scope="a:b charges", key="cart:7")["answer"]["state"] == "completed")
    for path in ("api/v1/keys", "keys"):
        assert "4111" not in caller.get(path, params={"scope": "a:b charges", "key": "cart:7"}).text
    assert caller.facts("keys", scope="a:b charges", key="cart:8")["answer"] == {"found": False}
    for half in ({"scope": "a:b charges"}, {"key": "cart:7"}, {"scope": "", "key": "cart:7"}):
        facts = caller.facts("keys", **half)
        assert (facts["asked"], facts["answer"]) == (None, None), "half a question is none"


def test_a_dead_job_is_retried_or_deleted_and_its_payload_is_not_told(caller: Program, tmp_path: Path) -> None:
    queue = Queue("refunds", max_attempts=1)
    with closing(sqlite3.connect(tmp_path / "app.db")) as database:
        queue.create_tables(database)
        for number in range(3):
            queue.enqueue(database, {"card": "4111-1111"}, key=f"order-{number}")
        for job in queue.claim(database, limit=2):
            queue.fail(database, job, "HTTP 502")
        database.commit()
        answer = caller.get("api/v1/queue", params={"queue": "refunds"})
        first, second = answer.json()["jobs"]
        assert "4111" not in answer.text + caller.get("queue", params={"queue": "refunds"}).text
        assert (first["key"], first["last_error"]) == ("order-0", "HTTP 502")
        assert caller.order("retry", queue="refunds", job=first["id"]).json()["done"]
        assert caller.order("delete", queue="refunds", job=second["id"], reason="paid by hand").json()["done"]
        assert not caller.order("delete", queue="refunds", job=first["id"], reason="is ready").json()["done"]
        counts = caller.facts("queue")["queues"][0]
        assert (counts["ready"], counts["dead"]) == (2, 0)


def test_partitions_have_their_members_and_those_without_an_owner(client: leasehold.Client, caller: Program) -> None:
    with client.partitions("orders", count=4) as share:
        eventually(lambda: len(share.owned()) == 4)

        def group() -> Any:
            return caller.facts("partitions")["groups"][0]

        eventually(lambda: group()["free"] == 0)
        assert (group()["count"], group()["members"][0]["owned"]) == (4, 4)
        assert [each["member"] for each in group()["partitions"]] == [0, 0, 0, 0]


C = TypeVar("C", bound=Client)


def made(kind: type[C], client: leasehold.Client) -> C:
    """Another kind of client on the same store; type checkers let nobody make one."""
    make: Any = kind
    found: C = make(client._twin)
    return found


class Counting(Client):
    """A client that counts how often it is asked for all locks."""

    readings = 0

    def locks(self, prefix: str = "") -> Sequence[LockState]:
        self.readings += 1
        return super().locks(prefix)


def test_however_many_look_the_store_is_read_by_one_reader(client: leasehold.Client) -> None:
    counting = made(Counting, client)
    with client.lock("x").hold(), dashboard_at(counting) as address, program(address) as caller:
        began = time.monotonic()
        for _ in range(20):
            assert caller.facts("locks")["found"] == 1
            assert caller.facts("leaders")["found"] == 0
        assert 1 <= counting.readings <= 1 + (time.monotonic() - began) / 1.5, "once in 1.5 s, whoever asks"


class Stuck(Counting):
    """A client whose store hangs until it is told to go on."""

    go_on = threading.Event()

    def locks(self, prefix: str = "") -> Sequence[LockState]:
        found = super().locks(prefix)
        self.go_on.wait()
        return found


def test_a_viewer_of_a_store_that_hangs_waits_no_longer_than_the_patience(
    client: leasehold.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.web.source.PATIENCE", 0.1)
    stuck = made(Stuck, client)
    with dashboard_at(stuck) as address, program(address) as caller:
        for _ in range(5):
            assert caller.facts("locks")["error"] == "the store did not answer within 0.1 s"
        assert stuck.readings == 1, "the question that is under way is not asked again"
        stuck.go_on.set()
        eventually(lambda: caller.facts("locks")["error"] is None)


def test_of_many_locks_and_waiters_a_page_is_shown() -> None:
    """10,000 locks and 1,000 waiters, in the memory of this process."""
    name = "memory://a-large-fleet"
    ready, ended = threading.Event(), threading.Event()

    async def fleet() -> None:
        client = leasehold.connect_async(name, ttl=600, slow_wait=None)
        leases = [await client.lock(f"order:{number:05}").acquire() for number in range(10_000)]
        tasks = [asyncio.create_task(client.lock("order:00000", fair="strict").acquire(300)) for _ in range(1_000)]
        while len((await client.locks("order:00000"))[0].waiting) < 1_000:
            await asyncio.sleep(0.02)
        ready.set()
        await asyncio.to_thread(ended.wait)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lease in leases:
            await lease.release()
        await client.close()

    thread = threading.Thread(target=asyncio.run, args=(fleet(),))
    thread.start()
    try:
        assert ready.wait(60)
        with dashboard_at(name) as address, program(address) as caller:
            facts = caller.facts("locks", sort="waiters", order="desc")
            assert facts["totals"]["held"] == 10_000
            waiters = facts["totals"]["waiters"]
            assert 500 < waiters <= 1_000, "on a busy machine some ask again too late, and join once more"
            assert (len(facts["locks"]), facts["pages"]) == (100, 100)
            assert (facts["locks"][0]["name"], facts["locks"][0]["waiters"]) == ("order:00000", waiters)
            assert len(facts["locks"][0]["waiting"]) == 200
            page = caller.get("")
            assert page.status_code == 200
            assert len(page.text) < 300_000
            assert 'rel="next" href="./?page=2"' in page.text
            assert 'rel="prev" href="./?q=order&amp;page=1"' in caller.get("", params={"q": "order", "page": "2"}).text
            assert "more behind them" in caller.get("lock", params={"name": "order:00000"}).text
            last = caller.facts("locks", page="99999")
            assert (last["page"], len(last["locks"])) == (100, 100)
    finally:
        ended.set()
        thread.join()


def state_of(name: str, fence: int, left: float, held: float = 1.0) -> LockState:
    return LockState(name, Mode.EXCLUSIVE, 1, (Holding(Holder("h", 1), fence, held, left),), ())


def test_a_rise_of_the_time_left_is_a_renewal_and_an_early_end_a_release() -> None:
    history = History()
    history.note_lock("x", state_of("x", 1, 20))
    grant = history.grant("x", 1)
    assert grant is not None
    assert grant.renewed is None
    history.note_lock("x", state_of("x", 1, 30))
    grant = history.grant("x", 1)
    assert grant is not None
    assert grant.renewed is not None
    assert grant.ttl == 30
    history.note_lock("x", state_of("x", 2, 30, held=0))
    assert [(grant.fence, grant.end) for grant in history.of("x")] == [(2, None), (1, "released")]
    history.note_lock("x", None)
    assert [grant.end for grant in history.of("x")] == ["released", "released"]


def test_what_is_remembered_of_grants_is_bounded() -> None:
    history = History()
    for fence in range(1, 3 * CLOSED_KEPT):
        history.note_lock("x", state_of("x", fence, 30))
    assert len(history.of("x")) == CLOSED_KEPT + 1
    for number in range(NAMES_KEPT + 100):
        history.note_lock(f"{number}", state_of(f"{number}", 1, 30))
        history.note_lock(f"{number}", None)
    from leasehold.fleet import FleetState

    history.note_fleet(FleetState((state_of("x", 99, 30),)))
    assert len(history.names()) <= NAMES_KEPT
    assert history.grant("x", 99) is not None


def test_answers_are_json_that_no_page_mistakes_for_html(client: leasehold.Client, caller: Program) -> None:
    with client.lock("</script><b>").hold():
        answer = caller.get("api/v1/locks")
        assert answer.headers["content-type"] == "application/json"
        assert json.loads(answer.text)["locks"][0]["name"] == "</script><b>"
