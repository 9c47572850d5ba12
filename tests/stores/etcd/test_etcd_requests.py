"""The requests of the etcd protocol, taken apart into words; and answers of etcd, read."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold._backends.etcd import rpc, transactions
from leasehold._backends.etcd.keys import KeySpace, KeySuffixes
from leasehold._backends.etcd.protobuf import block, fields, number, signed
from leasehold._backends.etcd.rpc import Header, KeyValue, Sort
from leasehold._backends.etcd.transactions import NewClaim
from leasehold._runtimes.threads import ThreadRuntime
from leasehold.values import Mode

SPACE = KeySpace("l/")
EXCLUSIVE = SPACE.of("ns:x", Mode.EXCLUSIVE, 1)
SHARED = SPACE.of("ns:x", Mode.SHARED, 1)
PERMIT = SPACE.of("ns:x", Mode.PERMIT, 3)
KEY, OWN = b"l/1/q/ns:x/w/5", b"l/1/q/ns:x/p3/5"
TARGETS = {0: "version", 1: "created", 2: "written", 3: "value", 4: "lease"}
PLACES = {0: 4, 1: 5, 2: 6, 3: 7, 4: 8}


def text(key: Any) -> str:
    return str(key, "ascii").removeprefix("l/1/")


def where(get: Any, last: int) -> str:
    return text(get(1, b"")) + (f"..{text(get(last))}" if get(last) else "")


def reading(content: bytes) -> str:
    """A range in words."""
    get: Any = dict(fields(content)).get
    words = [f"read {where(get, 2)}"]
    words += [f"limit {get(3)}"] if get(3) else []
    words += [f"at {get(4)}"] if get(4) else []
    if get(5):
        assert get(6) == 2, "by creation"
        words.append({1: "oldest", 2: "newest"}[get(5)])
    words += ["keys"] if get(8) else []
    words += ["count"] if get(9) else []
    words += [f"up to {get(13)}"] if get(13) else []
    assert set(dict(fields(content))) <= {1, 2, 3, 4, 5, 6, 8, 9, 13}
    return " ".join(words)


def operation(content: bytes) -> str:
    ((kind, what),) = fields(content)
    if kind == 1:
        return reading(what)
    get: Any = dict(fields(what)).get
    if kind == 3:
        return f"delete {where(get, 2)}"
    lease = "same" if get(6) else signed(get(3, 0))
    return f"put {text(get(1))}={get(2).decode()} on {lease}"


def comparison(content: bytes) -> str:
    get = dict(fields(content)).get
    target = get(2, 0)
    wanted = get(PLACES[target], b"" if target == 3 else 0)
    sign = {0: "=", 1: ">", 2: "<"}[get(1, 0)]
    value = wanted.decode() if isinstance(wanted, bytes) else signed(wanted)
    span = text(get(3)) + (f"..{text(get(64))}" if get(64) else "")
    return f"{TARGETS[target]} {span} {sign} {value}"


def told(request: bytes) -> list[str]:
    """A transaction in words."""
    heads = {1: "if", 2: "then", 3: "else"}
    return [
        f"{heads[place]} {comparison(content) if place == 1 else operation(content)}"
        for place, content in fields(request)
    ]


def new(keys: Any = EXCLUSIVE, key: bytes = KEY) -> NewClaim:
    return NewClaim(keys, "owner", key, b"value", 77, 9)


INSERTED = [
    "if created q/ns:x/w/5 = 0",
    "if created q/ns:x/p..q/ns:x/q = 0",
    "if created x/ns:x/owner = 0",
    "if written f/ns = 9",
    "then put q/ns:x/w/5=value on 77",
]
REASONS = [
    "read q/ns:x/w/5",
    "read x/ns:x/owner",
    "read f/ns",
    "read q/ns:x/..q/ns:x0 limit 1 oldest",
    "read q/ns:x/r..q/ns:x/x count",
]


# --- a new claim


def test_a_claim_that_joins_is_written_unless_something_forbids_it() -> None:
    assert told(transactions.join(new(), 1)) == [
        *INSERTED,
        "then read q/ns:x/r..q/ns:x/x limit 2 newest keys",
        "then read q/ns:x/..q/ns:x0 limit 1 oldest",
    ]


def test_why_a_claim_got_no_key_is_read_without_a_change() -> None:
    assert told(transactions.explain(new())) == [f"then {each}" for each in REASONS]
    assert (transactions.OWN, transactions.WITHDRAWN, transactions.FLOOR, transactions.FIRST, transactions.AHEAD) == (
        0, 1, 2, 3, 4,
    )  # fmt: skip


def test_a_single_try_is_written_only_while_nothing_is_in_its_way() -> None:
    assert told(transactions.try_acquire(new())) == [
        *INSERTED,
        "if created q/ns:x/r..q/ns:x/x = 0",
        *[f"else {each}" for each in REASONS],
    ]


def test_a_single_try_for_a_permit_goes_by_the_revision_at_which_there_was_room() -> None:
    plain, later = (told(transactions.try_acquire(new(PERMIT, OWN), room)) for room in (0, 40))
    assert "if created q/ns:x/p3/..q/ns:x/p30 = 0" in plain
    assert "if created q/ns:x/p3/..q/ns:x/p30 < 41" in later
    assert len(plain) == len(later)


def test_only_writers_forbid_a_single_try_to_read() -> None:
    assert "if created q/ns:x/w..q/ns:x/x = 0" in told(transactions.try_acquire(new(SHARED, b"l/1/q/ns:x/r/5")))


def test_a_permit_is_not_written_while_its_name_is_another_kind_of_lock() -> None:
    conditions = [each for each in told(transactions.join(new(PERMIT, OWN), 4)) if each.startswith("if")]
    assert conditions[1:4] == [
        "if created q/ns:x/r..q/ns:x/x = 0",
        "if created q/ns:x/p..q/ns:x/p3/ = 0",
        "if created q/ns:x/p30..q/ns:x/q = 0",
    ]


# --- a claim in the queue

POSITION = [
    "read q/ns:x/w/5",
    "read f/ns",
    "read q/ns:x/r..q/ns:x/x limit 1 newest keys up to 39",
    "read q/ns:x/..q/ns:x0 limit 1 oldest",
]


def test_a_position_is_read_among_the_claims_that_are_older() -> None:
    assert told(transactions.position(EXCLUSIVE, KEY, 40, 1)) == [f"then {each}" for each in POSITION]
    assert (
        transactions.QUEUE_OWN, transactions.QUEUE_FLOOR, transactions.QUEUE_AHEAD, transactions.QUEUE_FIRST,
    ) == (0, 1, 2, 3)  # fmt: skip


def test_a_position_that_has_not_changed_is_one_read_of_the_floor() -> None:
    assert told(transactions.position_if_moved(EXCLUSIVE, KEY, 40, 1, (b"l/1/q/ns:x/w/4", 30))) == [
        "if created q/ns:x/w/5 = 40",
        "if created q/ns:x/w/4 = 30",
        "then read f/ns",
        *[f"else {each}" for each in POSITION],
    ]


def test_a_claim_is_marked_granted_on_the_lease_that_it_has() -> None:
    assert told(transactions.mark_granted(KEY, 40, b"new")) == [
        "if created q/ns:x/w/5 = 40",
        "then put q/ns:x/w/5=new on same",
    ]


# --- grants, and the end of a claim


@pytest.mark.parametrize(
    ("request_", "parts"),
    [
        (
            transactions.verify([(KEY, 41), (OWN, 51)], b"l/1/f/ns"),
            [
                "if written q/ns:x/w/5 = 41", "if written q/ns:x/p3/5 = 51", "then read f/ns",
                "else read q/ns:x/w/5", "else read q/ns:x/p3/5",
            ],
        ),
        (
            transactions.release(KEY, 41),
            ["if written q/ns:x/w/5 = 41", "then delete q/ns:x/w/5", "else read q/ns:x/w/5"],
        ),
        (
            transactions.cool(KeyValue(KEY, 40, 41, b"old", 7), b"~new", 8),
            ["if written q/ns:x/w/5 = 41", "then put q/ns:x/w/5=~new on 8", "else read q/ns:x/w/5"],
        ),
        (
            transactions.put_if_unchanged(KeyValue(KEY, 40, 41), b"new"),
            ["if written q/ns:x/w/5 = 41", "then put q/ns:x/w/5=new on 0"],
        ),
        (
            transactions.break_now(KeyValue(KEY, 40, 41), EXCLUSIVE, "owner", b"stuck", 8),
            [
                "if written q/ns:x/w/5 = 41", "then delete q/ns:x/w/5", "then put b/ns:x/owner=stuck on 8",
                "then put x/ns:x/owner= on 8",
            ],
        ),
        (transactions.refuse(b"l/1/x/ns:x/owner", 8), ["then put x/ns:x/owner= on 8"]),
        (
            transactions.withdraw(KEY, b"value", b"l/1/x/ns:x/owner", 8),
            [
                "if value q/ns:x/w/5 = value", "then delete q/ns:x/w/5", "then put x/ns:x/owner= on 8",
                "else read q/ns:x/w/5", "else put x/ns:x/owner= on 8",
            ],
        ),
        (
            transactions.delete_if(KEY, b"value"),
            ["if value q/ns:x/w/5 = value", "then delete q/ns:x/w/5", "else read q/ns:x/w/5"],
        ),
        (
            transactions.drop(KEY, 8, 40),
            ["if created q/ns:x/w/5 = 40", "if lease q/ns:x/w/5 = 8", "then delete q/ns:x/w/5"],
        ),
        (transactions.read_all([KEY, OWN]), ["then read q/ns:x/w/5", "then read q/ns:x/p3/5"]),
        (transactions.delete_all([KEY, OWN]), ["then delete q/ns:x/w/5", "then delete q/ns:x/p3/5"]),
    ],
    ids=[
        "verify", "release", "cool", "put", "break now", "refuse", "withdraw", "delete", "drop", "read all",
        "delete all",
    ],
)  # fmt: skip
def test_every_change_of_a_claim_has_its_condition(request_: bytes, parts: list[str]) -> None:
    assert told(request_) == parts


# --- single messages


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (rpc.is_absent(KEY), "created q/ns:x/w/5 = 0"),
        (rpc.is_absent(KEY, b"l/1/z"), "created q/ns:x/w/5..z = 0"),
        (rpc.created_at(KEY, 7), "created q/ns:x/w/5 = 7"),
        (rpc.none_created_after(KEY, b"l/1/z", 7), "created q/ns:x/w/5..z < 8"),
        (rpc.written_at(KEY, 7), "written q/ns:x/w/5 = 7"),
        (rpc.lives_on(KEY, 7), "lease q/ns:x/w/5 = 7"),
        (rpc.value_is(KEY, b"v"), "value q/ns:x/w/5 = v"),
    ],
)
def test_conditions(condition: bytes, words: str) -> None:
    assert comparison(condition) == words


def test_a_range_says_what_it_wants_and_no_more() -> None:
    assert reading(rpc.range_(b"l/1/a", b"l/1/b", limit=3, revision=9, sort=Sort.OLDEST)) == (
        "read a..b limit 3 at 9 oldest"
    )
    assert reading(rpc.read(b"l/1/a")) == "read a"


def test_messages_about_leases_and_watches() -> None:
    assert fields(rpc.lease_grant(7, 60)) == [(1, 60), (2, 7)]
    assert fields(rpc.lease_id(7)) == [(1, 7)]
    assert fields(rpc.watch_cancel(3)) == [(2, number(1, 3))]
    ((kind, deletions),) = fields(rpc.watch_create(3, b"k", b"", puts=False))
    assert (kind, fields(deletions)) == (1, [(1, b"k"), (5, b"\x00"), (7, 3)])
    ((kind, all_events),) = fields(rpc.watch_create(3, b"k", b"l", puts=True))
    assert (kind, fields(all_events)) == (1, [(1, b"k"), (2, b"l"), (7, 3)])


# --- answers

HEADER = block(1, number(1, 1) + number(2, 2) + number(3, 3) + number(4, 4))
STORED = block(1, b"k") + number(2, 40) + number(3, 41) + number(4, 2) + block(5, b"v") + number(6, -5)


def test_a_range_is_read_with_what_is_beyond_its_limit() -> None:
    answer = rpc.read_range(HEADER + block(2, STORED) + number(3, 1) + number(4, 9))
    assert answer == (Header(1, 2, 3, 4), (KeyValue(b"k", 40, 41, b"v", -5),), 9, True)
    assert rpc.read_range(HEADER) == (Header(1, 2, 3, 4), (), 0, False)
    assert rpc.read_range(HEADER + block(2, STORED), rpc.NO_HEADER).header == Header()


def test_each_result_of_a_transaction_is_read_by_its_place() -> None:
    results = [block(3, block(1, block(2, block(1, name)) + number(4, 1))) for name in (b"a", b"b")]
    answer = rpc.read_txn(HEADER + number(2, 1) + b"".join(results))
    assert answer.succeeded
    assert [answer.read(place).found[0].key for place in (0, 1)] == [b"a", b"b"]
    assert answer.header == Header(1, 2, 3, 4)
    assert not rpc.read_txn(HEADER).succeeded


def test_answers_about_leases_members_and_alarms() -> None:
    assert rpc.read_lease(HEADER + number(2, 7) + number(3, 50) + number(4, 60)) == (Header(1, 2, 3, 4), 7, 50, 60)
    status = HEADER + block(2, b"3.5.13") + number(3, 4096) + number(4, 9) + number(5, 8) + number(6, 2)
    assert rpc.read_status(status) == ("3.5.13", 4096, 9, 2)
    members = [block(2, block(2, b"a") + learner) for learner in (b"", b"", b"", number(5, 1))]
    assert rpc.read_members(HEADER + b"".join(members)) == (3, 1)
    alarms = [block(2, number(1, 5) + number(2, alarm)) for alarm in (1, 2, 7, 0)]
    assert rpc.read_alarms(HEADER + b"".join(alarms)) == ["NOSPACE", "CORRUPT", "7"]
    assert rpc.read_token(HEADER + block(2, b"token.7")) == "token.7"


# --- names as keys


def test_the_keys_of_a_lock() -> None:
    keys = KeySpace("app/").of("ns:a b/ü%", Mode.EXCLUSIVE, 1)
    name = b"ns:a%20b%2F%C3%BC%25"
    base = b"app/1/q/" + name
    assert keys.claims == base + b"/w/"
    assert keys.queue == (base + b"/", base + b"0")
    assert keys.ahead == (base + b"/r", base + b"/x")
    assert keys.other_kinds == ((base + b"/p", base + b"/q"),)
    assert keys.withdrawal_mark("o/w:1 ü") == b"app/1/x/" + name + b"/o%2Fw:1%20%C3%BC"
    assert keys.withdrawal_mark("owner1") == b"app/1/x/" + name + b"/owner1"
    assert keys.break_note("owner1") == b"app/1/b/" + name + b"/owner1"
    assert keys.floor == b"app/1/f/ns"


def test_other_keys_below_the_root() -> None:
    space = KeySpace("app/")
    assert space.floor("ns/1:x:y") == b"app/1/f/ns%2F1"
    assert space.floor("alone") == b"app/1/f/alone"
    assert space.queue("a/b") == (b"app/1/q/a%2Fb/", b"app/1/q/a%2Fb0")
    assert space.queues("ns:") == (b"app/1/q/ns:", b"app/1/q/ns;")
    assert space.record("ns:x") == (b"app/1/r/ns:x/fence", b"app/1/r/ns:x/value")
    assert space.of("k", Mode.SHARED, 1) is space.of("k", Mode.SHARED, 1)


# --- suffixes


def suffixes(first: int = 10) -> Any:
    made: Any = KeySuffixes(ThreadRuntime())
    made._first = first
    return made


def test_suffixes_are_counted_up_from_the_first_one_for_each_lock() -> None:
    made = suffixes()
    assert [made.take(b"a"), made.take(b"a"), made.take(b"b")] == [10, 11, 10]


def test_an_abandoned_suffix_is_used_again_once_its_key_is_gone() -> None:
    made = suffixes()
    first, _ = made.take(b"a"), made.take(b"a")
    made.abandon(b"a")
    assert made.take(b"a") == 12
    made.recover(b"a", first)
    assert made.take(b"a") == first


def test_a_lock_that_is_not_in_use_is_forgotten() -> None:
    made = suffixes()
    made.give_back(b"a", made.take(b"a"))
    assert made._used == {}
    made.take(b"a")
    made.abandon(b"a")
    assert made._used == {}
    made.give_back(b"a", 10)
    made.abandon(b"a")
    made.recover(b"a", 10)
    made.collide(b"a")
    assert made._used == {}


def test_after_a_collision_none_of_the_old_suffixes_is_used() -> None:
    made = suffixes()
    taken = [made.take(b"a") for _ in range(3)]
    made.give_back(b"a", taken[1])
    made.collide(b"a")
    made._first = 1000
    assert [made.take(b"a"), made.take(b"a")] == [1000, 1001]


def test_the_range_of_suffixes_has_an_end() -> None:
    made = suffixes()
    for _ in range(20):
        made.collide(b"a")
    assert made._range == 2**30
    assert 0 <= made._first < 2**30


def test_clients_begin_at_different_suffixes() -> None:
    firsts = {KeySuffixes(ThreadRuntime()).take(b"a") for _ in range(200)}
    assert len(firsts) > 20
    assert max(firsts) < 64
