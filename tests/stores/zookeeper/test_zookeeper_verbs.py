"""Acquiring and waiting at ZooKeeper, request by request: what is sent, and what each answer leads to. No server."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError, NodeExistsError, NoNodeError
from kazoo.protocol.states import KazooState

from leasehold._backends.zookeeper.acquire import PARENT_TRIES
from leasehold._backends.zookeeper.claim_node import ClaimState
from leasehold._backends.zookeeper.keys import NodeData, node_prefix
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, ModeConflict, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import MAX_FENCE, Grant, Holder, Mode, Refusal
from tests.stores.zookeeper.zookeeper_scripted import NO_ANSWER, PARENT, Script, Store, data, stat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.values import Claim


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.check()


# --- acquiring


def created(number: int = 3, czxid: int = 77) -> Any:
    """The answer to a creation."""
    return lambda request: (f"{request.path}{number:010d}", stat(czxid=czxid))


def named(claim: Claim, number: int = 3) -> str:
    return f"{node_prefix(claim)}{number:010d}"


def test_a_claim_that_is_alone_is_granted_with_two_requests_that_are_sent_at_once(store: Store) -> None:
    claim = store.claim()
    script = store.play(("Create2", created()), ("GetChildren", [named(claim)]))
    answer = run(store.backend.join(claim))
    assert answer == Grant(claim, 77, 20.0)
    creation, listing = script.requests
    assert (creation.path, creation.flags) == (f"{PARENT}/{node_prefix(claim)}", 3)
    assert list(creation.acl) == list(store.options.acl)
    assert NodeData.decode(creation.data) == NodeData(Holder("host", 1), 30.0, 0)
    assert listing.path == PARENT
    assert store.first.reserved == {}
    assert store.first.next_expiry == store.runtime.now() + 20.0


def test_a_creation_confirms_its_session(store: Store) -> None:
    claim = store.claim()
    store.advance(11)
    store.play(("Create2", created()), ("GetChildren", [named(claim)]))
    assert isinstance(run(store.backend.join(claim)), Grant)


def test_a_claim_whose_session_ended_before_it_was_sent_enters_another_one_alone(store: Store) -> None:
    """What it left in the old session would keep that session, and the thread of the worker, for ever."""
    store.first.mark_over()
    old = store.node(store.first)

    def connect() -> None:
        store.worker.visit_all()
        store.wire.answer = Script(
            ("GetData", NoNodeError()),
            ("Exists", None),
            ("Create2", created()),
            ("GetChildren", [named(old.claim)]),
        )
        store.wire.on_ready(30.0)

    store.runtime.plan = [connect]
    assert isinstance(run(store.backend.join(old.claim)), Grant)
    assert store.first.nodes == {}
    assert store.registry.nodes[old.claim.owner] is not old


def test_the_fence_counts_from_the_floor(store: Store) -> None:
    claim = store.claim()
    store.first.fence_floor = 1000
    script = store.play(("Create2", created()), ("GetChildren", [named(claim)]))
    grant = run(store.backend.join(claim))
    assert isinstance(grant, Grant)
    assert grant.fence == 1077
    assert NodeData.decode(script.requests[0].data).floor == 1000


def test_a_floor_that_was_raised_meanwhile_counts_and_is_written_down(store: Store) -> None:
    claim = store.claim()

    def raised(_: object) -> object:
        store.first.fence_floor = 5000
        return [named(claim)]

    script = store.play(("Create2", created()), ("GetChildren", raised), ("SetData", stat(version=1)))
    grant = run(store.backend.join(claim))
    assert isinstance(grant, Grant)
    assert grant.fence == 5077
    write = script.requests[2]
    assert (NodeData.decode(write.data).floor, NodeData.decode(write.data).granted, write.version) == (5000, True, 0)
    assert store.registry.nodes[claim.owner].version == 1


def test_the_same_claim_again_is_the_same_grant_with_a_new_expiry(store: Store) -> None:
    claim = store.claim()
    store.play(("Create2", created()), ("GetChildren", [named(claim)]))
    first = run(store.backend.join(claim))
    store.advance(7)
    store.play(("Sync", "/tree"), ("GetData", (data(), stat())))
    assert run(store.backend.join(claim)) == first
    assert store.registry.nodes[claim.owner].expires == store.runtime.now() + 20.0
    store.play(("Sync", "/tree"), ("GetData", (data("stuck"), stat(version=1))))
    assert run(store.backend.join(claim)) == Refusal(claim.key)
    store.play()
    assert run(store.backend.join(claim)) == Refusal(claim.key)


def test_a_claim_that_was_given_up_is_not_taken_up_again(store: Store) -> None:
    node = store.node(store.first, state=ClaimState.PRESENT)
    store.first.give_up(node)
    store.play()
    assert run(store.backend.join(node.claim)) == Refusal(node.claim.key)
    place = Place(node.claim, node.signal, 1.0, 0)
    assert run(store.backend.turn(place)) == Refusal(node.claim.key)


def test_a_fence_beyond_the_last_is_refused_and_nothing_is_left(store: Store) -> None:
    claim = store.claim()
    store.first.fence_floor = MAX_FENCE - 76
    store.play(("Create2", created()), ("GetChildren", [named(claim)]), ("Delete", True))
    store.runtime.plan = [store.worker.visit_all]
    with pytest.raises(BackendRejected, match="have reached their end"):
        run(store.backend.join(claim))
    assert not store.registry.nodes
    last = store.claim()
    store.play(("Create2", created(czxid=76)), ("GetChildren", [named(last)]))
    grant = run(store.backend.join(last))
    assert isinstance(grant, Grant)
    assert grant.fence == MAX_FENCE


@pytest.mark.parametrize("root", ["there", "missing"])
def test_the_parent_of_a_lock_is_created_with_its_first_claim(store: Store, root: str) -> None:
    claim = store.claim()
    lines: list[tuple[str, object]] = [("Create2", NoNodeError()), ("GetChildren", NoNodeError())]
    if root == "there":
        lines += [("CreateContainer", NodeExistsError())]
    else:
        lines += [
            ("CreateContainer", NoNodeError()),
            ("Create2", NodeExistsError()),
            ("Create2", ("/tree/locks", stat())),
            ("CreateContainer", (PARENT, stat())),
        ]
    script = store.play(*lines, ("Create2", created()), ("GetChildren", [named(claim)]))
    assert isinstance(run(store.backend.join(claim)), Grant)
    made = [(type(request).__name__, request.path, list(request.acl)) for request in script.requests[2:-2]]
    acl = list(store.options.acl)
    container = ("CreateContainer", PARENT, acl)
    parts = [("Create2", "/tree", acl), ("Create2", "/tree/locks", acl)]
    assert made == ([container] if root == "there" else [container, *parts, container])


def test_a_parent_that_is_removed_again_and_again_is_created_a_few_times(store: Store) -> None:
    claim = store.claim()
    round_of = [("Create2", NoNodeError()), ("GetChildren", NoNodeError()), ("CreateContainer", (PARENT, stat()))]
    script = store.play(*(round_of * PARENT_TRIES))
    with pytest.raises(BackendRejected):
        run(store.backend.join(claim))
    assert script.lines == []
    assert not store.registry.nodes


@pytest.mark.parametrize("where", ["the claim", "its parent"])
def test_an_account_that_may_not_create_is_told_so_and_leaves_nothing(store: Store, where: str) -> None:
    lines: list[tuple[str, object]] = [("Create2", NoAuthError()), ("GetChildren", [])]
    if where == "its parent":
        lines = [("Create2", NoNodeError()), ("GetChildren", NoNodeError()), ("CreateContainer", NoAuthError())]
    store.play(*lines)
    with pytest.raises(BackendRejected, match="may not do that"):
        run(store.backend.join(store.claim()))
    assert not [node for node in store.registry.nodes.values() if node.may_exist]


@pytest.mark.parametrize(
    ("ahead", "error"),
    [
        ("p2-other-0000000001", ModeConflict),
        ("__lock__-0000000001", BackendRejected),
    ],
)
def test_a_claim_that_does_not_belong_there_is_withdrawn(store: Store, ahead: str, error: type[Exception]) -> None:
    claim = store.claim()
    store.play(("Create2", created()), ("GetChildren", [ahead, named(claim)]), ("Delete", True))
    store.runtime.plan = [store.worker.visit_all]
    with pytest.raises(error):
        run(store.backend.join(claim))
    assert not store.registry.nodes


@pytest.mark.parametrize(
    ("mode", "capacity", "last"), [(Mode.EXCLUSIVE, 1, "x-b-0000000002"), (Mode.PERMIT, 3, "p3-b-0000000002")]
)
def test_each_kind_ahead_is_compared_and_not_only_the_last(store: Store, mode: Mode, capacity: int, last: str) -> None:
    claim = store.claim(mode=mode, capacity=capacity)
    ahead = ["p2-a-0000000001", last]
    store.play(("Create2", created(8)), ("GetChildren", [*ahead, named(claim, 8)]), ("Delete", True))
    store.runtime.plan = [store.worker.visit_all]
    with pytest.raises(ModeConflict, match="2"):
        run(store.backend.join(claim))


def test_a_claim_whose_number_is_one_of_the_last_is_withdrawn(store: Store) -> None:
    claim, number = store.claim(), 2**31 - 100
    store.play(("Create2", created(number)), ("GetChildren", [named(claim, number)]), ("Delete", True))
    store.runtime.plan = [store.worker.visit_all]
    with pytest.raises(BackendRejected, match="its numbers begin again"):
        run(store.backend.join(claim))


def test_what_an_older_session_left_for_the_same_claim_is_deleted_and_stands_in_the_way_until_then(
    store: Store,
) -> None:
    claim = store.claim()
    script = store.play(
        ("Create2", created(3)),
        ("GetChildren", [named(claim, 1), named(claim, 3), "b-other-0000000002"]),
        ("Delete", True),
        ("GetData", (data(), stat())),
        ("Exists", stat()),
    )
    assert isinstance(run(store.backend.join(claim)), Place)
    assert script.requests[2].path == f"{PARENT}/{named(claim, 1)}"


# --- waiting


def queued(store: Store, *ahead: str, holder: Holder | None = None) -> tuple[Claim, Place, Script]:
    """A claim behind others."""
    claim = store.claim(ttl=20.0)
    first = holder or Holder("first", 9)
    lines: list[tuple[str, object]] = [("Create2", created(8)), ("GetChildren", [*ahead, named(claim, 8)])]
    lines += [("GetData", (data(holder=first), stat()))] * min(2, len(ahead))
    script = store.play(*lines, ("Exists", stat()))
    place = run(store.backend.join(claim))
    assert isinstance(place, Place)
    assert script.lines == []
    return claim, place, script


def test_a_waiter_watches_itself_and_the_one_ahead_and_reads_who_holds(store: Store) -> None:
    claim, place, script = queued(store, "x-a-0000000001", "x-b-0000000002")
    watched, first, mine = script.requests[2:]
    assert (watched.path, watched.watcher is not None) == (f"{PARENT}/x-b-0000000002", True)
    assert (first.path, first.watcher) == (f"{PARENT}/x-a-0000000001", None)
    assert (mine.path, mine.watcher is not None) == (f"{PARENT}/{named(claim, 8)}", True)
    assert (place.ahead, place.holder, place.recheck) == (1, Holder("first", 9), 20.0 * (1 / 3))
    assert place.signal is store.registry.nodes[claim.owner].signal


def event(kind: str, path: str) -> Any:
    return SimpleNamespace(type=kind, path=path)


def test_a_waiter_whose_turn_comes_is_granted_without_asking_and_writes_it_down(store: Store) -> None:
    claim, place, _ = queued(store, "x-a-0000000001")
    store.first.on_event(event("DELETED", f"{PARENT}/x-a-0000000001"))
    assert place.signal.is_set()
    confirmed_at = store.runtime.now()
    store.advance(2)
    script = store.play(("SetData", NO_ANSWER))
    grant = run(store.backend.turn(place))
    assert grant == Grant(claim, 77, 20.0, confirmed_at)
    assert NodeData.decode(script.requests[0].data).granted
    assert script.requests[0].path == f"{PARENT}/{named(claim, 8)}"
    assert store.registry.nodes[claim.owner].expires >= store.runtime.now() + 20.0


def test_a_waiter_whose_session_was_confirmed_long_ago_asks_the_leader(store: Store) -> None:
    _, place, _ = queued(store, "x-a-0000000001")
    store.first.on_event(event("DELETED", f"{PARENT}/x-a-0000000001"))
    store.advance(11)
    script = store.play(("SetData", NO_ANSWER), ("Sync", "/tree"))
    assert isinstance(run(store.backend.turn(place)), Grant)
    assert script.lines == []


def test_a_waiter_that_looks_by_itself_asks_what_happened_before(store: Store) -> None:
    claim, place, _ = queued(store, "x-a-0000000001")
    node = store.registry.nodes[claim.owner]
    store.advance(7)
    store.play(("Sync", "/tree"))
    again = run(store.backend.turn(place))
    assert isinstance(again, Place)
    assert again.signal is place.signal
    assert node.expires == store.runtime.now() + 20.0


def test_a_waiter_whose_view_may_be_old_lists_the_queue_again(store: Store) -> None:
    claim, place, _ = queued(store, "x-a-0000000001", "x-b-0000000002")
    store.first.on_event(event("DELETED", f"{PARENT}/x-b-0000000002"))
    store.play(("GetData", (data(), stat())))
    again = run(store.backend.turn(place))
    assert isinstance(again, Place), "one that is left is simply watched"
    assert again.ahead == 0
    store.wire.on_state(KazooState.SUSPENDED)
    store.wire.on_ready(30.0)
    store.first.fence_floor = 0
    store.play(("GetChildren", [named(claim, 8), "b-note-0000000003"]), ("SetData", NO_ANSWER))
    assert isinstance(run(store.backend.turn(place)), Grant)


@pytest.mark.parametrize("listing", [[], ["x-a-0000000001"], NoNodeError()])
def test_a_waiter_that_is_not_in_the_queue_any_more_joins_again(store: Store, listing: object) -> None:
    _, place, _ = queued(store, "x-a-0000000001")
    store.wire.on_state(KazooState.SUSPENDED)
    store.wire.on_ready(30.0)
    store.play(("GetChildren", listing))
    assert run(store.backend.turn(place)) == Refusal("ns:x")
    assert not store.registry.nodes


def test_a_waiter_whose_own_node_was_deleted_joins_again(store: Store) -> None:
    claim, place, _ = queued(store, "x-a-0000000001")
    store.first.on_event(event("DELETED", f"{PARENT}/{named(claim, 8)}"))
    assert place.signal.is_set()
    store.play()
    assert run(store.backend.turn(place)) == Refusal("ns:x")


def test_a_waiter_whose_session_is_over_joins_again(store: Store) -> None:
    _, place, _ = queued(store, "x-a-0000000001")
    store.first.mark_over()
    assert run(store.backend.turn(place)) == Refusal("ns:x")


def test_who_was_granted_ahead_shows_that_all_before_it_are_gone(store: Store) -> None:
    claim, place, _ = queued(store, "x-a-0000000001", "x-b-0000000002")
    store.first.on_event(event("CHANGED", f"{PARENT}/x-b-0000000002"))
    store.play(("GetData", (data(holder=Holder("second", 2), granted=True), stat(version=1))))
    again = run(store.backend.turn(place))
    assert isinstance(again, Place)
    assert (again.ahead, again.holder) == (0, Holder("second", 2))
    store.first.on_event(event("DELETED", f"{PARENT}/x-b-0000000002"))
    store.play(("SetData", NO_ANSWER))
    assert isinstance(run(store.backend.turn(place)), Grant)
    assert store.registry.nodes[claim.owner].fence == 77


def test_one_that_vanished_before_it_could_be_watched_is_no_longer_ahead(store: Store) -> None:
    claim = store.claim()
    store.play(
        ("Create2", created(8)),
        ("GetChildren", ["x-a-0000000001", named(claim, 8)]),
        ("GetData", NoNodeError()),
        ("Exists", stat()),
        ("SetData", NO_ANSWER),
    )
    assert isinstance(run(store.backend.join(claim)), Grant)


def test_a_waiter_that_joins_again_keeps_its_place_for_a_whole_ttl_more(store: Store) -> None:
    claim, place, _ = queued(store, "x-a-0000000001")
    store.advance(7)
    store.play()
    again = run(store.backend.join(claim))
    assert isinstance(again, Place)
    assert (again.signal, again.ahead) == (place.signal, 0)
    assert store.registry.nodes[claim.owner].expires == store.runtime.now() + 20.0


def test_a_waiter_learns_who_holds_when_that_has_changed_unseen(store: Store) -> None:
    claim, place, _ = queued(store, "x-a-0000000001", "x-b-0000000002", "x-c-0000000003")
    assert (place.holder, place.ahead) == (Holder("first", 9), 2)
    store.wire.on_state(KazooState.SUSPENDED)
    store.wire.on_ready(30.0)
    store.first.fence_floor = 0
    script = store.play(
        ("GetChildren", ["x-b-0000000002", "x-c-0000000003", named(claim, 8)]),
        ("GetData", (data(holder=Holder("third", 3)), stat())),
        ("GetData", (data(holder=Holder("second", 2)), stat())),
        ("Exists", stat()),
    )
    again = run(store.backend.turn(place))
    assert isinstance(again, Place)
    assert (again.holder, again.ahead) == (Holder("second", 2), 1)
    assert [request.path[-1] for request in script.requests[1:3]] == ["3", "2"]


def test_a_holder_that_vanishes_while_it_is_read_is_no_reason_to_list_the_queue_again(store: Store) -> None:
    claim = store.claim()
    store.play(
        ("Create2", created(8)),
        ("GetChildren", ["x-a-0000000001", "x-b-0000000002", "x-c-0000000003", named(claim, 8)]),
        ("GetData", (data(), stat())),
        ("GetData", NoNodeError()),
        ("Exists", stat()),
    )
    place = run(store.backend.join(claim))
    assert isinstance(place, Place)
    assert (place.ahead, place.holder) == (1, None)


def test_a_try_that_has_to_wait_leaves_the_queue_again_and_names_the_holder(store: Store) -> None:
    claim = store.claim()
    store.play(
        ("Create2", created(8)),
        ("GetChildren", ["x-a-0000000001", named(claim, 8)]),
        ("GetData", (data(holder=Holder("first", 9)), stat())),
        ("Exists", stat()),
        ("Delete", True),
    )
    store.runtime.plan = [store.worker.visit_all]
    assert run(store.backend.try_acquire(claim)) == Refusal(claim.key, Holder("first", 9), None, 0)
    assert not store.registry.nodes
    assert not store.registry.withdrawn, "every request of it was answered"


def test_a_grant_that_comes_while_its_client_is_closed_is_given_up(store: Store) -> None:
    claim, woken = store.claim(), list[int]()

    def closing(_: object) -> object:
        store.backend._calls.is_closed = True
        woken.append(store.worker.woken)
        return [named(claim)]

    store.play(("Create2", created()), ("GetChildren", closing))
    with pytest.raises(ClientClosed):
        run(store.backend.join(claim))
    assert not store.registry.nodes[claim.owner].wanted
    assert store.worker.woken > woken[0], "it is deleted soon"


# --- doubts


def test_after_a_doubt_a_node_of_this_session_is_adopted_and_no_other(store: Store) -> None:
    node = store.node(store.first, state=ClaimState.DOUBT)
    mine = [named(node.claim, number) for number in (2, 3)]
    script = store.play(
        ("Sync", PARENT),
        ("GetChildren", [*mine, "x-a-0000000009"]),
        ("Exists", stat(ephemeralOwner=99)),
        ("Exists", stat(czxid=55, version=1)),
        ("Delete", True),
        ("GetData", NoNodeError()),
        ("Exists", stat()),
        ("SetData", NO_ANSWER),
    )
    grant = run(store.backend.join(node.claim))
    assert isinstance(grant, Grant)
    assert grant.fence == 55
    assert script.requests[4].path == f"{PARENT}/{mine[0]}"


@pytest.mark.parametrize("listing", [[], NoNodeError(), ["x-a-0000000009"]])
def test_after_a_doubt_a_node_that_is_not_there_is_created(store: Store, listing: object) -> None:
    node = store.node(store.first, state=ClaimState.DOUBT)
    store.play(
        ("Sync", PARENT), ("GetChildren", listing), ("Create2", created(3)), ("GetChildren", [named(node.claim)])
    )
    assert isinstance(run(store.backend.join(node.claim)), Grant)


@pytest.mark.parametrize("is_created", [True, False])
def test_a_creation_that_is_not_answered_yet_is_waited_for_and_never_sent_twice(store: Store, is_created: bool) -> None:
    """The answer to a later request comes behind that of the creation: then it is known what became of it."""
    claim = store.claim()
    store.play(("Create2", NO_ANSWER), ("GetChildren", NO_ANSWER))
    with pytest.raises(OutcomeUnknown):
        run(store.backend.join(claim))
    (creation, creation_reply), (_, listing_reply) = store.wire.sent[-2:]
    node = store.registry.nodes[claim.owner]
    assert node.state is ClaimState.SENT

    def probed(_: object) -> str:
        if is_created:
            creation_reply.set((f"{creation.path}0000000003", stat(czxid=77)))
        else:
            creation_reply.set_exception(ConnectionLoss())
        listing_reply.set([])
        return "/tree"

    lines: list[tuple[str, object]] = [("Sync", probed)]
    if not is_created:
        lines += [("Sync", PARENT), ("GetChildren", []), ("Create2", created(3))]
    store.play(*lines, ("GetChildren", [named(claim)]))
    grant = run(store.backend.join(claim))
    assert isinstance(grant, Grant)
    assert grant.fence == 77
    assert store.registry.nodes[claim.owner] is node


def test_a_doubt_that_cannot_be_resolved_stays_one(store: Store) -> None:
    node = store.node(store.first, state=ClaimState.DOUBT)
    store.play(("Sync", PARENT), ("GetChildren", ConnectionLoss()))
    with pytest.raises(OutcomeUnknown):
        run(store.backend.join(node.claim))
    assert node.state is ClaimState.DOUBT


def test_a_claim_of_which_only_reads_were_sent_is_unavailable_and_no_doubt(store: Store) -> None:
    store.first.fence_floor = None
    store.play(("GetData", NO_ANSWER), ("Exists", NO_ANSWER))
    with pytest.raises(BackendUnavailable, match="did not answer in time") as unavailable:
        run(store.backend.join(store.claim()))
    assert unavailable.value.backend == store.options.label


def test_a_doubt_stays_one_where_there_is_no_connection_to_resolve_it(store: Store) -> None:
    node = store.node(store.first, state=ClaimState.DOUBT)
    store.wire.on_state(KazooState.SUSPENDED)
    with pytest.raises(OutcomeUnknown, match="could be reached") as unknown:
        run(store.backend.join(node.claim))
    assert unknown.value.backend == store.options.label
    assert node.state is ClaimState.DOUBT


def test_a_call_ends_when_its_caller_has_no_use_for_it(store: Store) -> None:
    started = store.runtime.now()
    with pytest.raises(OutcomeUnknown):
        run(store.backend.join(store.claim(), started + 0.25))
    assert store.runtime.now() == started + 0.25
    with pytest.raises(OutcomeUnknown):
        run(store.backend.join(store.claim(), math.inf))
    assert store.runtime.now() == started + 0.25 + 10.0 / 2


def test_a_release_and_a_turn_end_when_their_caller_has_no_use_for_them(store: Store) -> None:
    _, place, _ = queued(store, "x-a-0000000001")
    store.play(("Sync", NO_ANSWER), ("Delete", NO_ANSWER))
    started = store.runtime.now()
    with pytest.raises(OutcomeUnknown):
        run(store.backend.turn(place, started + 0.25))
    assert store.runtime.now() == started + 0.25
    grant, _ = store.held("ns:other")
    with pytest.raises(OutcomeUnknown):
        run(store.backend.release(grant, started + 0.75))
    assert store.runtime.now() == started + 0.75
