"""The functions in the database, called directly: turns and hand-overs, and what each leaves in the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.postgres.statements import array
from leasehold._record import replace
from leasehold._runtimes.threads import run
from leasehold.spi import Place
from leasehold.values import Grant, Holder, Loss, Mode, Refusal
from tests.stores.postgres.tables import KEY, Tables, claim, crowd

if TYPE_CHECKING:
    pass


async def turns(backend: Any, places: list[Any], channel: bytes | None) -> dict[str, list[Any]]:
    """The turns of several in one query: its rows by owner."""
    keys = array((place.claim.key.encode() for place in places), binary=True)
    owners = array(place.claim.owner.encode() for place in places)
    rows = await backend._execute(backend._sql.turns, (keys, owners, channel))
    found = [[rows.get_value(row, column) for column in range(rows.nfields)] for row in range(rows.ntuples)]
    return {owner.decode(): values for owner, *values in found}


# --- turns


@pytest.mark.parametrize("way", ["turn", "turns", "join"])
def test_a_waiter_is_called_where_its_client_listens_now(backend: Any, tables: Tables, way: str) -> None:
    """Also if it was kept alive a moment ago: or a hand-over calls a channel that nobody listens on any more."""

    async def story() -> None:
        backend._listener.channel = b"old"
        _, (place,) = await crowd(backend)
        assert tables.bells() == ["old"]
        for channel in (b"new", None):
            backend._listener.channel = channel
            if way == "turn":
                assert isinstance(await backend.turn(place), Place)
            elif way == "join":
                assert isinstance(await backend.join(place.claim), Place)
            else:
                assert (await turns(backend, [place], channel))[place.claim.owner][0] == b"placed"
            assert tables.bells() == [channel and channel.decode()]

    run(story())


def test_turns_in_one_query_write_only_what_is_due(backend: Any, tables: Tables) -> None:
    async def story() -> None:
        _, places = await crowd(backend, 3)
        tables.change(
            "expires = clock_timestamp() + interval '1 hour'", "number = (SELECT max(number) FROM leasehold.claim)"
        )
        tables.change(
            "expires = clock_timestamp() + interval '1 s'", "number = (SELECT min(number) + 1 FROM leasehold.claim)"
        )
        before = tables.in_seconds("max(expires)")
        answers = await turns(backend, places, None)
        assert len(answers) == 3
        left = "SELECT date_part('epoch', expires - clock_timestamp()) FROM leasehold.claim WHERE state = 3"
        lives = [float(seconds) for (seconds,) in tables.ask(f"{left} ORDER BY number")]
        assert 1.5 < lives[0] <= 3, "kept alive for three re-checks"
        assert lives[2] > before - 60, "one that lives long enough is not written"

    run(story())


def test_turns_in_one_query_answer_for_each_claim_what_a_single_one_does(backend: Any, tables: Tables) -> None:
    async def story() -> None:
        held, places = await crowd(backend, 3, holder=Holder("one who waits", 2))
        other = claim(key="leasehold:other", ttl=2.0)
        first = await backend.try_acquire(claim(key="leasehold:other", ttl=30.0))
        places.append(await backend.join(other))
        answers = await turns(backend, places, None)
        assert [int(answers[place.claim.owner][4]) for place in places] == [0, 1, 2, 0], "ahead"
        ends = [float(answers[place.claim.owner][5]) for place in places]
        assert all(50 < end <= 60 for end in ends[:3])
        assert 20 < ends[3] <= 30
        assert {answers[place.claim.owner][6] for place in places} == {answers[other.owner][6]}, "who holds"
        assert b"nightly" in answers[other.owner][6]
        await backend.release(held)
        await backend.release(first)
        tables.change("expires = clock_timestamp() + interval '1 s'", "state = 1")
        tables.change("look = '-infinity'", table="lock")
        await backend.pause(KEY, Holder("h", 1, "ana", "moving"), 90.0)
        answers = await turns(backend, places, None)
        verdicts = [answers[place.claim.owner][0] for place in places]
        assert verdicts == [b"granted", b"placed", b"placed", b"granted"]
        granted = answers[places[0].claim.owner]
        assert int(granted[1]) > held.fence
        assert int(granted[7]) == 64
        assert tables.in_seconds("expires", f"owner = '{places[0].claim.owner}'") > 50, "it has shown that it lives"
        assert tables.in_seconds("expires", f"owner = '{other.owner}'") <= 2
        assert b"moving" in answers[places[1].claim.owner][6]
        assert 80 < float(answers[places[1].claim.owner][5]) <= 90
        assert int(answers[places[1].claim.owner][7]) == 0

    run(story())


def test_turns_in_one_query_leave_out_what_has_no_place(backend: Any, tables: Tables) -> None:
    async def story() -> None:
        held, places = await crowd(backend, 4)
        await backend.withdraw(places[0].claim)
        tables.change("expires = '-infinity'", f"owner = '{places[1].claim.owner}'")
        tables.change("look = '-infinity'", table="lock")
        answers = await turns(backend, [*places, replace(places[3], claim=claim())], None)
        assert sorted(answers) == sorted(place.claim.owner for place in places[2:])
        await backend.release(held)
        assert await backend.break_(KEY, (await backend.inspect(KEY)).holdings[0].fence, "stuck", now=False)
        tables.change("expires = clock_timestamp() + interval '2 s'", "broken IS NOT NULL")
        assert sorted(await turns(backend, places, None)) == [places[3].claim.owner]
        assert tables.in_seconds("expires", "broken IS NOT NULL") <= 2, "its time is over when it would have been"

    run(story())


def test_a_turn_after_the_grant_was_broken_or_is_gone_is_refused(backend: Any, tables: Tables) -> None:
    async def story() -> None:
        held, (place,) = await crowd(backend)
        await backend.release(held)
        granted = await backend.turn(place)
        assert isinstance(granted, Grant)
        assert 50 < tables.in_seconds("expires", "state = 1") <= 60
        await backend.break_(KEY, granted.fence, "stuck", now=False)
        assert isinstance(await backend.turn(place), Refusal)
        assert isinstance(await backend.turn(replace(place, claim=claim())), Refusal)
        other = await backend.join(claim())
        await backend.withdraw(other.claim)
        assert isinstance(await backend.turn(other), Refusal)

    run(story())


# --- handing over


BESIDE_A_CROWD = {
    "a waiting reader": ("mode = 'shared'", "number = (SELECT min(number) FROM leasehold.claim WHERE state = 3)"),
    "one that is kept": ("state = 2", "number = (SELECT max(number) FROM leasehold.claim)"),
    "a broken holder": ("broken = '\"stuck\"'", "state = 1"),
    "a holder with a min_hold": ("min_hold = 1", "state = 1"),
    "a reader": ("mode = 'shared'", "state = 1"),
    "another owner": ("owner = 'other'", "state = 1"),
    "another fence": ("fence = fence + 1", "state = 1"),
    "nobody waits": ("state = 4", "state = 3"),
}


@pytest.mark.parametrize("case", [*BESIDE_A_CROWD, ""])
def test_a_hand_over_that_does_not_fit_changes_nothing(backend: Any, tables: Tables, case: str) -> None:
    async def story() -> None:
        held, _ = await crowd(backend, 2)
        if case:
            tables.change(*BESIDE_A_CROWD[case])
        before = tables.dump()
        done = tables.ask(
            "SELECT leasehold.hand_over_5(l, %s, %s::bigint, clock_timestamp()) FROM leasehold.lock AS l",
            held.claim.owner,
            held.fence,
        )
        assert done == [(not case,)]
        assert (tables.dump() == before) is bool(case)

    run(story())


@pytest.mark.parametrize(
    ("what", "abandoned"),
    [("look = clock_timestamp()", False), ("abandoned_until = clock_timestamp() + interval '1 h'", True)],
)
def test_a_release_where_something_is_due_goes_by_the_rules(
    backend: Any, tables: Tables, what: str, abandoned: bool
) -> None:
    """The quick way would hand over to a waiter that is dead, or forget that the holder before had vanished."""

    async def story() -> None:
        held, (dead, place) = await crowd(backend, 2)
        tables.change("expires = '-infinity'", f"owner = '{dead.claim.owner}'")
        tables.change("look = '-infinity'", table="lock")
        if abandoned:
            await backend.turn(place)
            tables.change(what, table="lock")
        assert await backend.release(held) is True
        granted = await backend.turn(place)
        assert isinstance(granted, Grant)
        assert granted.abandoned is abandoned

    run(story())


@pytest.mark.parametrize("way", ["quick", "rules"])
def test_what_was_handed_over_and_never_fetched_is_looked_at_again_in_three_seconds(
    backend: Any, tables: Tables, way: str
) -> None:
    async def story() -> None:
        held, places = await crowd(backend, 2, ttl=600.0)
        tables.change("look = 'infinity'", table="lock")
        if way == "rules":
            tables.change("min_hold = 0.000001", "state = 1")
        assert await backend.release(held) is True
        assert tables.ask("SELECT count(*) FROM leasehold.claim WHERE state = 1") == [(1,)]
        assert 1 < tables.in_seconds("expires", "state = 1") <= 3
        assert tables.in_seconds("look", table="lock") <= 3, "or the ones behind it would wait for ever"
        del places

    run(story())


def test_readers_that_are_let_in_together_are_each_called_and_the_first_learns_of_the_vanished_one(
    backend: Any, tables: Tables
) -> None:
    async def story() -> None:
        held, _ = await crowd(backend, 0)
        for name in ("one", "two"):
            backend._listener.channel = name.encode()
            await backend.join(claim(mode=Mode.SHARED))
        tables.connection.execute("LISTEN one")
        tables.connection.execute("LISTEN two")
        await backend.break_(KEY, held.fence, "stuck", now=True)
        calls = {call.channel: call.payload.split() for call in tables.connection.notifies(timeout=60, stop_after=2)}
        assert sorted(calls) == ["one", "two"]
        assert [calls["one"][3], calls["two"][3]] == ["1", "r0"]
        assert int(calls["two"][1]) == int(calls["one"][1]) + 1
        assert tables.ask("SELECT fence, abandoned FROM leasehold.claim WHERE state = 1 ORDER BY number") == [
            (int(calls["one"][1]), True),
            (int(calls["two"][1]), False),
        ]
        ((fence, news),) = tables.ask("SELECT fence, abandoned_until::text FROM leasehold.lock")
        assert (fence, news) == (int(calls["two"][1]), "-infinity")

    run(story())


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SHARED, Mode.PERMIT])
def test_what_is_kept_for_its_min_hold_keeps_every_kind_out(backend: Any, mode: Mode) -> None:
    async def story() -> None:
        kind = mode if mode is Mode.PERMIT else Mode.EXCLUSIVE
        held = await backend.try_acquire(claim(mode=kind, min_hold=60.0))
        assert await backend.release(held) is True
        assert isinstance(await backend.try_acquire(claim(mode=mode)), Refusal)
        places = [await backend.join(claim(mode=mode)) for _ in range(2)]
        await backend.withdraw(places[1].claim)  # which looks whether somebody can be let in
        assert isinstance(await backend.turn(places[0]), Place)

    run(story())


@pytest.mark.parametrize("way", ["quick", "rules"])
def test_who_was_handed_a_lock_holds_it_since_then_and_not_since_it_began_to_wait(
    backend: Any, tables: Tables, way: str
) -> None:
    """Or its min_hold would be over before it begins."""

    async def story() -> None:
        held, _ = await crowd(backend, 1, min_hold=30.0)
        tables.change("since = since - interval '1 hour'", "state = 3")
        if way == "rules":
            tables.change("min_hold = 0.000001", "state = 1")
        await backend.release(held)
        assert tables.in_seconds("since", "state = 1") > -600

    run(story())


def test_pauses_of_two_names_are_two(backend: Any) -> None:
    async def story() -> None:
        for key in (KEY, "leasehold:other"):
            await backend.pause(key, Holder("h", 1, "ana", "moving"), 60.0)
        assert await backend.resume(KEY) is True
        assert await backend.inspect(KEY) is None
        assert (await backend.inspect("leasehold:other")).paused is not None
        assert isinstance(await backend.try_acquire(claim(key="leasehold:other")), Refusal)

    run(story())


# --- the functions that clients of earlier versions call


def test_clients_of_an_earlier_version_have_every_verb(backend: Any, tables: Tables) -> None:
    async def story() -> None:
        held, places = await crowd(backend, 2)
        keys, owners = [KEY.encode()] * 2, [place.claim.owner for place in places]
        asked = tables.ask(
            "SELECT owner, verdict, ahead, ends > 50, facts FROM leasehold.turns_3(%s, %s, 'older') ORDER BY ahead",
            keys,
            owners,
        )
        assert [row[:4] for row in asked] == [(owners[0], "placed", 0, True), (owners[1], "placed", 1, True)]
        assert "nightly" in asked[0][4]
        assert tables.bells() == ["older", "older"]
        renewed = "SELECT place, broken FROM leasehold.renew_3(%s, %s, %s, %s, false)"
        mine = ([KEY.encode()], [held.claim.owner], [held.fence], [70.0])
        assert tables.ask(renewed, *mine) == []
        assert tables.in_seconds("expires", "state = 1") > 60
        assert tables.ask(renewed, mine[0], ["other"], *mine[2:]) == [(1, None)]
        broken = "SELECT leasehold.break_3(%s, %s, %s, %s)"
        assert tables.ask(broken, KEY.encode(), held.fence - 1, '"stuck"', False) == [(False,)]
        assert tables.ask(broken, KEY.encode(), held.fence, '"stuck"', False) == [(True,)]
        assert tables.ask(renewed, *mine) == [(1, '"stuck"')]
        assert isinstance((await backend.renew([held]))[0], Loss)
        refused = tables.ask(
            "SELECT verdict, ahead, ends > 50, facts FROM leasehold.acquire_3(%s, 'third', 60, 'exclusive', 1, 0, "
            "'{}', 0, false, NULL, false)",
            KEY.encode(),
        )
        assert refused[0][:3] == ("refused", 2, True)
        conflict = tables.ask(
            "SELECT verdict, mode, capacity FROM leasehold.acquire_3(%s, 'fourth', 60, 'permit', 2, 0, '{}', 0, false, "
            "NULL, false)",
            KEY.encode(),
        )
        assert conflict == [("conflict", "exclusive", 1)]
        ((verdict, moment, ahead),) = tables.ask(
            "SELECT verdict, moment > 0, ahead FROM leasehold.turn_3(%s, %s, 'older')", KEY.encode(), owners[1]
        )
        assert (verdict, moment, ahead) == ("placed", True, 1)

    run(story())


def acquire(**changes: object) -> str:
    """The statement that acquires; `VERSION` and what only this version has are for the test to fill in."""
    options: dict[str, object] = {
        "owner": "new",
        "ttl": 60,
        "mode": "exclusive",
        "capacity": 1,
        "min_hold": 0,
        "floor": 0,
    }
    options |= {"waits": False, "channel": "NULL", "session": False} | changes
    words = "'{owner}', {ttl}, '{mode}', {capacity}, {min_hold}, 'nightly', {floor}, {waits}, {channel}, {session}"
    return (
        "SELECT verdict, abandoned, ahead, round(ends / 10), facts, mode, capacity, fence > 4e15 "
        f"FROM leasehold.acquire_VERSION(%s, {words.format(**options)}SPARE)"
    )


RENEW = "SELECT place FROM leasehold.renew_VERSION(ARRAY[%s::bytea], ARRAY['holder'], ARRAY[FENCE], ARRAY[600.0], "
CALLS = {
    "a grant": ("", acquire()),
    "a longer one": ("", acquire(ttl=600)),
    "one that is kept": ("", acquire(min_hold=30)),
    "a permit": ("", acquire(mode="permit", capacity=3)),
    "above a floor": ("", acquire(floor=5_000_000_000_000_000)),
    "for as long as the session": ("", acquire(session=True)),
    "a refusal": ("held", acquire()),
    "a place": ("held", acquire(waits=True, channel="'bell'")),
    "a turn": (
        "waited",
        "SELECT verdict, ahead, round(ends / 10), facts FROM leasehold.turn_VERSION(%s, 'waiter', 'bell')",
    ),
    "a turn of another": ("waited", "SELECT verdict FROM leasehold.turn_VERSION(%s, 'holder', 'bell')"),
    "turns": (
        "waited",
        "SELECT owner, verdict, ahead FROM leasehold.turns_VERSION(ARRAY[%s::bytea], ARRAY['waiter'], 'bell')",
    ),
    "a renewal": ("held", RENEW + "false)"),
    "a renewal in a session": ("held", RENEW + "true)"),
    "a release": ("waited", "SELECT leasehold.release_VERSION(%s, 'holder', FENCE)"),
    "a release of another": ("waited", "SELECT leasehold.release_VERSION(%s, 'other', FENCE)"),
    "a release of an earlier grant": ("waited", "SELECT leasehold.release_VERSION(%s, 'holder', FENCE - 1)"),
    "a break": ("waited", "SELECT leasehold.break_VERSION(%s, FENCE, '\"stuck\"', false)"),
    "a break at once": ("waited", "SELECT leasehold.break_VERSION(%s, FENCE, '\"stuck\"', true)"),
    "a break at once of another grant": ("waited", "SELECT leasehold.break_VERSION(%s, FENCE - 1, '\"stuck\"', true)"),
}


@pytest.mark.parametrize("call", CALLS)
def test_clients_of_an_earlier_version_get_and_leave_what_those_of_this_one_do(
    backend: Any, tables: Tables, call: str
) -> None:
    before, statement = CALLS[call]
    run(backend.try_acquire(claim()))  # which makes the tables
    tables.connection.execute("SET leasehold.session = '77'")

    def asked(statement: str, version: str) -> list[tuple[Any, ...]]:
        spare = ", 0" if version == "5" else ""
        text = statement.replace("VERSION", version).replace("SPARE", spare)
        return tables.ask(text.replace("FENCE", "(SELECT max(fence) FROM leasehold.lock)"), KEY.encode())

    found = []
    for version in ("3", "5"):
        tables.connection.execute("DELETE FROM leasehold.claim; DELETE FROM leasehold.lock")
        if before:
            asked(acquire(owner="holder"), "5")
        if before == "waited":
            asked(acquire(owner="waiter", waits=True), "5")
        found.append((asked(statement, version), *left_behind(tables)))
    assert found[0] == found[1]


def left_behind(tables: Tables) -> list[Any]:
    """The tables without numbers and moments; how long something lives is told in steps of ten seconds."""
    lives = "round(date_part('epoch', expires - clock_timestamp()) / 10)"
    return [
        tables.ask(
            "SELECT owner, state, mode, capacity, ttl, min_hold, holder, fence > 4e15, abandoned, broken, bell, "
            f"session, {lives} FROM leasehold.claim ORDER BY number"
        ),
        tables.ask(
            "SELECT owner, shape, ttl, holder, fence > 4e15, session, look = 'infinity', "
            f"abandoned_until > clock_timestamp(), {lives} FROM leasehold.lock"
        ),
    ]
