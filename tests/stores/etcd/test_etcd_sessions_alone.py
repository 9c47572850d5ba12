"""The sessions of an etcd client over a connection that answers as the test says, on time that passes on command."""

from __future__ import annotations

import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.etcd.claims import LocalClaim
from leasehold._backends.etcd.errors import LeaseGone
from leasehold._backends.etcd.sessions import (
    BATCH,
    CLOSE_PATIENCE,
    MOST_SESSIONS,
    OPEN_PATIENCE,
    REMEMBERED,
    Session,
    SessionEnded,
    Sessions,
    _Opening,
)
from leasehold._runtimes.threads import run
from leasehold.errors import BackendUnavailable, ClientClosed
from tests.stores.etcd.etcd_bench import local, session
from tests.unit.planned_waits import PlannedWaits

if TYPE_CHECKING:
    from collections.abc import Iterator

TTL = 10


class Alone:
    """The connection of a client: it notes what is sent, and fails where `errors` has something for a verb."""

    answer_timeout = 3.0
    label = "etcd://h"

    def __init__(self) -> None:
        self.runtime: Any = PlannedWaits()
        self.sent: list[tuple[Any, ...]] = []
        self.errors: dict[str, list[Exception | None]] = {}
        self.takes = 0.0  # seconds until an answer comes
        self.seen: list[bool] = []
        connection: Any = self
        self.sessions = Sessions(connection, self.runtime)

    def time_left(self, deadline: float) -> float:
        return deadline - float(self.runtime.now())

    def note(self, verb: str, *what: object) -> None:
        self.sent.append((verb, *what))
        plan = self.errors.get(verb, [])
        error = plan.pop(0) if plan else None
        if error is not None:
            raise error
        self.runtime.clock.advance(self.takes)

    async def grant(self, lease: int, ttl: int) -> int:
        assert lease > 0
        self.note("grant", ttl)
        return ttl

    async def keep_alive(self, lease: int, patience: float) -> Any:
        self.seen.append(self.sessions._by_lease[lease].is_kept_alive)
        self.note("keep_alive", lease, patience)
        return SimpleNamespace(ttl=TTL - 1, header="header")

    async def revoke(self, lease: int, patience: float) -> None:
        self.note("revoke", lease, patience)

    async def txn(self, request: bytes) -> None:
        self.note("txn", request)

    def has(self, ttl: int, age: float = 0.0, *, used: bool = False, borrowed: bool = False) -> Session:
        """A session that was confirmed so many seconds ago; its lease has the number of its ttl."""
        made = Session(ttl, ttl, self.runtime.now() - age, self.runtime.guard(), borrowed=borrowed)
        if used:
            made.marks[b"mark"] = math.inf
        self.sessions._by_lease[made.lease] = made
        if not borrowed:
            self.sessions._by_ttl[ttl] = made
        return made


class InOrder(set[LocalClaim]):
    """Claims of a session that come in their order."""

    def __init__(self, claims: list[LocalClaim]) -> None:
        super().__init__(claims)
        self._order = claims

    def __iter__(self) -> Iterator[LocalClaim]:
        return (claim for claim in self._order if claim in self)


@pytest.fixture
def alone() -> Alone:
    return Alone()


# --- one session


@pytest.mark.parametrize(("ttl", "last"), [(10, 9.895), (1, 0.985), (100, 98.995)])
def test_a_session_ends_a_hundredth_and_five_milliseconds_before_its_lease_may(ttl: int, last: float) -> None:
    one = session(ttl=ttl, sent=0.0)
    assert not one.is_over(last - 0.001)
    assert one.is_over(last + 1e-9)


# --- one for a new claim


def test_a_new_claim_does_not_keep_a_session_alive_that_is_being_kept(alone: Alone) -> None:
    one = alone.has(TTL, age=2.0)
    one.is_kept_alive = True
    assert run(alone.sessions.take(TTL)) == (one, None)
    assert alone.sent == []
    one.is_kept_alive = False
    taken, keep_alive = run(alone.sessions.take(TTL))
    assert taken is one
    assert keep_alive is not None
    assert alone.sent == [("keep_alive", TTL, 2.5)]


def test_a_keep_alive_counts_from_before_it_was_sent_and_is_seen_while_it_is_under_way(alone: Alone) -> None:
    one, before = alone.has(TTL, age=2.0), alone.runtime.now()
    alone.takes = 0.75
    keep_alive: Any = run(alone.sessions.keep_alive(one))
    assert (keep_alive.sent, keep_alive.header) == (before, "header")
    assert alone.runtime.now() == before + 0.75
    assert alone.seen == [True]
    assert one.is_kept_alive is False
    assert one.ttl == TTL - 1, "what etcd has given, and not what was asked for"
    assert one.sent == before - 2.0, "it is not proven yet"


def test_a_session_counts_from_before_its_lease_was_asked_for(alone: Alone) -> None:
    before = alone.runtime.now()
    alone.takes = 0.75
    opened, _ = run(alone.sessions.take(TTL))
    assert (opened.sent, opened.ttl) == (before, TTL)


def test_a_session_that_is_opened_again_beside_one_that_lives_takes_one_place_alone(alone: Alone) -> None:
    """One that is over in a moment is replaced by others while it still counts."""
    for ttl in range(20, 20 + MOST_SESSIONS - 1):
        alone.has(ttl, used=True)
    alone.sessions._opening[20] = _Opening(alone.runtime.signal(), object(), math.inf)
    assert run(alone.sessions.take(TTL))[0].ttl == TTL
    assert alone.sent == [("grant", TTL)]


@pytest.mark.parametrize("error", [None, BackendUnavailable("away"), LeaseGone("gone")])
def test_the_first_idle_session_makes_room_and_is_used_by_nobody_any_more(
    alone: Alone, error: Exception | None
) -> None:
    for place in range(MOST_SESSIONS):
        alone.has(20 + place, used=place != 3)
    idle = alone.sessions._by_ttl[23]
    alone.errors["revoke"] = [error]
    assert run(alone.sessions.take(90))[0].ttl == 90
    assert alone.sent == [("revoke", 23, CLOSE_PATIENCE), ("grant", 90)]
    assert idle.ended, "a claim that took it just now must not be granted on it"
    alone.sessions._by_ttl[24].marks.clear()
    assert run(alone.sessions.take(23))[0] is not idle


def test_one_that_waits_for_another_opener_does_so_for_a_while_and_takes_what_that_one_opened(alone: Alone) -> None:
    began = alone.runtime.now()
    other = _Opening(alone.runtime.signal(), object(), began + OPEN_PATIENCE)
    alone.sessions._opening[TTL] = other
    alone.runtime.plan = [lambda: alone.has(TTL)]
    assert run(alone.sessions.take(TTL)) == (alone.sessions._by_ttl[TTL], None)
    assert alone.runtime.waits == [began + OPEN_PATIENCE]
    assert alone.sent == []
    assert alone.sessions._opening == {TTL: other}, "it is the other's to remove"


@pytest.mark.parametrize(
    ("age", "used", "borrowed", "ended", "known"),
    [
        (0.0, False, False, False, True),
        (9.8, False, False, False, True),
        (9.9, False, False, True, True),
        (9.9, False, True, False, True),
        (REMEMBERED * TTL - 1.0, False, False, True, True),
        (REMEMBERED * TTL + 1.0, False, False, True, False),
        (REMEMBERED * TTL + 1.0, True, False, True, False),  # what was on it is gone
        (REMEMBERED * TTL + 1.0, False, True, False, False),
        (REMEMBERED * TTL + 1.0, True, True, False, True),  # another client's may live on
    ],
)
def test_a_session_that_is_over_is_known_for_ten_of_its_ttls(
    alone: Alone, age: float, used: bool, borrowed: bool, ended: bool, known: bool
) -> None:
    one = alone.has(TTL, age, used=used, borrowed=borrowed)
    assert run(alone.sessions.take(77))[0].ttl == 77
    assert one.ended is ended
    assert (TTL in alone.sessions._by_lease) is known


# --- what is swept


def test_only_the_marks_whose_deletion_was_answered_are_forgotten(alone: Alone) -> None:
    one = alone.has(TTL)
    one.marks = {b"%03d" % number: alone.runtime.now() for number in range(BATCH + 2)}
    one.marks[b"later"] = alone.runtime.now() + 1e-6
    alone.errors["txn"] = [None, BackendUnavailable("away")]
    run(alone.sessions.sweep(one))
    assert sorted(one.marks) == [b"100", b"101", b"later"]
    run(alone.sessions.sweep(one))
    assert sorted(one.marks) == [b"later"]
    assert len(alone.sent) == 3
    assert not one.ended


@pytest.mark.parametrize(("overdue", "over"), [(3.0, False), (9.9, False), (10.0, True)])
def test_a_session_is_given_up_for_a_key_that_could_not_be_deleted_for_a_ttl_and_for_no_other(
    alone: Alone, overdue: float, over: bool
) -> None:
    """The first key is deleted, however long it was overdue; the second one is not."""
    one, kept = alone.has(TTL), []
    for age in (50.0, overdue):
        claim = local(one)
        claim.created, claim.keep_until = 5, alone.runtime.now() - age
        kept.append(claim)
    one.claims = InOrder(kept)
    alone.errors["txn"] = [None, BackendUnavailable("away")]
    with pytest.raises(SessionEnded) if over else nullcontext():
        run(alone.sessions.sweep(one))
    assert one.ended is over


# --- the end


@pytest.mark.parametrize(
    ("error", "revoked"),
    [
        (None, [20, 21, 22]),
        (LeaseGone("gone"), [20, 21, 22]),
        (BackendUnavailable("away"), [20, 21]),
        (ClientClosed(), [20, 21]),
    ],
)
def test_a_client_that_closes_revokes_what_is_idle_until_one_revocation_fails(
    alone: Alone, error: Exception | None, revoked: list[int]
) -> None:
    for ttl in (20, 21, 22):
        alone.has(ttl)
    alone.has(30, used=True)
    alone.has(31, borrowed=True)
    alone.has(32, age=31.9)
    alone.errors["revoke"] = [None, error]
    run(alone.sessions.close())
    assert alone.sent == [("revoke", ttl, CLOSE_PATIENCE) for ttl in revoked]
