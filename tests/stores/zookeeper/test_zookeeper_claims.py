"""One claim at ZooKeeper, and what a process knows of all: answers, notifications, places, sessions, fences."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.exceptions import BadVersionError, ConnectionLoss, NoAuthError, NodeExistsError, NoNodeError

from leasehold._backends.zookeeper import claim_node
from leasehold._backends.zookeeper.calls import Calls
from leasehold._backends.zookeeper.claim_node import ClaimState, Notification, Registry
from leasehold._backends.zookeeper.fences import Fences
from leasehold._backends.zookeeper.keys import LAST_SEQUENCE, NodeData, node_prefix, parse_node
from leasehold._backends.zookeeper.pool import CLOSE_TIMEOUT, MOST_SESSIONS, RESERVED_FOR, Pool
from leasehold._backends.zookeeper.queue import QueueView
from leasehold._backends.zookeeper.wire import Reply
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, ClientClosed
from leasehold.values import MAX_FENCE, Holder, Mode
from tests.stores.zookeeper.zookeeper_scripted import Bench, QuietWorker, stat

if TYPE_CHECKING:
    from leasehold._backends.zookeeper.claim_node import ClaimNode


@pytest.fixture
def bench() -> Bench:
    return Bench()


def answer(node: ClaimNode, then: Any, value: object) -> None:
    """Answer a request about this node."""
    reply = Reply(0.0, None, then, lambda _: None)
    if isinstance(value, Exception):
        reply.set_exception(value)
    else:
        reply.set(value)


# --- answers


def test_a_node_that_was_created_is_known_by_its_name_its_number_and_its_transaction(bench: Bench) -> None:
    session = bench.session()
    node = bench.node(session, state=ClaimState.SENT)
    node.failure = ConnectionLoss()
    answer(node, node.on_created, (f"{node.parent}/{node.prefix}0000000042", stat(czxid=77, version=3)))
    assert (node.state, node.failure) == (ClaimState.PRESENT, None)
    assert (node.name, node.sequence, node.czxid, node.version) == (f"{node.prefix}0000000042", 42, 77, 3)
    assert session.claim_at(node.path) is node
    assert node not in session.unwanted


@pytest.mark.parametrize(("error", "state"), [(ConnectionLoss(), ClaimState.DOUBT), (NoNodeError(), ClaimState.GONE)])
def test_a_creation_without_an_answer_is_a_doubt_and_a_refused_one_is_none(
    bench: Bench, error: Exception, state: ClaimState
) -> None:
    node = bench.node(bench.session(), state=ClaimState.SENT)
    answer(node, node.on_created, error)
    assert (node.state, node.failure) == (state, error)
    assert node.may_exist is (state is ClaimState.DOUBT)


def test_a_node_may_exist_from_its_creation_to_its_deletion_and_while_its_session_lives(bench: Bench) -> None:
    session = bench.session()
    node = bench.node(session)
    expected = {
        ClaimState.NEW: False,
        ClaimState.SENT: True,
        ClaimState.DOUBT: True,
        ClaimState.PRESENT: True,
        ClaimState.GONE: False,
    }
    for state, may in expected.items():
        node.state = state
        assert node.may_exist is may
    session.mark_over()
    node.state = ClaimState.DOUBT
    assert not node.may_exist


@pytest.mark.parametrize(
    ("value", "is_gone", "wakes"),
    [
        (True, True, False),
        (NoNodeError(), True, False),
        (BadVersionError(), False, False),  # its caller reads the node first
        (ConnectionLoss(), False, True),
        (NoAuthError(), False, True),
    ],
)
def test_a_deletion_that_was_not_done_is_tried_again(bench: Bench, value: object, is_gone: bool, wakes: bool) -> None:
    node = bench.node(bench.session(), state=ClaimState.PRESENT)
    node.deleting = True
    before = bench.worker.woken
    answer(node, node.on_deleted, value)
    assert node.deleting is False
    assert (node.state is ClaimState.GONE) is is_gone
    assert (bench.worker.woken > before) is wakes


def test_a_write_that_was_refused_has_the_next_renewal_look_at_the_node(bench: Bench) -> None:
    node = bench.node(bench.session(), state=ClaimState.PRESENT)
    node.is_watched = True
    answer(node, node.on_written, "stat")
    assert node.is_watched
    answer(node, node.on_written, BadVersionError())
    assert not node.is_watched


@pytest.mark.parametrize(
    ("fence", "wanted", "is_known"), [(None, True, False), (7, True, True), (7, False, False), (None, False, False)]
)
def test_only_a_grant_is_known_after_its_node_is_gone(
    bench: Bench, fence: int | None, wanted: bool, is_known: bool
) -> None:
    session = bench.session()
    node = bench.node(session, state=ClaimState.PRESENT)
    node.fence, node.wanted, node.gone = fence, wanted, bench.runtime.signal()
    node.mark_gone()
    assert node.state is ClaimState.GONE
    assert node.gone.is_set()
    assert bool(session.nodes) is is_known


def test_the_data_of_a_node_says_its_holder_its_time_and_its_floor(bench: Bench) -> None:
    node = bench.node(bench.session())
    assert NodeData.decode(node.data(9)) == NodeData(Holder("host", 1), 30.0, 9)
    assert node.floor == 9
    assert NodeData.decode(node.data(11, granted=True)) == NodeData(Holder("host", 1), 30.0, 11, granted=True)
    assert node.floor == 11


# --- the queue as it sees it


def test_notifications_are_applied_in_order(bench: Bench) -> None:
    node = bench.node(bench.session(), state=ClaimState.PRESENT)
    node.listed([parse_node(f"x-{number}-{number:010d}") for number in range(1)])
    ahead = node.queue.ahead[0].name
    node.queue.watched.add(ahead)
    node.on_notification(Notification.CHANGED, ahead)
    node.apply_notifications()
    assert node.queue.to_watch() == [ahead], "it is watched again, and read"
    node.on_suspended()
    node.apply_notifications()
    assert node.queue.is_stale
    node.queue.is_stale = False
    node.on_notification(Notification.GONE, ahead)
    node.apply_notifications()
    assert node.queue.is_turn
    assert not node.notifications


def place(bench: Bench, number: int, session: Any) -> ClaimNode:
    """A claim with this number, all of one name."""
    node = bench.node(session, state=ClaimState.SENT)
    node.adopt(f"{node.prefix}{number:010d}", 100 + number, 0)
    session.created(node)
    return node


def test_a_claim_knows_the_one_of_its_session_that_is_right_before_it(bench: Bench) -> None:
    session = bench.session()
    first, second = place(bench, 1, session), place(bench, 2, session)
    session.mixed.add(first.parent)
    second.listed([parse_node(first.name), parse_node(second.name)])
    assert second.predecessor is first
    assert not session.mixed, "its claims come one after the other again"
    session.mixed.add(first.parent)
    fourth = place(bench, 4, session)
    fourth.listed([parse_node(first.name), parse_node(second.name), parse_node(fourth.name)])
    assert fourth.predecessor is second
    assert session.mixed, "there was another between them"
    first.listed([parse_node(first.name)])
    assert first.predecessor is None


@pytest.mark.parametrize(
    ("change", "follows"),
    [
        ("", True),
        ("another between", False),
        ("no answer", False),
        ("gone", False),
        ("made anew", False),
        ("not listed", False),
    ],
)
def test_a_claim_takes_the_place_behind_another_only_where_nothing_can_be_between(
    bench: Bench, change: str, follows: bool
) -> None:
    session = bench.session()
    last = place(bench, 5, session)
    if change != "not listed":
        last.listed([parse_node("x-0-0000000003"), parse_node(last.name)])
    last.holder = Holder("first", 1)
    node = place(bench, 7 if change == "another between" else 6, session)
    value: Any = stat(czxid=999 if change == "made anew" else last.czxid)
    reply = Reply(0.0, None, None, lambda _: None)
    if change == "no answer":
        reply.set_exception(ConnectionLoss())
    else:
        reply.set(None if change == "gone" else value)
    assert node.follow(last, reply) is follows
    assert (node.parent in session.mixed) is (change == "another between")
    if follows:
        assert node.predecessor is last
        assert [sibling.sequence for sibling in node.queue.ahead] == [3, 5]
        assert (node.holder, node.holder_name) == (last.holder, "x-0-0000000003")
        assert not node.queue.is_stale
        assert not node.queue.is_turn


@pytest.mark.parametrize("has_held", [True, False])
def test_who_held_before_it_left_shows_that_all_before_it_are_gone(bench: Bench, has_held: bool) -> None:
    session = bench.session()
    last, node = place(bench, 5, session), place(bench, 6, session)
    node.listed([parse_node(f"x-{number}-{number:010d}") for number in (2, 3)] + [parse_node(last.name)])
    assert node.predecessor is last
    last.fence = 7 if has_held else None
    node.gone_ahead(last.name)
    assert node.queue.is_turn is has_held
    assert node.queue.is_stale is not has_held
    assert node.predecessor is None


def test_another_that_leaves_is_not_taken_for_the_one_before(bench: Bench) -> None:
    session = bench.session()
    last, node = place(bench, 5, session), place(bench, 6, session)
    node.listed([parse_node("x-0-0000000003"), parse_node(last.name)])
    last.fence = 7
    node.gone_ahead("x-0-0000000003")
    assert node.predecessor is last
    assert not node.queue.is_turn


# --- names and numbers


def test_numbers_are_used_up_some_time_before_the_ensemble_gives_them_twice() -> None:
    """The claims that are under way then still get numbers in order."""
    for number, is_used_up in ((0, False), (LAST_SEQUENCE, False), (LAST_SEQUENCE + 1, True), (2**31 - 60_000, True)):
        assert parse_node(f"x-0-{number:010d}").is_used_up is is_used_up


def test_a_waiter_is_removed_from_the_view_by_its_name() -> None:
    view = QueueView(Mode.EXCLUSIVE, 1)
    siblings = [parse_node(f"x-{number}-{number:010d}") for number in range(3)]
    view.listed(siblings, 9)
    view.watched.add(siblings[2].name)
    assert view.first == siblings[0].name
    assert view.remove("x-9-0000000009") is False
    assert view.remove(siblings[1].name) is True
    assert [sibling.sequence for sibling in view.ahead] == [0, 2]
    view.listed(siblings[:2], 9)
    assert not view.watched, "a node that is gone is not watched"


# --- what the process knows


def test_a_withdrawn_owner_is_refused_until_its_time_is_over() -> None:
    registry = Registry()
    registry.withdraw("owner", 15.0, 10.0)
    assert registry.is_withdrawn("owner", 14.9)
    assert not registry.is_withdrawn("owner", 15.0)
    assert not registry.is_withdrawn("other", 0.0)


def test_owners_whose_time_is_over_are_forgotten_now_and_then() -> None:
    registry = Registry()
    for number in range(255):
        registry.withdraw(str(number), 20.0 if number < 100 else 30.0, 10.0)
    assert len(registry.withdrawn) == 255
    registry.withdraw("one more", 40.0, 20.0)
    assert len(registry.withdrawn) == 156
    assert registry.sweep_at == 312
    assert registry.is_withdrawn("200", 20.0)


def test_a_forked_child_begins_without_the_claims_of_its_parent() -> None:
    mine = claim_node.registry_for("an ensemble")
    assert claim_node.registry_for("an ensemble") is mine
    assert claim_node.registry_for("another") is not mine
    pid = os.fork()
    if pid == 0:  # pragma: no cover - in the child
        code = 1
        try:
            code = 0 if claim_node.registry_for("an ensemble") is not mine and mine in claim_node._OF_THE_PARENT else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert claim_node.registry_for("an ensemble") is mine


# --- the sessions of a client


def pool_of(bench: Bench) -> Pool:
    return Pool(
        bench.options, bench.paths, bench.registry, bench.runtime, open_wire=bench.open_wire, make_worker=QuietWorker
    )


def test_claims_with_nearly_the_same_ttl_share_a_session(bench: Bench) -> None:
    pool = pool_of(bench)
    one = pool.session_for(19.6, "a")
    assert pool.session_for(20.0, "b") is one
    assert pool.session_for(21.0, "c") is not one
    assert one.reserved == dict.fromkeys("ab", bench.runtime.now() + RESERVED_FOR)
    assert one.validity.ttl == 20.0
    assert pool._worker.is_busy


def test_a_session_that_is_over_is_replaced(bench: Bench) -> None:
    pool = pool_of(bench)
    one = pool.session_for(20.0, "a")
    one.mark_over()
    assert pool.session_for(20.0, "a") is not one


def test_a_read_uses_a_session_that_is_connected_or_opens_one(bench: Bench) -> None:
    pool = pool_of(bench)
    first, second = pool.session_for(20.0, "a"), pool.session_for(30.0, "a")
    third = pool.any_session(10.0)
    assert third not in (first, second)
    assert third.reserved
    second.start()
    bench.wire.on_ready(45.0)
    assert pool.any_session(10.0) is second


def test_an_idle_session_makes_room_for_another_and_one_in_use_does_not(bench: Bench) -> None:
    pool = pool_of(bench)
    sessions = [pool.session_for(float(ttl), "a") for ttl in range(10, 10 + MOST_SESSIONS)]
    with pytest.raises(BackendRejected, match=f"{MOST_SESSIONS} different ttls") as refused:
        pool.session_for(50.0, "a")
    assert refused.value.backend == bench.options.label
    sessions[3].reserved.clear()
    new = pool.session_for(50.0, "a")
    assert new not in sessions
    assert [session.is_retired for session in sessions] == [number == 3 for number in range(MOST_SESSIONS)]
    assert list(pool._sessions.values()) == [*sessions[:3], *sessions[4:], new]
    sessions[5].mark_over()
    assert pool.session_for(60.0, "a") not in [*sessions, new]


def test_with_as_many_sessions_as_may_be_one_that_is_over_is_replaced_at_its_place(bench: Bench) -> None:
    pool = pool_of(bench)
    sessions = [pool.session_for(float(ttl), "a") for ttl in range(10, 10 + MOST_SESSIONS)]
    sessions[2].mark_over()
    new = pool.session_for(12.0, "a")
    assert new not in sessions
    assert new.validity.ttl == 12.0
    sessions[0].mark_over()
    assert pool.session_for(9.5, "a") is sessions[1], "the next longer one that lives"


def test_a_closed_pool_opens_nothing(bench: Bench) -> None:
    pool = pool_of(bench)
    run(pool.close())
    with pytest.raises(ClientClosed) as closed:
        pool.session_for(20.0, "a")
    assert closed.value.backend == bench.options.label


def test_a_closed_pool_adds_nothing_to_a_session_that_still_has_a_grant(bench: Bench) -> None:
    pool = pool_of(bench)
    session = pool.session_for(20.0, "a")
    session.reserved.clear()
    bench.node(session, state=ClaimState.PRESENT).fence = 7
    run(pool.close())
    with pytest.raises(ClientClosed):
        pool.session_for(20.0, "b")
    assert session.reserved == {}


def test_closing_gives_waiters_up_and_waits_for_sessions_without_grants(bench: Bench) -> None:
    pool = pool_of(bench)
    session = pool.session_for(20.0, "a")
    waiter = bench.node(session)
    looks: list[float] = []
    look = lambda: looks.append(bench.runtime.now())  # noqa: E731 - a row of steps
    bench.runtime.plan = [look, look, look, pool._worker._sessions.clear]
    run(pool.close())
    assert not waiter.wanted
    assert len(looks) == 3
    assert bench.runtime.plan == []


def test_closing_waits_for_a_bounded_time(bench: Bench) -> None:
    pool = pool_of(bench)
    pool.session_for(20.0, "a")
    started = bench.runtime.now()
    run(pool.close())
    assert bench.runtime.now() - started == pytest.approx(CLOSE_TIMEOUT, abs=0.1)


def test_closing_does_not_wait_for_sessions_with_grants(bench: Bench) -> None:
    pool = pool_of(bench)
    node = bench.node(pool.session_for(20.0, "a"), state=ClaimState.PRESENT)
    node.fence = 7
    run(pool.close())
    assert bench.runtime.waits == []


def test_a_pool_that_is_dropped_lets_its_worker_end(bench: Bench) -> None:
    pool = pool_of(bench)
    worker = pool._worker
    assert not worker._is_closing
    del pool
    assert worker._is_closing


# --- the floor of all fences


class Tree:
    """The nodes of a store, as far as the fences need them."""

    def __init__(self, floor: bytes | None = None) -> None:
        self.floor, self.version, self.made = floor, 0, list[str]()
        self.slower = 0  # how often another client is faster
        self.watched = 0

    def __call__(self, request: Any) -> object:
        kind = type(request).__name__
        self.watched += getattr(request, "watcher", None) is not None
        if kind == "Create2":
            self.made.append(request.path)
            if request.path.endswith("/fence"):
                return self._write(request.data)
            return NodeExistsError() if self.made.count(request.path) > 1 else (request.path, stat())
        if kind == "Sync":
            return request.path
        if kind == "SetData":
            return self._write(request.data) if request.version == self.version else BadVersionError()
        if self.floor is None:
            return None if kind == "Exists" else NoNodeError()
        return stat() if kind == "Exists" else (self.floor, stat(version=self.version))

    def _write(self, data: bytes) -> object:
        if self.slower:
            self.slower -= 1
            self.version += 1
            return NodeExistsError() if self.floor is None else BadVersionError()
        self.floor, self.version = data, self.version + 1
        return "/tree/fence", stat(version=self.version)


def fences_of(bench: Bench, floor: int = 0) -> Any:
    options: Any = SimpleNamespace(acl=bench.options.acl, fence_floor=floor)
    return Fences(options, bench.paths, bench.runtime, Calls(bench.runtime, "the store"))


@pytest.mark.parametrize(("stored", "floor"), [(None, 0), (b"70", 70)])
def test_the_floor_is_read_once_and_watched_also_where_there_is_none(
    bench: Bench, stored: bytes | None, floor: int
) -> None:
    session = bench.session()
    tree = bench.wire.answer = Tree(stored)
    fences = fences_of(bench)
    for _ in range(2):
        assert run(fences.known(session, 1e9)) == floor
    assert bench.wire.kinds == ["GetData", "Exists"]
    assert tree.watched == 2
    assert tree.floor == stored, "looking writes nothing"


@pytest.mark.parametrize(
    ("stored", "asked", "is_raised"), [(None, 500, True), (b"499", 500, True), (b"500", 500, False)]
)
def test_the_floor_of_the_url_is_written_where_it_is_higher(
    bench: Bench, stored: bytes | None, asked: int, is_raised: bool
) -> None:
    session = bench.session()
    tree = bench.wire.answer = Tree(stored)
    floor = run(fences_of(bench, asked).known(session, 1e9))
    assert floor == int(tree.floor or 0) >= asked
    assert (tree.floor != stored) is is_raised


def test_a_floor_is_raised_so_far_that_no_fence_of_before_reaches_it(bench: Bench) -> None:
    """Claims that wait were numbered under the old floor, and may be granted after the ensemble has elected twice."""
    session = bench.session()
    bench.wire.last_zxid = 1000
    tree = bench.wire.answer = Tree(b"50")
    assert run(fences_of(bench)._raise(session, 60, 1e9)) == 50 + 1000 + 2**33
    assert tree.floor == str(50 + 1000 + 2**33).encode()
    assert session.fence_floor is None, "it is read anew"
    assert run(fences_of(bench)._raise(session, 2**50, 1e9)) == 2**50
    for enough in (5, 2**50):
        assert run(fences_of(bench)._raise(session, enough, 1e9)) == 2**50
    assert run(fences_of(bench)._raise(session, MAX_FENCE - 5, 1e9)) == MAX_FENCE - 5
    assert run(fences_of(bench)._raise(session, MAX_FENCE - 2, 1e9)) == MAX_FENCE, "there is no room above it"


def test_the_first_floor_is_written_below_a_root_that_may_not_exist(bench: Bench) -> None:
    session = bench.session()
    bench.paths = type(bench.paths)("/a/b")
    tree = bench.wire.answer = Tree()
    run(fences_of(bench)._raise(session, 60, 1e9))
    assert tree.made == ["/a", "/a/b", "/a/b/fence"]


@pytest.mark.parametrize("stored", [None, b"50"])
def test_a_raise_that_another_client_comes_before_is_tried_again_a_few_times(
    bench: Bench, stored: bytes | None
) -> None:
    session = bench.session()
    tree = bench.wire.answer = Tree(stored)
    tree.slower = 9
    assert run(fences_of(bench)._raise(session, 60, 1e9)) >= 60
    tree.slower = 10
    with pytest.raises(Exception, match="other clients raise the fences") as raised:
        run(fences_of(bench)._raise(session, 2**50, 1e9))
    assert raised.value.backend == "the store"  # type: ignore[attr-defined]


def test_a_floor_that_may_not_be_read_is_an_error_and_not_zero(bench: Bench) -> None:
    session = bench.session()
    bench.wire.answer = lambda request: NoAuthError() if type(request).__name__ == "GetData" else stat()
    with pytest.raises(BackendRejected, match="may not do that"):
        run(fences_of(bench).known(session, 1e9))


def test_the_last_transaction_is_one_that_the_leader_has_confirmed(bench: Bench) -> None:
    session = bench.session()

    def answered(request: Any) -> object:
        bench.wire.last_zxid = 777
        return request.path

    bench.wire.answer = answered
    assert run(fences_of(bench).last_transaction(session)) == 777
    assert bench.wire.kinds == ["Sync"]


def test_the_name_of_a_node_begins_with_the_hash_of_its_owner(bench: Bench) -> None:
    claim = bench.claim(mode=Mode.PERMIT, capacity=3)
    node = bench.node(bench.session(), claim)
    assert node.prefix == node_prefix(claim) == f"p3-{node.id}-"
