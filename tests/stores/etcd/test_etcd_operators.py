"""What operators and patterns see and change in a simulated cluster of etcd: locks, breaks, fences, records."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold._backends.etcd import inspect as inspect_module
from leasehold._backends.etcd import records
from leasehold._backends.etcd.doctor import Doctor
from leasehold._backends.etcd.fences import NO_FLOOR, ROUNDS, Fences, Floor
from leasehold._backends.etcd.keys import KeySpace
from leasehold._backends.etcd.options import read_url
from leasehold._backends.etcd.protobuf import block, fields, number
from leasehold._backends.etcd.rpc import KeyValue, Method, RangeResponse
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable, ConfigurationError
from leasehold.findings import Level
from leasehold.store_url import StoreURL
from leasehold.values import MAX_FENCE, Mode, Record
from tests.stores.etcd.etcd_bench import BROKEN, GONE, LABEL, RESET, Bench, granted, waiting
from tests.stores.etcd.etcd_histories import simulated

DAY = 86_400.0


# --- what is shown


@simulated
async def test_a_lock_shows_its_holders_and_its_waiters_in_order(bench: Bench) -> None:
    client, operator = bench.client(), bench.client()
    claims = [bench.claim(mode=Mode.PERMIT, capacity=2, ttl=60.0) for _ in range(4)]
    answers = [await client.join(claim) for claim in claims]
    await bench.pass_time(10.3)
    state = await operator.inspect("ns:x")
    assert (state.name, state.mode, state.capacity) == ("ns:x", Mode.PERMIT, 2)
    assert [holding.holder for holding in state.holdings] == [claim.holder for claim in claims[:2]]
    assert [holding.fence for holding in state.holdings] == [grant.fence for grant in answers[:2]]
    assert state.waiting == tuple(claim.holder for claim in claims[2:])
    for holding in state.holdings:
        assert holding.expires_in == pytest.approx(49.7, abs=1.0)
        assert (holding.broken, holding.cooling) == (None, False)
    assert await operator.inspect("ns:nothing") is None


@simulated
async def test_a_holder_holds_since_its_claim_was_made_and_never_for_less_than_nothing(bench: Bench) -> None:
    client = bench.client()
    granted(await client.join(bench.claim()))
    (key,) = bench.claims_stored()
    stored = bench.server.keys[key]
    for since, held in ((time.time() - 100, 100.0), (time.time() + 100, 0.0)):
        head, _, tail = stored.value.partition(b'"since":')
        bench.write(key, b'%s"since":%.3f,%s' % (head, since, tail.partition(b",")[2]), stored.lease)
        state = await client.inspect("ns:x")
        assert state.holdings[0].held_for == pytest.approx(held, abs=30)


@simulated
async def test_the_time_that_is_left_is_between_nothing_and_the_ttl_and_asked_for_once_for_each_lease(
    bench: Bench,
) -> None:
    client = bench.client()
    for number_ in range(3):
        granted(await client.join(bench.claim(f"ns:{number_}")))
    bench.methods()
    states = await client.list("ns:")
    assert [state.holdings[0].expires_in for state in states] == pytest.approx([59.5] * 3, abs=1.0)
    assert bench.methods() == [Method.RANGE, Method.LEASE_TIME_TO_LIVE]
    inspect = client._inspect
    answers = {7: (60, 60), 8: (-1, 0), 9: (0, 60)}

    async def time_to_live(lease: int) -> Any:
        ttl, given = answers[lease]
        return SimpleNamespace(ttl=ttl, granted=given)

    inspect._connection = SimpleNamespace(time_to_live=time_to_live)
    assert [await inspect._time_left(lease, {}) for lease in answers] == [60, 0.0, 0.5]


@simulated
async def test_a_list_has_each_lock_once_in_order_of_its_name_with_its_claims_in_theirs(bench: Bench) -> None:
    client, other = bench.client(), bench.client()
    other._claims.suffixes._first = 1
    client._claims.suffixes._first = 50
    first = bench.claim("ns:b", mode=Mode.SHARED)
    granted(await client.join(first))
    second = bench.claim("ns:b", mode=Mode.SHARED)
    granted(await other.join(second))
    writer = bench.claim("ns:b")
    await other.join(writer)
    granted(await client.join(bench.claim("ns:a/b")))
    granted(await client.join(bench.claim("ns:a")))
    granted(await client.join(bench.claim("other:a")))
    states = await other.list("ns:")
    assert [state.name for state in states] == ["ns:a", "ns:a/b", "ns:b"]
    assert [holding.holder for holding in states[2].holdings] == [first.holder, second.holder]
    assert states[2].waiting == (writer.holder,)
    assert await other.list("none:") == []


@simulated
async def test_a_list_of_several_pages_has_each_claim_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_module, "PAGE", 2)
    client = bench.client()
    readers = [bench.claim("ns:a", mode=Mode.SHARED) for _ in range(5)]
    for reader in readers:
        granted(await client.join(reader))
    writer = bench.claim("ns:b")
    granted(await client.join(writer))
    shared, alone = await client.list("ns:")
    assert [holding.holder for holding in shared.holdings] == [reader.holder for reader in readers]
    assert [holding.holder for holding in alone.holdings] == [writer.holder]


# --- breaks


@pytest.mark.parametrize(("ttl", "after", "kept"), [(60.0, 20.5, 40), (5.0, 1.5, 4)])
@simulated
async def test_a_break_leaves_a_grant_in_the_way_for_the_rest_of_its_ttl_and_a_second(
    bench: Bench, ttl: float, after: float, kept: int
) -> None:
    client, operator = bench.client(), bench.client()
    grant = granted(await client.join(bench.claim(ttl=ttl)))
    await bench.pass_time(after)
    assert await operator.break_("ns:x", grant.fence, "stuck", now=False) is True
    (key,) = bench.claims_stored()
    assert bench.seconds_of(key) == kept
    assert (await operator.inspect("ns:x")).holdings[0].broken == "stuck"
    assert await client.renew([grant]) == [BROKEN]


@pytest.mark.parametrize(("ttl", "kept"), [(3.0, 10), (60.0, 60)])
@simulated
async def test_the_note_of_a_break_at_once_is_there_when_its_holder_asks(bench: Bench, ttl: float, kept: int) -> None:
    client, operator = bench.client(), bench.client()
    grant = granted(await client.join(bench.claim(ttl=ttl)))
    assert await operator.break_("ns:x", grant.fence, "stuck", now=True) is True
    assert bench.claims_stored() == []
    leases = {bench.seconds_of(key) for key in bench.stored()}
    assert leases == {kept}
    assert await client.renew([grant]) == [BROKEN]
    granted(await operator.join(bench.claim()))


@pytest.mark.parametrize("whose", ["nobody's", "a waiter's", "one that cools"])
@simulated
async def test_only_a_holder_is_broken(bench: Bench, whose: str) -> None:
    client = bench.client()
    grant = granted(await client.join(bench.claim(min_hold=50.0)))
    fence = grant.fence
    if whose == "a waiter's":
        waiting(await client.join(bench.claim()))
        fence = bench.server.revision
    elif whose == "one that cools":
        assert await client.release(grant) is True
    else:
        fence += 1
    before = bench.server.revision
    for now in (True, False):
        assert await client.break_("ns:x", fence, "stuck", now=now) is False
    assert bench.server.revision == before


@pytest.mark.parametrize(("races", "broken"), [(4, True), (5, False)])
@simulated
async def test_a_break_that_meets_other_writers_is_tried_again_and_leaves_one_lease(
    bench: Bench, races: int, broken: bool
) -> None:
    client, operator = bench.client(), bench.client()
    grant = granted(await client.join(bench.claim()))
    (key,) = bench.claims_stored()
    with bench.interference(operator, lambda: bench.rewrite(key), races):
        assert await operator.break_("ns:x", grant.fence, "stuck", now=False) is broken
    assert len(bench.server.leases) == 1 + broken


# --- fences


def test_a_floor_is_kept_until_it_is_read_anew() -> None:
    connection: Any = SimpleNamespace(label=LABEL)
    fences = Fences(connection)
    assert run(fences.floor(b"f")) == NO_FLOOR
    kv = KeyValue(b"f", 5, 7, b"1000")
    assert fences.learn(b"f", RangeResponse(None, (kv,))) == Floor(1000, 7)  # type: ignore[arg-type]
    assert run(fences.floor(b"f")) == Floor(1000, 7)
    assert run(fences.floor(b"g")) == NO_FLOOR
    assert fences.learn(b"f", RangeResponse(None)) == NO_FLOOR  # type: ignore[arg-type]
    assert run(fences.floor(b"f")) == NO_FLOOR


@pytest.mark.parametrize("value", [b"", b"-5", b"1.5", b"text"])
def test_a_floor_that_another_program_has_written_is_refused(value: bytes) -> None:
    connection: Any = SimpleNamespace(label=LABEL)
    with pytest.raises(BackendRejected, match="not written by leasehold"):
        Fences(connection).learn(b"f", RangeResponse(None, (KeyValue(b"f", 5, 7, value),)))  # type: ignore[arg-type]


def test_a_fence_is_never_too_high_for_json() -> None:
    connection: Any = SimpleNamespace(label=LABEL)
    fences = Fences(connection)
    fences.check(b"f", Floor(MAX_FENCE - 10, 7), 10, 0)
    with pytest.raises(BackendRejected, match="higher than") as refused:
        fences.check(b"f", Floor(MAX_FENCE - 10, 7), 11, 0)
    assert refused.value.backend == LABEL


def test_a_cluster_that_has_gone_back_is_refused_with_the_command_that_helps() -> None:
    connection: Any = SimpleNamespace(label=LABEL)
    with pytest.raises(BackendRejected, match=r"from revision 60 to 50.*fence raise NAME 160") as refused:
        Fences(connection).check(b"f", Floor(100, 7), 50, 160)
    assert refused.value.backend == LABEL


@simulated
async def test_raising_a_fence_counts_from_the_oldest_claim_that_waits_and_lowers_nothing(bench: Bench) -> None:
    client, operator = bench.client(), bench.client()
    assert await operator.raise_fence("ns:x", 1) == bench.server.revision
    assert bench.stored() == [], "nothing is written where fences are that high"
    held = granted(await client.join(bench.claim()))
    place = await client.join(bench.claim())
    for number_ in range(5):
        bench.write(b"other", b"%d" % number_)
    assert await operator.raise_fence("ns:x", 5000) == 5000
    assert await client.release(held) is True
    assert granted(await client.turn(place)).fence > 5000
    assert await operator.raise_fence("ns:x", 4000) > 5000
    assert await operator.raise_fence("ns:y", 4000) > 5000, "it is one floor for a namespace"
    assert await operator.raise_fence("elsewhere:x", 4000) == 4000


@simulated
async def test_a_claim_that_waits_already_gets_a_fence_above_its_own_number_that_was_raised_to(bench: Bench) -> None:
    """The number of the oldest claim is what it would get: only one below it may count as lower than all of them."""
    client, operator = bench.client(), bench.client()
    held = granted(await client.join(bench.claim()))
    place = waiting(await client.join(bench.claim()))
    created = client._claims.by_owner[place.claim.owner].created
    assert await client.release(held) is True
    assert await operator.raise_fence("ns:x", created - 1) == created - 1
    assert client._claims.keys.floor("ns:x") not in bench.stored(), "it is that high without a floor"
    assert await operator.raise_fence("ns:x", created) == created
    assert granted(await client.turn(place)).fence > created


def test_a_late_answer_does_not_lower_the_highest_fence_that_may_have_been_given() -> None:
    connection: Any = SimpleNamespace(label=LABEL)
    fences = Fences(connection)
    fences.check(b"f", Floor(100, 7), 60, 0)
    fences.check(b"f", Floor(100, 7), 50, 120)  # sent before the other one was answered
    assert fences.highest(b"f") == 160
    assert fences.highest(b"g") == 0


@pytest.mark.parametrize(("races", "raised"), [(ROUNDS - 1, True), (ROUNDS, False)])
@simulated
async def test_raising_a_fence_against_others_is_tried_again_for_a_while(
    bench: Bench, races: int, raised: bool
) -> None:
    operator = bench.client()
    floor = operator._claims.keys.floor("ns:x")
    numbers = iter(reversed(range(races)))

    with bench.interference(operator, lambda: bench.write(floor, b"%d" % next(numbers)), races):
        if raised:
            assert await operator.raise_fence("ns:x", 5000) == 5000
            assert granted(await operator.join(bench.claim())).fence > 5000
            return
        with pytest.raises(BackendUnavailable, match="at the same time") as refused:
            await operator.raise_fence("ns:x", 5000)
    assert refused.value.backend == LABEL


@simulated
async def test_the_floor_of_the_url_is_written_once_for_each_namespace(bench: Bench) -> None:
    client = bench.client(fence_floor=3000)
    for name in ("ns:x", "ns:y", "other:x"):
        for _ in range(2):
            grant = granted(await client.join(bench.claim(name)))
            assert grant.fence > 3000
            assert await client.release(grant) is True
    assert bench.stored() == [b"leasehold/1/f/ns", b"leasehold/1/f/other"]
    assert bench.server.keys[b"leasehold/1/f/ns"].version == 1


# --- records


@simulated
async def test_a_record_is_there_for_its_ttl_and_its_fence_for_a_day(bench: Bench) -> None:
    client = bench.client()
    assert await client.write(Record("ns:r", b"value", 7, 4.2)) is True
    assert sorted(lease.ttl for lease in bench.server.leases.values()) == [5, DAY]
    reading = await client.read("ns:r")
    assert (reading.record.value, reading.record.fence, reading.fence) == (b"value", 7, 7)
    assert reading.record.ttl == pytest.approx(4.5, abs=1.0)
    assert reading.time == pytest.approx(bench.main.now() + 1_600_000_000, abs=2.0)
    await bench.pass_time(6.0)
    reading = await client.read("ns:r")
    assert (reading.record, reading.fence) == (None, 7)
    assert await client.write(Record("ns:r", b"late", 6, 60.0)) is False
    await bench.pass_time(DAY)
    assert bench.stored() == []


@pytest.mark.parametrize(("passed", "left"), [(0.0, 4.5), (3.5, 1.5), (4.5, 0.5), (6.0, None)])
@simulated
async def test_a_record_is_there_in_the_last_second_of_its_time_too(
    bench: Bench, passed: float, left: float | None
) -> None:
    client = bench.client()
    assert await client.write(Record("ns:r", b"value", 7, 5.0)) is True
    await bench.pass_time(passed)
    record = (await client.read("ns:r")).record  # etcd says whole seconds, rounded down: 0 is the last of them
    assert (None if record is None else record.ttl) == left


@pytest.mark.parametrize(("fence", "written"), [(6, False), (7, True), (8, True)])
@simulated
async def test_a_write_under_the_same_fence_is_allowed_and_under_a_lower_one_not(
    bench: Bench, fence: int, written: bool
) -> None:
    client = bench.client()
    assert (await client.read("ns:r", 7)).fence == 7
    assert await client.write(Record("ns:r", b"value", fence, 60.0)) is written
    assert (await client.read("ns:r")).fence == max(7, fence)
    leases = len(bench.server.leases)
    assert leases == 1 + written


@simulated
async def test_reading_under_a_lower_fence_lowers_nothing_and_writes_nothing(bench: Bench) -> None:
    client = bench.client()
    assert await client.write(Record("ns:r", b"value", 7, 60.0)) is True
    before = bench.server.revision
    for fence in (0, 3, 7):
        assert (await client.read("ns:r", fence)).fence == 7
    assert bench.server.revision == before
    reading = await client.read("ns:r", 9)
    assert (reading.fence, reading.record.value, reading.record.fence) == (9, b"value", 9)


@simulated
async def test_writing_again_and_again_leaves_one_lease_for_the_value_and_one_for_the_fence(bench: Bench) -> None:
    client = bench.client()
    for ttl in (60.0, 60.0, 2 * DAY, 60.0, 3 * DAY):
        assert await client.write(Record("ns:r", b"value", 7, ttl)) is True
        assert len(bench.server.leases) == 2
    assert sorted(lease.ttl for lease in bench.server.leases.values()) == [3 * DAY, 3 * DAY]


@simulated
async def test_a_fence_that_is_seen_again_is_kept_for_another_day(bench: Bench) -> None:
    client = bench.client()
    assert await client.write(Record("ns:r", b"value", 7, 60.0)) is True
    await bench.pass_time(0.9 * DAY)
    assert await client.write(Record("ns:r", b"value", 8, 60.0)) is True
    await bench.pass_time(0.9 * DAY)
    assert (await client.read("ns:r")).fence == 8


@pytest.mark.parametrize("verb", ["read", "write"])
@pytest.mark.parametrize(("races", "done"), [(records.ROUNDS - 1, True), (records.ROUNDS, False)])
@simulated
async def test_a_record_that_others_write_is_tried_again_for_a_while_and_leaves_no_lease(
    bench: Bench, verb: str, races: int, done: bool
) -> None:
    client = bench.client()
    fence_key, _ = client._claims.keys.record("ns:r")
    plain, left = client._records._write, [races]

    async def write_first(*given: Any) -> bool:
        if left[0]:
            left[0] -= 1
            bench.write(fence_key, (1).to_bytes(8, "big"), given[1].fence.lease if given[1].fence else 0)
        return bool(await plain(*given))

    client._records._write = write_first
    ask = client.read("ns:r", 7) if verb == "read" else client.write(Record("ns:r", b"value", 7, 60.0))
    if done:
        assert await ask
        assert len(bench.server.leases) == (1 if verb == "read" else 2)
        return
    with pytest.raises(BackendUnavailable, match="at the same time") as refused:
        await ask
    assert refused.value.backend == LABEL
    assert len(bench.server.leases) == 0


@simulated
async def test_a_record_whose_lease_vanishes_on_the_way_is_written_on_another_one(bench: Bench) -> None:
    client = bench.client()
    bench.plan(Method.TXN, None, GONE)
    assert await client.write(Record("ns:r", b"value", 7, 60.0)) is True
    assert (await client.read("ns:r")).record.value == b"value"


@simulated
async def test_a_write_is_done_although_the_old_lease_could_not_be_ended(bench: Bench) -> None:
    client = bench.client()
    assert await client.write(Record("ns:r", b"value", 7, 60.0)) is True
    bench.plan(Method.LEASE_REVOKE, RESET)
    assert await client.write(Record("ns:r", b"other", 7, 60.0)) is True
    bench.plan(Method.LEASE_REVOKE, GONE)
    assert await client.write(Record("ns:r", b"third", 7, 60.0)) is True


@pytest.mark.parametrize(("size", "fits"), [(records.LARGEST_VALUE, True), (records.LARGEST_VALUE + 1, False)])
@simulated
async def test_a_record_that_etcd_would_not_take_is_refused_before_it_is_sent(
    bench: Bench, size: int, fits: bool
) -> None:
    client = bench.client()
    if fits:
        assert await client.write(Record("ns:r", b"x" * size, 7, 60.0)) is True
        return
    with pytest.raises(BackendRejected, match="too large") as refused:
        await client.write(Record("ns:r", b"x" * size, 7, 60.0))
    assert refused.value.backend == LABEL
    assert bench.calls == []


@simulated
async def test_a_fence_that_another_program_has_written_is_refused(bench: Bench) -> None:
    bench.write(KeySpace("leasehold/").record("ns:r")[0], b"7")
    with pytest.raises(BackendRejected, match="not written by leasehold"):
        await bench.client().read("ns:r")


# --- the doctor


class Clinic:
    """A connection whose members answer as they are told."""

    members = 3

    def __init__(self, **failing: Any) -> None:
        self.failing = failing
        self.asked: list[str] = []

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if what in self.failing:
            raise self.failing[what]

    async def call_member(self, place: int, method: str, _: bytes) -> bytes:
        assert method == Method.STATUS
        self._ask(f"member{place}")
        return block(2, b"3.5.13") + number(3, 1024**2) + number(4, 9) + number(6, 2)

    async def clock_of(self, place: int) -> float | None:
        return None if place == 1 else 1.6

    async def call(self, method: str, _: bytes, *, reads: bool) -> bytes:
        assert reads
        self._ask("list" if method == Method.MEMBER_LIST else "alarms")
        return b"".join(block(2, block(2, b"m")) for _ in range(3)) if method == Method.MEMBER_LIST else b""

    async def range(self, _: bytes) -> None:
        self._ask("range")

    async def txn(self, request: bytes) -> None:
        assert [place for place, _ in fields(request)] == [1, 2], "a condition, and something to write"
        self._ask("txn")

    def examined(self, url: str = "etcds://a,b,c") -> dict[str, Any]:
        ticks = iter(range(1000))
        runtime = SimpleNamespace(now=lambda: next(ticks) * 0.01)
        claims: Any = SimpleNamespace(connection=self, keys=KeySpace("l/"), runtime=runtime)
        return {each.check: each for each in run(Doctor(claims, read_url(StoreURL.parse(url))).examine())}


def test_the_doctor_finds_nothing_where_all_is_well() -> None:
    clinic = Clinic()
    found = clinic.examined()
    assert list(found) == ["members", "leader", "server version", "space", "read", "server clock", "access", "rights"]
    assert {finding.level for finding in found.values()} == {Level.OK}
    assert clinic.asked.count("range") == 5
    assert found["read"].found.startswith("10.0 ms")
    assert found["rights"].found == "may read and write below 'l/1/'"
    assert found["server version"].found == "3.5.13"
    assert found["server clock"].found == "members differ from this host by up to 2 s"


@pytest.mark.parametrize(
    ("failing", "check", "level", "word"),
    [
        ({"member1": BackendUnavailable("away")}, "members", Level.PROBLEM, "1 of 3 in the URL"),
        ({"list": BackendRejected("denied")}, "members", Level.WARNING, "denied"),
        ({"alarms": BackendRejected("denied")}, "members", Level.WARNING, "denied"),
        ({"range": BackendUnavailable("away")}, "read", Level.PROBLEM, "away"),
        ({"txn": BackendRejected("denied")}, "rights", Level.PROBLEM, "grant this user READWRITE on the prefix 'l/1/'"),
        ({"txn": BackendUnavailable("away")}, "rights", Level.PROBLEM, "remove the cause"),
        ({f"member{place}": BackendRejected("no root") for place in range(3)}, "leader", Level.WARNING, "no root"),
    ],
)
def test_what_the_doctor_may_not_read_is_a_finding(failing: Any, check: str, level: Level, word: str) -> None:
    finding = Clinic(**failing).examined()[check]
    assert finding.level is level
    assert word in f"{finding.found} {finding.advice}"


class ClinicOfMany(Clinic):
    """Members that differ from each other in all that they say."""

    async def call_member(self, place: int, method: str, request: bytes) -> bytes:
        await super().call_member(place, method, request)
        version, size = ((b"3.6.4", 70), (b"3.5.10", 900), (b"3.6.2", 30))[place]
        return block(2, version) + number(3, size * 1024**2) + number(4, 9) + number(6, 5)

    async def clock_of(self, place: int) -> float | None:
        return (-41.0, 0.5, 3.0)[place]

    async def call(self, method: str, request: bytes, *, reads: bool) -> bytes:
        if method == Method.MEMBER_LIST:
            return await super().call(method, request, reads=reads)
        return b"".join(block(2, number(1, 7) + number(2, alarm)) for alarm in (1, 2, 9))


def test_the_doctor_judges_by_all_members_and_not_by_one() -> None:
    found = ClinicOfMany().examined()
    assert found["server version"].found == "3.5.10, 3.6.2, 3.6.4"
    assert (found["server version"].level, "3.5.13 or newer" in found["server version"].advice) == (Level.WARNING, True)
    assert found["space"].found == "900 MiB, alarm NOSPACE, alarm CORRUPT, alarm 9"
    assert found["server clock"].found == "members differ from this host by up to 41 s"
    assert found["server clock"].level is Level.WARNING
    assert found["leader"].found == "one leader, in term 5"


def test_the_doctor_counts_every_member_that_is_silent_and_goes_by_the_others() -> None:
    clinic = ClinicOfMany(member0=BackendUnavailable("away"), member1=BackendUnavailable("gone"))
    found = clinic.examined()
    assert found["members"].found == "3 voting; 2 of 3 in the URL did not answer"
    assert found["server version"].found == "3.6.2"
    assert found["space"].found.startswith("30 MiB")
    assert found["server clock"].found == "members differ from this host by up to 3 s"
    assert clinic.asked[:3] == ["member0", "member1", "member2"]


# --- URLs


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("etcd://user@h", "a password a user"),
        ("etcd://:word@h", "a password a user"),
        ("etcd://h?tls_ca=x", "write etcds://"),
        ("etcd://h?answer_timeout=61s", "answer_timeout"),
        ("etcd://h?answer_timeout=50ms", "answer_timeout"),
        ("etcd://h?http_port=65536", "http_port"),
        ("etcds://h?ca_cert=x", "it is called tls_ca here"),
        ("etcds://h?cacert=x", "it is called tls_ca here"),
        ("etcds://h?cert_cert=x", "it is called tls_cert here"),
        ("etcds://h?cert_key=x", "it is called tls_key here"),
        ("etcd://h?timeout=1s", "it is called answer_timeout here"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_by_the_name_of_its_option(url: str, word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        read_url(StoreURL.parse(url))


def test_the_limits_of_options_are_allowed() -> None:
    options = read_url(StoreURL.parse("etcd:///a/b/?answer_timeout=60s&http_port=65535"))
    assert options.targets[0].host == "localhost"
    assert (options.targets[0].port, options.targets[0].http_port) == (2379, 65_535)
    assert (options.root, options.answer_timeout) == ("a/b/", 60.0)
    assert read_url(StoreURL.parse("etcd://h?answer_timeout=100ms")).answer_timeout == 0.1
    assert read_url(StoreURL.parse("etcd://user:@h")).password == ""
