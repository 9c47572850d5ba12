"""Verbs of PostgreSQL, request by request: which function is called with which values, and what its answer means."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold._backends.postgres import doctor
from leasehold._backends.postgres.options import PostgresOptions
from leasehold._backends.postgres.statements import Answer, Statements
from leasehold._runtimes.threads import run
from leasehold.errors import ModeConflict
from leasehold.kit.holder import holder_to_json
from leasehold.kit.pauses import pause_from_json, pause_to_json
from leasehold.values import Grant, Holder, Holding, LockState, Mode, Reading, Record, Refusal
from tests.stores.postgres.test_postgres_places import Bench, reply

ANA, BEN = Holder("db-3", 7, "nightly", "the report"), Holder("db-4", 8)
KEY, STORED_KEY = "ns:é", "ns:é".encode()


class Looking(Bench):
    """The same, where looking finds tables unless the answer is None; `looked` tells the statements apart."""

    def __init__(self) -> None:
        super().__init__()
        self.looked: list[bytes] = []
        self.closed: list[str] = []
        self.source: Any = SimpleNamespace(close=self.close)
        self.has_tables = True

    async def close(self) -> None:
        self.closed.append("connections")

    async def look(self, statement: Any, values: Any) -> Any:
        self.looked.append(statement.name)
        if not self.has_tables:
            return None
        return await self.execute(statement, values)

    def told(self, coroutine: Any, *rows: tuple[bytes | None, ...]) -> Any:
        self.answers = [list(rows)]
        return run(coroutine)

    @property
    def last(self) -> tuple[bytes, list[Any]]:
        return self.sent[-1][0], self.sent[-1][1]


@pytest.fixture
def bench() -> Looking:
    return Looking()


# --- operators


def test_a_break_names_the_fence_the_reason_and_when(bench: Looking) -> None:
    for now, told, done in ((True, b"t", True), (False, b"f", False), (False, b"t", True)):
        assert bench.told(bench.backend.break_(KEY, 41, 'st"ück', now=now), (told,)) is done
        values = [STORED_KEY, b"41", json.dumps('st"ück').encode(), b"t" if now else b"f"]
        assert bench.last == (b"leasehold_break", values)


def test_a_raised_fence_is_answered_with_what_all_later_ones_are_above(bench: Looking) -> None:
    assert bench.told(bench.backend.raise_fence(KEY, 41), (b"57",)) == 57
    assert bench.last == (b"leasehold_raise_fence", [STORED_KEY, b"41"])


def test_a_pause_is_kept_with_who_asked_why_and_for_how_long(bench: Looking) -> None:
    bench.told(bench.backend.pause(KEY, Holder("h", 1, "ana", "moving"), 7.5), (None,))
    name, (key, text, seconds) = bench.last
    assert (name, key, seconds) == (b"leasehold_pause", STORED_KEY, b"7.5")
    pause = pause_from_json(text, 7.5)
    assert pause is not None
    assert (pause.reason, pause.by, pause.expires_in) == ("moving", "ana", 7.5)
    for told, ended in ((b"t", True), (b"f", False)):
        assert bench.told(bench.backend.resume(KEY), (told,)) is ended
        assert bench.last == (b"leasehold_resume", [STORED_KEY])


def state_row(key: str, state: int, holder: Holder, fence: int, number: int) -> tuple[bytes | None, ...]:
    text = holder_to_json(holder).encode()
    held, left = b"%d.5" % number, b"%d.25" % (60 - number)
    return key.encode().hex().encode(), b"%d" % state, b"permit", b"3", text, b"%d" % fence, held, left, None


def test_a_state_is_asked_for_by_its_very_key_and_a_list_by_its_prefix(bench: Looking) -> None:
    rows = [state_row(KEY, 1, ANA, 41, 1), state_row(KEY, 2, BEN, 42, 2), state_row(KEY, 3, BEN, 0, 3)]
    expected = LockState(
        KEY, Mode.PERMIT, 3, (Holding(ANA, 41, 1.5, 59.25), Holding(BEN, 42, 2.5, 58.25, cooling=True)), (BEN,)
    )
    assert bench.told(bench.backend.inspect(KEY), *rows) == expected
    assert bench.last == (b"leasehold_states", [STORED_KEY, STORED_KEY + b"\x00"])
    assert bench.told(bench.backend.inspect(KEY)) is None
    assert bench.told(bench.backend.list("ns:"), *rows, state_row("ns:ü", 1, BEN, 43, 4)) == [
        expected,
        LockState("ns:ü", Mode.PERMIT, 3, (Holding(BEN, 43, 4.5, 56.25),), ()),
    ]
    assert bench.last == (b"leasehold_states", [b"ns:", b"ns;"])
    bench.has_tables = False
    assert run(bench.backend.inspect(KEY)) is None
    assert list(run(bench.backend.list("ns:"))) == []
    assert bench.looked == [b"leasehold_states"] * 5, "looking makes no tables"


@pytest.mark.parametrize("listen", [None, {"host": "direct"}])
def test_the_doctor_is_told_which_schema_and_whether_there_is_a_way_around_a_pooler(
    monkeypatch: pytest.MonkeyPatch, listen: dict[str, str] | None
) -> None:
    asked: list[Any] = []

    async def examine(executor: Any, schema: str, runtime: Any, *, has_listen_url: bool) -> list[Any]:
        asked.append((executor, schema, runtime, has_listen_url))
        return []

    monkeypatch.setattr(doctor, "examine", examine)
    bench = Looking()
    bench.backend._options = PostgresOptions("postgresql://h/db", listen=listen)
    bench.backend._sql = Statements("mine")
    assert run(bench.backend.examine()) == []
    assert asked == [(bench, "mine", bench.runtime, listen is not None)]


@pytest.mark.parametrize("failing", [b"BEGIN", b"facts", b"ROLLBACK"])
def test_a_doctor_that_is_interrupted_leaves_no_connection_in_a_transaction(bench: Looking, failing: bytes) -> None:
    done: list[str] = []

    class Interrupted(BaseException):
        """As a signal handler raises."""

    class Connection:
        is_direct = True

        async def run_script(self, script: bytes) -> Any:
            return self.answer(script)

        async def execute(self, *_: object) -> Any:
            return self.answer(b"facts")

        def answer(self, what: bytes) -> Any:
            if what.startswith(failing):
                raise Interrupted
            return SimpleNamespace(status=2, ntuples=1)

    async def take() -> Connection:
        return Connection()

    bench.source = SimpleNamespace(
        take=take,
        give=lambda _: done.append("given"),
        discard=lambda _, *, dead: done.append(f"discarded, dead={dead}"),
    )
    with pytest.raises(Interrupted):
        run(bench.backend.examine())
    assert done == ["discarded, dead=False"]


# --- records


@pytest.mark.parametrize("fence", [0, 4])
@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((b"76ff", b"7", b"2.5", b"1000.25"), Reading(Record(KEY, b"v\xff", 7, 2.5), 7, 1000.25)),
        ((b"", b"7", b"2.5", b"1000.25"), Reading(Record(KEY, b"", 7, 2.5), 7, 1000.25)),
        ((None, b"7", None, b"1000.25"), Reading(None, 7, 1000.25)),
        ((b"76", b"7", None, b"1000.25"), Reading(None, 7, 1000.25)),
        ((None, None, None, b"1000.25"), Reading(None, 0, 1000.25)),
    ],
)
def test_a_record_is_read_with_the_highest_fence_and_the_servers_time(
    bench: Looking, fence: int, row: tuple[bytes | None, ...], expected: Reading
) -> None:
    assert bench.told(bench.backend.read(KEY, fence), row) == expected
    assert bench.last == (b"leasehold_read", [STORED_KEY, b"%d" % fence])
    assert bench.looked == ([] if fence else [b"leasehold_read"]), "without a fence nothing is written"


def test_without_tables_there_is_no_record_and_the_time_is_the_servers(bench: Looking) -> None:
    bench.has_tables = False
    assert bench.told(bench.backend.read(KEY), (b"1000.25",)) == Reading(None, 0, 1000.25)
    assert bench.last == (b"leasehold_clock", [])


def test_a_record_is_written_with_its_fence_and_its_ttl(bench: Looking) -> None:
    for told, written in ((b"t", True), (b"f", False)):
        assert bench.told(bench.backend.write(Record(KEY, b"v\x00", 7, 2.5)), (told,)) is written
        assert bench.last == (b"leasehold_write", [STORED_KEY, b"v\x00", b"7", b"2.5"])


# --- claims


@pytest.mark.parametrize(
    ("mode", "capacity", "told", "words"),
    [
        (Mode.EXCLUSIVE, 1, {"mode": "permit", "capacity": 3}, "in use as a semaphore of 3"),
        (Mode.PERMIT, 2, {"mode": "permit", "capacity": 3}, "in use as a semaphore of 3"),
        (Mode.PERMIT, 2, {"mode": "exclusive", "capacity": 1}, "in use as a lock"),
    ],
)
@pytest.mark.parametrize("verb", ["try_acquire", "join", "turn"])
def test_a_conflict_says_what_the_name_is_in_use_as(
    bench: Looking, verb: str, mode: Mode, capacity: int, told: dict[str, Any], words: str
) -> None:
    claim: Any = bench.claim(mode=mode, capacity=capacity)
    given = bench.place(claim) if verb == "turn" else claim
    with pytest.raises(ModeConflict, match=words):
        bench.ask(verb, given, reply("conflict", **told))


def test_a_turn_that_is_refused_says_who_holds_until_when(bench: Looking) -> None:
    place = bench.place()
    stored = holder_to_json(ANA).encode()
    refusal = bench.ask("turn", place, reply("refused", ahead=4, ends=12.5, facts=stored))
    assert refusal == Refusal("ns:x", ANA, 12.5, 4)
    paused = pause_to_json(Holder("h", 1, "ana", "moving")).encode()
    refusal = bench.ask("turn", place, reply("refused", ahead=4, ends=12.5, facts=paused))
    assert (refusal.holder, refusal.retry_after, refusal.paused.by) == (None, 12.5, "ana")


def test_a_turn_tells_anew_who_holds_and_how_many_are_ahead(bench: Looking) -> None:
    place = bench.place(ahead=5)
    stored = holder_to_json(BEN).encode()
    again = bench.ask("turn", place, reply("placed", moment=140.0, ahead=2, ends=12.5, facts=stored))
    assert (again.holder, again.ahead, again.retry_after) == (BEN, 2, 12.5)
    waiter = again.waiter
    assert (waiter.ahead, waiter.moment, waiter.sent) == (2, 140.0, bench.runtime.now())
    assert waiter is place.waiter


def test_a_grant_by_a_turn_keeps_the_fences_behind_it(bench: Looking) -> None:
    place = bench.place()
    grant = bench.ask("turn", place, reply("granted", fence=7, abandoned="f", spare=64))
    assert grant == Grant(place.claim, 7, 60.0, None, False, 64)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (reply("granted", fence=7, abandoned="t", spare=3), (7, True, 3)),
        (reply("placed", moment=140.0, ahead=2, ends=12.5, facts=holder_to_json(BEN).encode()), (BEN, 2, 12.5)),
        (reply("refused", ahead=4, ends=9.5, facts=holder_to_json(ANA).encode()), (ANA, 4, 9.5)),
    ],
)
def test_of_an_answer_to_several_waiters_each_takes_its_own_row(
    bench: Looking, told: tuple[bytes | None, ...], expected: object
) -> None:
    """Which begins behind a number, and may be any; the others are of other claims."""
    others = reply("granted", fence=99, abandoned="f", spare=9), reply("placed", ahead=8, ends=50.0)
    rows: list[Any] = [(b"1", *others[0]), (b"3", *told), (b"2", *others[1])]
    place = bench.place(ahead=5)

    async def query(*_: object) -> Answer:
        found: Any = SimpleNamespace(ntuples=3, get_value=lambda row, column: rows[row][column])
        return Answer(found, 4.0, 1, 1)

    bench.backend._turns.query = query
    answer = run(bench.backend.turn(place))
    if isinstance(answer, Grant):
        assert (answer.fence, answer.abandoned, answer.spare) == expected
    elif isinstance(answer, Refusal):
        assert (answer.holder, answer.queue, answer.retry_after) == expected
    else:
        assert (answer.holder, answer.ahead, answer.retry_after) == expected
        assert (place.waiter.sent, place.waiter.moment) == (4.0, 140.0)


def test_a_claim_that_an_answer_says_nothing_of_has_no_place_any_more(bench: Looking) -> None:
    place = bench.place(ahead=5)

    async def query(*_: object) -> Answer:
        rows: Any = SimpleNamespace(ntuples=0, get_value=None)
        return Answer(rows, 4.0, None)

    bench.backend._turns.query = query
    assert run(bench.backend.turn(place)) == Refusal("ns:x", None, None, 0)


def test_a_client_stops_listening_before_its_connections_are_closed(bench: Looking) -> None:
    async def closed() -> None:
        bench.closed.append("listener")

    bench.backend._listener.close = closed
    run(bench.backend.close())
    assert bench.closed == ["listener", "connections"]


def test_no_verb_of_an_operator_has_a_limit_of_its_own(bench: Looking) -> None:
    bench.told(bench.backend.raise_fence(KEY, 41), (b"57",))
    assert bench.sent[-1][2:] == (math.inf, False, False)
