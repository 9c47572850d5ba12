"""What `inspect` and `list` make of what each store answers; no servers."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold._backends.etcd import rpc
from leasehold._backends.etcd.inspect import Inspector, count_holders
from leasehold._backends.etcd.keys import ClaimKey
from leasehold._backends.etcd.rpc import Header, KeyValue, RangeResponse
from leasehold._backends.nats.documents import NatsDocuments
from leasehold._backends.nats.options import read_url
from leasehold._backends.postgres.inspect import states_from
from leasehold._backends.redis.inspect import read_state
from leasehold._backends.redis.keys import Names
from leasehold._backends.zookeeper import inspect as zookeeper
from leasehold._backends.zookeeper.keys import NodeData
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected
from leasehold.kit.holder import holder_to_json
from leasehold.kit.pauses import pause_to_json
from leasehold.store_url import StoreURL
from leasehold.values import Holder, Holding, LockState, Mode, Pause

ANA, BEN = Holder("db-3", 7, "nightly", "the report"), Holder("db-4", 8)
STORED = {holder: holder_to_json(holder).encode() for holder in (ANA, BEN)}


# --- PostgreSQL


def row(name: str, state: int, holder: bytes, *, mode: str = "exclusive", fence: int = 0, broken: object = None) -> Any:
    why = None if broken is None else json.dumps(broken).encode()
    return [
        name.encode().hex().encode(),
        b"%d" % state,
        mode.encode(),
        b"1",
        holder,
        b"%d" % fence,
        b"3.5",
        b"26.5",
        why,
    ]


def rows(*found: list[bytes | None]) -> Any:
    return SimpleNamespace(ntuples=len(found), get_value=lambda number, column: found[number][column])


def test_rows_of_postgresql_become_holders_waiters_and_pauses() -> None:
    pause = pause_to_json(Holder("db-3", 7, "ana", "moving")).encode()
    found = states_from(
        rows(
            row("a", 1, STORED[ANA], fence=41, broken="stuck"),
            row("a", 3, STORED[BEN]),
            row("b", 2, STORED[BEN], fence=42),
            row("c", 2, pause),
            row("c", 1, STORED[BEN], mode="shared", fence=43),
        )
    )
    assert found == [
        LockState("a", Mode.EXCLUSIVE, 1, (Holding(ANA, 41, 3.5, 26.5, broken="stuck"),), (BEN,)),
        LockState("b", Mode.EXCLUSIVE, 1, (Holding(BEN, 42, 3.5, 26.5, cooling=True),), ()),
        LockState("c", Mode.SHARED, 1, (Holding(BEN, 43, 3.5, 26.5),), (), Pause("moving", "ana", 26.5, 3.5)),
    ]


# --- Redis


def test_a_reply_of_redis_becomes_holders_waiters_and_pauses() -> None:
    held = [b"o", b"p", b"41", b"3500000", b"26500", b"stuck", b"0", STORED[ANA]]
    kept = [b"o", b"p", b"42", b"3500000", b"-1", b"", b"1", STORED[BEN]]
    pause = [b"", b"", b"0", b"3500000", b"26500", b"", b"0", pause_to_json(Holder("h", 1, "ana", "moving")).encode()]
    found = read_state("a", [b"3", [*held, *kept, *pause], [b"p", STORED[BEN], b"p", b"of another program"]])
    assert found == LockState(
        "a",
        Mode.PERMIT,
        3,
        (Holding(ANA, 41, 3.5, 26.5, broken="stuck"), Holding(BEN, 42, 3.5, 0.0, cooling=True)),
        (BEN, Holder("another program", 0)),
        Pause("moving", "ana", 26.5, 3.5),
    )
    assert read_state("a", [b"0", [], []]) is None
    assert read_state("a", [b"0", pause, []]) == LockState(
        "a", Mode.EXCLUSIVE, 1, (), (), Pause("moving", "ana", 26.5, 3.5)
    )
    assert read_state("a", [b"0", [], [b"s", STORED[BEN]]]) == LockState("a", Mode.SHARED, 1, (), (BEN,))


@pytest.mark.parametrize(
    ("part", "is_shown"), [("", True), (":q", True), (":x:pause", True), (":s", False), (":r", False), (":x:o", False)]
)
def test_a_name_of_redis_is_listed_for_its_holders_its_waiters_and_its_pause(part: str, is_shown: bool) -> None:
    names = Names("app:", compat=False)
    assert names.key_of(f"app:{{ns:%7Bx%7D}}{part}", "ns:") == ("ns:{x}" if is_shown else None)


# --- etcd


def test_a_list_of_etcd_goes_on_behind_the_last_key_of_each_page(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bytes, int]] = []

    def ask(start: bytes, _end: bytes, *, limit: int, revision: int) -> bytes:
        assert limit == 2_000
        asked.append((start, revision))
        return start

    stored = [KeyValue(b"%d" % number) for number in range(5)]

    async def answer(start: bytes) -> RangeResponse:
        found = [kv for kv in stored if kv.key >= start]
        return RangeResponse(Header(revision=9), tuple(found[:2]), len(found), more=len(found) > 2)

    monkeypatch.setattr(rpc, "range_", ask)
    claims: Any = SimpleNamespace(connection=SimpleNamespace(range=answer), keys=None, sessions=None, fences=None)
    assert run(Inspector(claims)._pages((b"0", b"9"))) == stored
    assert asked == [(b"0", 0), (b"1\x00", 9), (b"3\x00", 9)], "all pages are of one moment"


@pytest.mark.parametrize(
    ("kinds", "holders"),
    [("", 0), ("x", 1), ("xx", 1), ("xs", 1), ("s", 1), ("ss", 2), ("ssxs", 2), ("p", 1), ("ppp", 2)],
)
def test_the_oldest_claims_of_etcd_hold(kinds: str, holders: int) -> None:
    modes = {"x": Mode.EXCLUSIVE, "s": Mode.SHARED, "p": Mode.PERMIT}
    claimants: Any = [(ClaimKey("k", modes[kind], 2), None) for kind in kinds]
    assert count_holders(claimants) == holders


# --- ZooKeeper


@pytest.mark.parametrize(
    ("facts", "held_for"),
    [({}, 60.0), ({"granted": True}, 20.0), ({"granted": True, "broken": "stuck"}, 60.0)],
)
def test_a_holder_of_zookeeper_holds_since_its_grant_was_written(facts: dict[str, Any], held_for: float) -> None:
    now = time.time()
    stat = SimpleNamespace(ctime=(now - 60) * 1000, mtime=(now - 20) * 1000, czxid=7)
    data = NodeData(ANA, floor=100, timeout=15.0, **facts)
    holding = zookeeper._holding((data.encode(), stat))
    assert holding.held_for == pytest.approx(held_for, abs=15)
    assert (holding.holder, holding.fence, holding.expires_in) == (ANA, 107, 15.0)
    assert holding.broken == facts.get("broken")


# --- NATS


def test_a_bucket_of_nats_that_was_changed_is_looked_at_again() -> None:
    wire: Any = None
    documents = NatsDocuments(read_url(StoreURL.parse("nats://h?bucket=b")), wire)
    fit = {
        "discard": "new", "max_msgs_per_subject": 1, "republish": {"src": "$KV.b.>", "dest": "leasehold.b.>"},
    }  # fmt: skip
    at = "1970-01-01T00:00:07Z"
    assert documents._checked({"ts": at, "config": fit}) == 7.0
    with pytest.raises(BackendRejected, match="expire"):
        documents._checked({"ts": at, "config": {**fit, "max_age": 10}})
