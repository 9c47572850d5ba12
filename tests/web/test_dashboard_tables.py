"""Locks, grants and partitions as plain data: pure functions over the answers of a store, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leasehold.fleet import FleetState
from leasehold.values import Holder, Holding, LockState, Mode, Pause
from leasehold.web.drawing import FILES, _clock, _iso, _link, _when, _where, _who
from leasehold.web.facts import SHOWN_WAITERS, TableQuery, lock_facts, lock_table
from leasehold.web.history import CLOSED_KEPT, History
from leasehold.web.partitions import SHOWN, partition_groups
from tests.web.clocks import Clock, clock_of

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = 1_000_000.0
ANA, BEN = Holder("db-1", 7, "Nightly", "the Ledger"), Holder("db-2", 8)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clocks that the facts go by."""
    return clock_of(monkeypatch, "facts", "history", now=NOW)


def held(fence: int = 1, *, held_for: float = 1.0, left: float = 20.0, holder: Holder = BEN, **more: Any) -> Holding:
    return Holding(holder, fence, held_for, left, **more)


def lock(name: str, *holdings: Holding, waiting: Sequence[Holder] = (), **more: Any) -> LockState:
    facts: dict[str, Any] = {"mode": Mode.EXCLUSIVE, "capacity": 1, **more}
    return LockState(name, facts.pop("mode"), facts.pop("capacity"), holdings, tuple(waiting), **facts)


def table(locks: Sequence[LockState], age: float = 0.0, error: str | None = None, **query: Any) -> dict[str, Any]:
    state = FleetState(locks, error, NOW - age, stalled={"b": 12.0})
    return lock_table(state, History(), TableQuery.of(query))


def names(found: dict[str, Any]) -> str:
    return " ".join(each["name"] for each in found["locks"])


# --- what is wanted


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, TableQuery("", False, False, "name", False, 1)),
        ({"q": "  cart "}, TableQuery(search="cart")),
        ({"long": "1"}, TableQuery(long_held=True)),
        ({"waiters": "1"}, TableQuery(has_waiters=True)),
        ({"sort": "held"}, TableQuery(sort="held")),
        ({"sort": "secret"}, TableQuery()),
        ({"order": "desc"}, TableQuery(descending=True)),
        ({"order": "asc"}, TableQuery()),
        ({"page": "7"}, TableQuery(page=7)),
        ({"page": "99999"}, TableQuery(page=99_999)),
        ({"page": "100000"}, TableQuery()),
        ({"page": "0"}, TableQuery()),
        ({"page": "-1"}, TableQuery()),
        ({"page": "x"}, TableQuery()),
        ({"page": "²"}, TableQuery()),
    ],
    ids=str,
)
def test_what_makes_no_sense_in_a_query_is_the_default(query: dict[str, str], wanted: TableQuery) -> None:
    assert TableQuery.of(query) == wanted


THREE = (
    lock("b", held(30, held_for=5, left=9), waiting=[ANA, BEN]),
    lock("A", held(10, held_for=70, left=3, holder=ANA)),
    lock("c", held(20, held_for=1, left=30), held(5, held_for=6, left=1), mode=Mode.PERMIT, capacity=3, waiting=[BEN]),
    lock("d", paused=Pause("audit", "ana")),
)


@pytest.mark.parametrize(
    ("sort", "up", "down"),
    [
        ("name", "A b c d", "d c b A"),
        ("held", "d b c A", "A c b d"),
        ("left", "d c A b", "b A c d"),
        ("fence", "d A c b", "b c A d"),
        ("waiters", "A d c b", "b c A d"),
    ],
)
def test_locks_are_sorted_by_what_the_heading_says(sort: str, up: str, down: str) -> None:
    """The longest hold, the least time left and the highest fence count where there are several holders."""
    assert names(table(THREE, sort=sort)) == up
    assert names(table(THREE, sort=sort, order="desc")) == down


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"q": "a"}, "A"),
        ({"q": "NIGHT"}, "A b"),  # the label of a holder, and of a waiter
        ({"q": "ledger"}, "A b"),
        ({"q": "db-2"}, "b c"),
        ({"q": "pid 7"}, "A b"),
        ({"q": "nobody"}, ""),
        ({"waiters": "1"}, "b c"),
        ({"long": "1"}, "A"),
        ({"long": "1", "waiters": "1"}, ""),
    ],
    ids=str,
)
def test_search_and_filters_choose_locks_and_the_totals_stay_those_of_all(query: Any, found: str) -> None:
    answer = table(THREE, **query)
    assert names(answer) == found
    assert answer["found"] == len(found.split())
    assert answer["totals"] == {"names": 4, "held": 4, "waiters": 3, "paused": 1, "longest": 70}


def test_the_age_of_an_answer_counts_for_what_is_held_long_and_for_what_is_left() -> None:
    locks = [lock("x", held(held_for=50, left=12))]
    assert names(table(locks, age=9.5, long="1")) == ""
    assert names(table(locks, age=10.0, long="1")) == "x", "a minute is long"
    old = table(locks, age=10.0)
    assert old["totals"]["longest"] == 60
    (facts,) = old["locks"][0]["holdings"]
    assert (facts["held_for"], facts["expires_in"]) == (60, 2)
    (facts,) = table(locks, age=100.0)["locks"][0]["holdings"]
    assert facts["expires_in"] == 0
    assert table([lock("free")], age=10.0)["totals"]["longest"] == 0
    unanswered = table(locks, age=100.0, error="away")
    assert unanswered["locks"][0]["holdings"][0]["expires_in"] == 12, "what is shown is as it was when it was read"


def test_a_page_has_a_hundred_locks_and_the_last_one_what_is_left() -> None:
    many = [lock(f"{number:03}", held()) for number in range(201)]
    pages = [table(many, page=str(number)) for number in (1, 2, 3, 4)]
    assert [len(page["locks"]) for page in pages] == [100, 100, 1, 1]
    assert [page["page"] for page in pages] == [1, 2, 3, 3]
    assert [page["locks"][0]["name"] for page in pages] == ["000", "100", "200", "200"]
    assert {(page["pages"], page["found"]) for page in pages} == {(3, 201)}
    assert table(many[:100])["pages"] == 1
    assert (table([])["pages"], table([])["page"]) == (1, 1)


def test_a_queue_that_stands_still_is_told_at_its_lock() -> None:
    assert [each["stalled"] for each in table(THREE)["locks"]] == [None, 12.0, None, None]


# --- one lock


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (lock("x", held()), "held"),
        (lock("x"), "free"),
        (lock("x", held(broken="stuck")), "broken"),
        (lock("x", held(broken="stuck"), held(2)), "held"),
        (lock("x", held(cooling=True)), "cooling"),
        (lock("x", held(cooling=True), held(2)), "held"),
        (lock("x", held(), paused=Pause("audit", "ana")), "paused"),
        (lock("x", paused=Pause("audit", "ana")), "paused"),
    ],
    ids=str,
)
def test_the_state_of_a_lock_in_a_word(state: LockState, word: str) -> None:
    assert lock_facts(state, History())["state"] == word


def test_what_is_told_of_a_lock() -> None:
    state = lock(
        "x", held(7, holder=ANA, broken="stuck", cooling=True), waiting=[BEN], paused=Pause("audit", "b", 5, 6)
    )
    assert lock_facts(state, History()) == {
        "name": "x", "state": "paused", "mode": "exclusive", "capacity": None, "waiters": 1,
        "holdings": [{
            "holder": {"host": "db-1", "pid": 7, "label": "Nightly", "reason": "the Ledger"}, "fence": 7,
            "held_for": 1.0, "expires_in": 20.0, "ttl_seen": 20.0, "renewed_ago": None, "broken": "stuck",
            "cooling": True,
        }],
        "waiting": [{"host": "db-2", "pid": 8, "label": None, "reason": None}],
        "paused": {"reason": "audit", "by": "b", "expires_in": 5, "paused_for": 6},
    }  # fmt: skip
    assert lock_facts(lock("x", mode=Mode.PERMIT, capacity=3), History())["capacity"] == 3
    assert lock_facts(lock("x", mode=Mode.SHARED, capacity=3), History())["capacity"] is None


def test_of_a_long_queue_the_head_is_told_and_the_number_of_all() -> None:
    facts = lock_facts(lock("x", held(), waiting=[ANA, *[BEN] * SHOWN_WAITERS]), History())
    assert (facts["waiters"], len(facts["waiting"])) == (SHOWN_WAITERS + 1, SHOWN_WAITERS)
    assert facts["waiting"][0]["label"] == "Nightly"


def test_the_ttl_is_the_most_that_was_seen_and_a_renewal_has_its_moment(clock: Clock) -> None:
    history = History()
    history.note_lock("x", lock("x", held(left=30)))
    clock.now += 10
    renewed = lock("x", held(left=28))  # 8 s more than were left: it was renewed 2 s ago
    history.note_lock("x", renewed)
    clock.now += 3
    (facts,) = lock_facts(lock("x", held(left=25)), history)["holdings"]
    assert (facts["ttl_seen"], facts["renewed_ago"]) == (30, 5)
    (facts,) = lock_facts(lock("x", held(2, left=25)), history)["holdings"]
    assert (facts["ttl_seen"], facts["renewed_ago"]) == (25, None), "another grant"
    (facts,) = lock_facts(lock("x", held(left=44)), history)["holdings"]
    assert facts["ttl_seen"] == 44, "seen for the first time now"


# --- grants that were seen


def test_a_grant_began_before_it_was_seen(clock: Clock) -> None:
    history = History()
    assert history.since == NOW
    history.note_lock("x", lock("x", held(3, held_for=100, left=20, holder=ANA)))
    (grant,) = history.of("x")
    assert (grant.began, grant.seen, grant.left, grant.holder) == (NOW - 100, NOW, 20, str(ANA))
    assert history.names() == ("x",)
    history.note_lock("y", None)
    assert history.names() == ("x",), "what was never held is no name that was seen"


@pytest.mark.parametrize(
    ("later", "left", "renewed"),
    [(5.0, 15.0, None), (5.0, 15.4, None), (5.0, 15.6, NOW + 5 - 4.4), (5.0, 20.0, NOW + 5), (5.0, 24.0, NOW + 5)],
)
def test_only_a_rise_of_the_time_left_is_a_renewal(
    clock: Clock, later: float, left: float, renewed: float | None
) -> None:
    history = History()
    history.note_lock("x", lock("x", held(left=20)))
    clock.now += later
    history.note_lock("x", lock("x", held(left=left)))
    (grant,) = history.of("x")
    assert grant.renewed == (None if renewed is None else pytest.approx(renewed))
    assert grant.ttl == max(20, left)
    history.note_lock("x", lock("x", held(left=left)))
    (again,) = history.of("x")
    assert again.renewed == grant.renewed, "it is remembered"


@pytest.mark.parametrize(
    ("later", "broken", "end"),
    [
        (19.9, None, "released"),
        (20.0, None, "released or expired"),
        (1.0, "stuck", "broken: stuck"),
        (50.0, "stuck", "broken: stuck"),
    ],
)
def test_how_a_grant_ended_is_told_by_when_it_was_gone(
    clock: Clock, later: float, broken: str | None, end: str
) -> None:
    history = History()
    history.note_lock("x", lock("x", held(left=20, broken=broken)))
    clock.now += later
    history.note_lock("x", None)
    (grant,) = history.of("x")
    assert (grant.end, grant.ended) == (end, NOW + later)
    clock.now += 100
    history.note_lock("x", lock("x"))
    assert history.of("x") == (grant,), "it ends once"


def test_a_lock_of_one_holder_was_over_when_the_next_began_and_a_permit_may_not(clock: Clock) -> None:
    exclusive, permit = History(), History()
    for history, mode in ((exclusive, Mode.EXCLUSIVE), (permit, Mode.PERMIT)):
        for is_fleet in (True, False):
            history._names.clear()
            for clock.now, holding in ((NOW, held(1, left=20)), (NOW + 10, held(2, held_for=4))):
                state = lock("x", holding, mode=mode)
                if is_fleet:
                    history.note_fleet(FleetState((state,)))
                else:
                    history.note_lock("x", state)
            assert history.of("x")[1].ended == NOW + (6 if mode is Mode.EXCLUSIVE else 10)
    assert [grant.ended for grant in exclusive.of("x")] == [None, NOW + 6]
    assert [grant.ended for grant in permit.of("x")] == [None, NOW + 10]
    exclusive.note_lock("x", lock("x", held(3, held_for=500)))
    assert exclusive.of("x")[1].ended == NOW + 10, "not before it was seen"


def test_a_lock_that_is_no_longer_listed_is_free(clock: Clock) -> None:
    history = History()
    history.note_fleet(FleetState((lock("x", held(1)), lock("y", held(2)))))
    history.note_fleet(FleetState((lock("y", held(2)), lock("z", held(3)))))
    assert {name: history.of(name)[0].end for name in history.names()} == {"x": "released", "y": None, "z": None}
    assert history.grant("y", 1) is None


def test_the_newest_grants_of_a_name_are_kept(clock: Clock) -> None:
    history = History()
    for fence in range(1, CLOSED_KEPT + 5):
        clock.now += 1
        history.note_lock("x", lock("x", held(fence)))
    assert [grant.fence for grant in history.of("x")] == list(range(CLOSED_KEPT + 4, 3, -1))
    several = lock("s", held(1), held(3), held(2), mode=Mode.PERMIT, capacity=3)
    history.note_lock("s", several)
    assert [grant.fence for grant in history.of("s")] == [3, 2, 1]


def test_beyond_the_limit_the_names_that_were_seen_longest_ago_are_forgotten(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold.web.history.NAMES_KEPT", 10)
    history = History()
    history.note_lock("open", lock("open", held()))
    for number in range(11):
        clock.now += 1
        history.note_lock(f"{number:02}", lock("x", held()))
        history.note_lock(f"{number:02}", None)
        history.note_fleet(FleetState((lock("open", held()),)))
    assert history.names() == ("open", *(f"{number:02}" for number in range(2, 11))), "a tenth more than is needed"


# --- partitions


def members(count: int, *holdings: Holding, name: str = "orders") -> LockState:
    return lock(f"{name}/members", *holdings, mode=Mode.PERMIT, capacity=count * 100)


def test_what_is_told_of_partitions_and_their_members() -> None:
    stranger = Holder("db-9", 9)
    locks = [
        members(4, held(12, holder=BEN, held_for=3.00049), held(11, holder=ANA, held_for=5)),
        lock("orders/0", held(21, holder=ANA)),
        lock("orders/1", held(22, holder=BEN)),
        lock("orders/2", held(23, holder=stranger)),
        lock("orders/3"),
        lock("orders/4", held(24, holder=ANA)),
    ]
    (group,) = partition_groups(locks)
    assert (group["name"], group["count"], group["free"]) == ("orders", 4, 1)
    assert [(each["fence"], each["owned"], each["member_for"]) for each in group["members"]] == [(11, 1, 5), (12, 1, 3)]
    assert group["members"][0]["holder"]["label"] == "Nightly"
    assert group["partitions"] == [
        {"index": 0, "member": 0, "fence": 21, "owned": True},
        {"index": 1, "member": 1, "fence": 22, "owned": True},
        {"index": 2, "member": None, "fence": 23, "owned": True},
        {"index": 3, "member": None, "fence": None, "owned": False},
    ]


def test_members_of_one_process_are_told_apart_by_their_labels() -> None:
    first, second, other = Holder("db-1", 7, "orders"), Holder("db-1", 7, "refunds"), Holder("db-2", 7, "orders")
    people = members(4, held(11, holder=first), held(12, holder=second), held(13, holder=other))
    owners = [
        lock(f"orders/{index}", held(21 + index, holder=who)) for index, who in enumerate((second, other, second))
    ]
    (group,) = partition_groups([people, *owners])
    assert [(each["fence"], each["owned"]) for each in group["members"]] == [(11, 0), (12, 2), (13, 1)]
    assert [each["member"] for each in group["partitions"]] == [1, 2, 1, None]


def test_only_the_members_of_partitions_are_a_group() -> None:
    """Each of the others is a lock that could be mistaken for one."""
    others = [
        lock("a/members", held()),
        lock("b/members", held(), mode=Mode.PERMIT, capacity=150),
        lock("c/member", held(), mode=Mode.PERMIT, capacity=100),
        lock("d/members", held(), mode=Mode.SHARED, capacity=100),
    ]
    groups = partition_groups([members(2, held(), name="z"), *others, members(1, held(), name="e")])
    assert [(group["name"], group["count"]) for group in groups] == [("e", 1), ("z", 2)]


def test_of_very_many_partitions_the_first_are_drawn_and_all_are_counted() -> None:
    (group,) = partition_groups([members(SHOWN + 1, held(1, holder=ANA)), lock(f"orders/{SHOWN}", held(2, holder=ANA))])
    assert (group["count"], group["free"], len(group["partitions"])) == (SHOWN + 1, SHOWN, SHOWN)
    assert group["members"][0]["owned"] == 1


# --- words and figures


@pytest.mark.parametrize(
    ("label", "who", "where"),
    [("nightly", "nightly", "db-1 · pid 7"), (None, "db-1", "pid 7"), ("a\nb", "a\\nb", "db-1 · pid 7")],
)
def test_a_process_is_called_by_its_label_or_its_host(label: str | None, who: str, where: str) -> None:
    facts = {"host": "db-1", "pid": 7, "label": label}
    assert (_who(facts), _where(facts)) == (who, where)


def test_moments_are_shown_in_the_time_of_the_world() -> None:
    assert _when(1_763_208_000.5) == "2025-11-15 12:00:00 UTC"
    assert _iso(1_763_208_000.5) == "2025-11-15T12:00:00+00:00"
    assert _clock(1_763_208_000.5) == "12:00:00"


@pytest.mark.parametrize(
    ("query", "address"),
    [
        ({}, "lock"),
        ({"name": "a/b: ü&?#"}, "lock?name=a%2Fb%3A+%C3%BC%26%3F%23"),
        ({"name": "x", "q": "", "long": None, "now": False}, "lock?name=x"),
        ({"fence": 7, "page": 2}, "lock?fence=7&page=2"),
    ],
)
def test_a_link_has_what_is_said_and_leaves_out_what_is_empty(query: dict[str, Any], address: str) -> None:
    assert _link("lock", **query) == address


def test_each_file_has_the_kind_that_browsers_ask_for() -> None:
    """They refuse a style or a script of another kind."""
    kinds = {name: kind for name, (_, kind) in FILES.items()}
    assert kinds == {"app.css": "text/css", "app.js": "text/javascript", "icon.svg": "image/svg+xml"}
