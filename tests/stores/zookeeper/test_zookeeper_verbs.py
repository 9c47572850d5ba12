"""Each verb of ZooKeeper, request by request: what is sent in which order, and what each answer leads to. No server."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.exceptions import BadVersionError, ConnectionLoss, NoAuthError, NodeExistsError, NoNodeError
from kazoo.protocol.states import KazooState

from leasehold._backends.zookeeper.acquire import PARENT_TRIES
from leasehold._backends.zookeeper.backend import ZooKeeperBackend
from leasehold._backends.zookeeper.claim_node import Stage
from leasehold._backends.zookeeper.inspect import BATCH
from leasehold._backends.zookeeper.keys import NodeData, node_prefix
from leasehold._backends.zookeeper.session import UNCONFIRMED
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, ModeConflict, OutcomeUnknown
from leasehold.spi import Place
from leasehold.values import MAX_FENCE, Grant, Holder, Loss, LossReason, Mode, Refusal
from tests.stores.zookeeper.zookeeper_scripted import NO_ANSWER, Bench, QuietWorker, Script, stat

if TYPE_CHECKING:
    from leasehold._backends.zookeeper.claim_node import ClaimNode
    from leasehold._backends.zookeeper.session import Session
    from leasehold.values import Claim

PARENT = "/tree/locks/ns%3Ax"
BROKEN = Loss(LossReason.BROKEN, "stuck")
TAKEN = Loss(LossReason.TAKEN, "its ZooKeeper node is gone")


class Store(Bench):
    """A backend with one session that is connected, and knows that the fences were never raised."""

    def __init__(self) -> None:
        super().__init__()
        self.backend = ZooKeeperBackend(
            self.options,
            self.runtime,
            registry=self.registry,
            open_wire=self.open_wire,
            make_worker=QuietWorker,  # type: ignore[arg-type]
        )
        self.worker = self.backend._pool._worker  # type: ignore[assignment]
        self.first = self.connected(20.0)

    def connected(self, ttl: float) -> Session:
        session = self.backend._pool.session_for(ttl, "")
        session.start()
        self.wire.on_ready(self.wire.timeout)
        session.validity.answered(self.runtime.now())
        session.fence_floor = 0
        session.reserved.clear()
        return session

    def play(self, *lines: tuple[str, object]) -> Script:
        script = self.wires[0].answer = Script(*lines)
        return script

    def held(self, key: str = "ns:x", session: Session | None = None) -> tuple[Grant, ClaimNode]:
        """A grant whose node is there."""
        node = self.node(session or self.first, self.claim(key), Stage.PRESENT)
        node.fence = 40 + node.sequence
        return Grant(node.claim, node.fence, 20.0), node


@pytest.fixture
def store() -> Store:
    return Store()


def data(broken: str | None = None, *, holder: Holder | None = None, granted: bool = False) -> bytes:
    return NodeData(holder or Holder("host", 1), 30.0, 0, granted=granted, broken=broken).encode()


def note_of(node: ClaimNode, number: int = 9) -> str:
    return f"b-{node.id}-{number:010d}"


# --- release


def test_a_release_is_one_deletion_of_what_we_wrote(store: Store) -> None:
    grant, node = store.held()
    node.version = 3
    script = store.play(("Delete", True))
    assert run(store.backend.release(grant)) is True
    assert (script.requests[0].path, script.requests[0].version) == (node.path, 3)
    assert not store.first.nodes
    assert not store.first.unwanted
    assert run(store.backend.release(grant)) is False, "nothing is sent for it any more"


def test_a_grant_of_another_fence_is_not_released(store: Store) -> None:
    grant, node = store.held()
    store.play()
    assert run(store.backend.release(Grant(grant.claim, grant.fence + 1, 20.0))) is False
    assert node.wanted


@pytest.mark.parametrize(("broken", "answer"), [(None, True), ("stuck", BROKEN)])
def test_a_node_that_another_client_wrote_into_is_read_and_deleted_all_the_same(
    store: Store, broken: str | None, answer: object
) -> None:
    grant, node = store.held()
    script = store.play(("Delete", BadVersionError()), ("GetData", (data(broken), stat(version=4))), ("Delete", True))
    assert run(store.backend.release(grant)) == answer
    assert [request.path for request in script.requests] == [node.path] * 3
    assert script.requests[2].version == -1
    assert not store.first.nodes


@pytest.mark.parametrize(
    ("names", "note", "answer"),
    [
        ([], None, False),
        (["x-other-0000000001", "b-other-0000000002"], None, False),
        (["mine"], (data("stuck"), stat()), BROKEN),
        (["mine"], NoNodeError(), False),
        (["mine"], NoAuthError(), False),
        (NoNodeError(), None, False),
        (NoAuthError(), None, False),
    ],
)
def test_a_grant_whose_node_is_gone_looks_for_the_reason(store: Store, names: Any, note: Any, answer: object) -> None:
    grant, node = store.held()
    listed = [note_of(node) if name == "mine" else name for name in names] if isinstance(names, list) else names
    lines = [("Delete", NoNodeError()), ("GetChildren", listed)]
    script = store.play(*lines, *([("GetData", note)] if note is not None else []))
    assert run(store.backend.release(grant)) == answer
    assert script.lines == []
    if note is not None:
        assert script.requests[-1].path == f"{PARENT}/{note_of(node)}"
    assert not store.first.nodes


def test_the_reason_of_a_break_that_a_renewal_has_found_is_told_by_the_release_without_a_request(store: Store) -> None:
    grant, node = store.held()
    node.broken = "stuck"
    node.mark_gone()
    store.play()
    assert run(store.backend.release(grant)) == BROKEN
    assert run(store.backend.release(grant)) is False


def test_a_release_without_an_answer_is_unknown_and_is_gone_on_with(store: Store) -> None:
    grant, node = store.held()
    store.play(("Delete", NO_ANSWER))
    with pytest.raises(OutcomeUnknown):
        run(store.backend.release(grant))
    assert node in store.first.unwanted
    assert not node.wanted


def test_a_release_whose_session_ends_before_its_answer_freed_nothing_itself(store: Store) -> None:
    grant, _ = store.held()
    store.play(("Delete", NO_ANSWER))
    store.runtime.plan = [store.first.mark_over]
    assert run(store.backend.release(grant)) is False


def test_a_release_that_could_not_be_sent_is_left_to_the_worker(store: Store) -> None:
    grant, node = store.held()

    def lose(_: object) -> object:
        raise BackendUnavailable("lost")

    store.play(("Delete", lose))
    with pytest.raises(BackendUnavailable):
        run(store.backend.release(grant))
    assert node.deleting is False
    assert node in store.first.unwanted


def test_a_release_that_is_refused_says_so(store: Store) -> None:
    grant, _ = store.held()
    store.play(("Delete", NoAuthError()))
    with pytest.raises(BackendRejected, match="may not do that"):
        run(store.backend.release(grant))


def test_a_node_that_vanished_while_it_was_read_is_released_by_nobody(store: Store) -> None:
    grant, _ = store.held()
    store.play(
        ("Delete", BadVersionError()), ("GetData", NoNodeError()), ("Delete", NoNodeError()), ("GetChildren", [])
    )
    assert run(store.backend.release(grant)) is False


# --- withdrawal


@pytest.mark.parametrize("doubt", [True, False])
def test_a_withdrawal_in_doubt_refuses_a_late_copy_for_a_ttl(store: Store, doubt: bool) -> None:
    claim = store.claim()
    store.play()
    run(store.backend.withdraw(claim, doubt=doubt))
    assert store.registry.withdrawn == ({claim.owner: store.runtime.now() + 20.0} if doubt else {})
    if doubt:
        assert run(store.backend.join(claim)) == Refusal(claim.key)
        assert run(store.backend.try_acquire(claim)) == Refusal(claim.key)


@pytest.mark.parametrize("stage", [Stage.NEW, Stage.GONE])
def test_a_claim_without_a_node_leaves_at_once(store: Store, stage: Stage) -> None:
    node = store.node(store.first, stage=stage)
    run(store.backend.withdraw(node.claim))
    assert store.runtime.waits == []
    assert not store.first.nodes
    assert not store.first.unwanted


def test_a_withdrawal_waits_until_the_worker_has_deleted_the_node(store: Store) -> None:
    node = store.node(store.first, stage=Stage.PRESENT)
    store.play(("Delete", True))
    store.runtime.plan = [store.worker.visit_all]
    woken = store.worker.woken
    run(store.backend.withdraw(node.claim, store.runtime.now() + 1.5, doubt=False))
    assert store.worker.woken > woken
    assert store.runtime.waits == [store.runtime.now() + 1.5]
    assert not store.first.nodes


def test_a_withdrawal_that_is_not_confirmed_is_unknown_and_repeated(store: Store) -> None:
    node = store.node(store.first, stage=Stage.PRESENT)
    with pytest.raises(OutcomeUnknown, match="it is repeated") as unknown:
        run(store.backend.withdraw(node.claim))
    assert unknown.value.backend == store.options.label
    assert node in store.first.unwanted


# --- renewal


def test_a_node_that_is_not_watched_yet_is_looked_at_ahead_of_the_probe(store: Store) -> None:
    grant, node = store.held()
    store.advance(5)
    script = store.play(("Exists", stat()), ("Sync", PARENT))
    (answer,) = run(store.backend.renew([grant]))
    assert answer == Grant(grant.claim, grant.fence, 20.0)
    assert script.requests[0].path == node.path
    assert script.requests[0].watcher is not None
    assert node.is_watched
    assert node.expires == store.runtime.now() + 20.0
    store.play(("Sync", PARENT))
    run(store.backend.renew([grant]))


def test_one_probe_confirms_all_grants_of_a_session(store: Store) -> None:
    grants = [store.held(f"ns:{number}") for number in range(3)]
    for _, node in grants:
        node.is_watched = True
    store.play(("Sync", PARENT))
    answers = run(store.backend.renew([grant for grant, _ in grants]))
    assert [answer.fence for answer in answers if isinstance(answer, Grant)] == [grant.fence for grant, _ in grants]


@pytest.mark.parametrize(("note", "answer"), [(True, BROKEN), (False, TAKEN)])
def test_a_grant_whose_node_is_gone_is_lost_and_says_why(store: Store, note: bool, answer: Loss) -> None:
    grant, node = store.held()
    lines: list[tuple[str, object]] = [("Exists", None), ("Sync", PARENT), ("GetChildren", [note_of(node)] * note)]
    store.play(*lines, *([("GetData", (data("stuck"), stat()))] if note else []))
    assert run(store.backend.renew([grant])) == [answer]
    assert bool(store.first.nodes) is note, "its release gets the same answer"


@pytest.mark.parametrize(("broken", "answers"), [("stuck", [BROKEN]), (None, None)])
def test_a_node_that_was_written_into_is_read(store: Store, broken: str | None, answers: list[Loss] | None) -> None:
    grant, node = store.held()
    store.play(("Exists", stat(version=2)), ("Sync", PARENT), ("GetData", (data(broken), stat(version=2))))
    found = run(store.backend.renew([grant]))
    assert found == (answers or [Grant(grant.claim, grant.fence, 20.0)])
    assert node.version == 2


def test_a_look_that_is_refused_is_an_error_and_no_loss(store: Store) -> None:
    grant, node = store.held()
    store.play(("Exists", NoAuthError()), ("Sync", PARENT))
    with pytest.raises(BackendRejected):
        run(store.backend.renew([grant]))
    assert node.wanted


@pytest.mark.parametrize("change", ["unknown", "another fence", "given up"])
def test_what_is_not_ours_is_not_renewed(store: Store, change: str) -> None:
    grant, node = store.held()
    if change == "unknown":
        store.first.forget(node)
        store.play()
    elif change == "another fence":
        grant = Grant(grant.claim, grant.fence + 1, 20.0)
        store.play()
    else:
        store.first.give_up(node)
        store.play(("Exists", stat()), ("Sync", PARENT))
    assert run(store.backend.renew([grant])) == [TAKEN]


def test_grants_of_a_session_that_is_over_are_lost_as_it_was(store: Store) -> None:
    (first, _), (second, _) = store.held("ns:a"), store.held("ns:b")
    store.first.relinquish()
    store.play()
    assert run(store.backend.renew([first, second])) == [UNCONFIRMED] * 2
    assert not store.registry.nodes


def test_when_no_session_answers_the_renewal_fails_within_five_seconds(store: Store) -> None:
    other = store.connected(30.0)
    grants = [store.held("ns:a")[0], store.held("ns:b", other)[0]]
    started = store.runtime.now()
    with pytest.raises(OutcomeUnknown):
        run(store.backend.renew(grants))
    assert store.runtime.now() == started + 5.0
    with pytest.raises(OutcomeUnknown):
        run(store.backend.renew(grants, store.runtime.now() + 0.5))
    assert store.runtime.now() == started + 5.5


def test_a_session_that_does_not_answer_does_not_keep_the_others_from_being_renewed(store: Store) -> None:
    other = store.connected(30.0)
    silent, loud = store.held("ns:a")[0], store.held("ns:b", other)[0]
    store.advance(4)
    store.wires[1].answer = Script(("Exists", stat()), ("Sync", PARENT))
    store.play(("Exists", NO_ANSWER), ("Sync", NO_ANSWER))
    unconfirmed, confirmed = run(store.backend.renew([silent, loud]))
    assert confirmed == Grant(loud.claim, loud.fence, 30.0)
    assert unconfirmed == Grant(silent.claim, silent.fence, 16.0), "for as long as before"
    store.advance(20)
    store.wires[1].answer = Script(("Sync", PARENT))
    store.play(("Exists", NO_ANSWER), ("Sync", NO_ANSWER))
    assert run(store.backend.renew([silent, loud]))[0] == UNCONFIRMED


def test_without_a_connection_the_session_is_not_confirmed(store: Store) -> None:
    grant, _ = store.held()
    store.wire.on_state(KazooState.SUSPENDED)
    with pytest.raises(BackendUnavailable, match="there is no connection"):
        run(store.backend.renew([grant]))


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
    node = store.node(store.first, stage=Stage.PRESENT)
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
    store.play(("GetChildren", [named(claim, 8), "b-note-0000000009"]), ("SetData", NO_ANSWER))
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
    claim = store.claim()

    def closing(_: object) -> object:
        store.backend._calls.is_closed = True
        return [named(claim)]

    store.play(("Create2", created()), ("GetChildren", closing))
    woken = store.worker.woken
    with pytest.raises(ClientClosed):
        run(store.backend.join(claim))
    assert not store.registry.nodes[claim.owner].wanted
    assert store.worker.woken > woken


# --- doubts


def test_after_a_doubt_a_node_of_this_session_is_adopted_and_no_other(store: Store) -> None:
    node = store.node(store.first, stage=Stage.DOUBT)
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
    node = store.node(store.first, stage=Stage.DOUBT)
    store.play(
        ("Sync", PARENT), ("GetChildren", listing), ("Create2", created(3)), ("GetChildren", [named(node.claim)])
    )
    assert isinstance(run(store.backend.join(node.claim)), Grant)


def test_a_doubt_that_cannot_be_resolved_stays_one(store: Store) -> None:
    node = store.node(store.first, stage=Stage.DOUBT)
    store.play(("Sync", PARENT), ("GetChildren", ConnectionLoss()))
    with pytest.raises(OutcomeUnknown):
        run(store.backend.join(node.claim))
    assert node.stage is Stage.DOUBT


# --- operators


def test_many_nodes_are_read_in_few_round_trips(store: Store) -> None:
    names = [f"x-{number}-{number:010d}" for number in range(BATCH + 1)]
    pending: list[int] = []

    def read(_: object) -> object:
        pending.append(1)
        return data(), stat(ctime=0, mtime=0)

    store.play(("Sync", PARENT), ("GetChildren", [*names, "b-x-0000009999"]), *([("GetData", read)] * (BATCH + 1)))
    state = run(store.backend.inspect("ns:x"))
    assert state is not None
    assert (len(state.holdings), len(state.waiting), len(pending)) == (1, BATCH, BATCH + 1)


def test_nodes_that_vanish_while_they_are_read_are_left_out(store: Store) -> None:
    present = data(holder=Holder("second", 2)), stat(ctime=0, mtime=0)
    lines = [("Sync", PARENT), ("GetChildren", ["x-b-0000000002", "x-a-0000000001"])]
    script = store.play(*lines, ("GetData", NoNodeError()), ("GetData", present))
    state = run(store.backend.inspect("ns:x"))
    assert state is not None
    assert [holding.holder for holding in state.holdings] == [Holder("second", 2)]
    assert state.waiting == ()
    assert script.requests[2].path.endswith("x-a-0000000001"), "in order of their numbers"
    store.play(*lines, ("GetData", NoNodeError()), ("GetData", NoNodeError()))
    assert run(store.backend.inspect("ns:x")) is None
    store.play(("Sync", PARENT), ("GetChildren", NoNodeError()))
    assert run(store.backend.inspect("ns:x")) is None


def test_locks_are_listed_by_their_names_in_order(store: Store) -> None:
    node = data(), stat(ctime=0, mtime=0)
    script = store.play(
        ("Sync", "/tree/locks"),
        ("GetChildren", ["ns%3Ab", "other%3Aa", "ns%3Aa%2F%25", "ns%3Ac"]),
        ("GetChildren", ["x-a-0000000001"]),
        ("GetChildren", ["x-a-0000000001"]),
        ("GetChildren", NoNodeError()),
        ("GetData", node),
        ("GetData", node),
    )
    assert [state.name for state in run(store.backend.list("ns:"))] == ["ns:a/%", "ns:b"]
    assert script.requests[2].path == "/tree/locks/ns%3Aa%2F%25"


def test_a_read_without_an_answer_changed_nothing(store: Store) -> None:
    store.play(("Sync", NO_ANSWER), ("GetChildren", NO_ANSWER))
    with pytest.raises(BackendUnavailable, match="did not answer in time") as unavailable:
        run(store.backend.inspect("ns:x"))
    assert unavailable.value.backend == store.options.label
    store.play(("Sync", PARENT), ("GetChildren", NoAuthError()))
    with pytest.raises(BackendRejected):
        run(store.backend.inspect("ns:x"))


def breaking(store: Store, *more: tuple[str, object], floor: int = 0) -> Script:
    found = replace(NodeData.decode(data()), floor=floor).encode()
    return store.play(
        ("Sync", PARENT),
        ("GetChildren", ["x-a-0000000001", "x-b-0000000002"]),
        ("GetData", (found, stat(czxid=50, version=4))),
        *more,
    )


@pytest.mark.parametrize(
    ("written", "answer"), [(stat(version=5), True), (BadVersionError(), False), (NoNodeError(), False)]
)
def test_a_break_is_written_into_the_node_as_it_was_read(store: Store, written: object, answer: bool) -> None:
    script = breaking(store, ("SetData", written), floor=1000)
    assert run(store.backend.break_("ns:x", 1050, "stuck", now=False)) is answer
    write = script.requests[-1]
    assert (write.path, write.version) == (f"{PARENT}/x-a-0000000001", 4)
    assert NodeData.decode(write.data) == NodeData(Holder("host", 1), 30.0, 1000, broken="stuck")


def test_only_a_holder_with_this_very_fence_is_broken(store: Store) -> None:
    breaking(store)
    assert run(store.backend.break_("ns:x", 51, "stuck", now=False)) is False
    breaking(store, ("SetData", NoAuthError()))
    with pytest.raises(BackendRejected):
        run(store.backend.break_("ns:x", 50, "stuck", now=False))


@pytest.mark.parametrize(("deleted", "answer"), [(True, True), (NoNodeError(), False)])
def test_a_break_at_once_leaves_a_note_before_the_node_is_deleted(store: Store, deleted: object, answer: bool) -> None:
    note = f"{PARENT}/b-a-0000000003"
    script = breaking(store, ("Create2", (note, stat())), ("Delete", deleted))
    assert run(store.backend.break_("ns:x", 50, "stuck", now=True)) is answer
    creation, deletion = script.requests[-2:]
    assert (creation.path, creation.flags) == (f"{PARENT}/b-a-", 3)
    assert NodeData.decode(creation.data).broken == "stuck"
    assert (deletion.path, deletion.version) == (f"{PARENT}/x-a-0000000001", -1)
    until = store.runtime.now() + 30.0
    assert store.first.break_notes == {note: until}, "in a session as long as that of the holder"
    assert store.first.next_expiry == until
    assert store.first.reserved == {}


@pytest.mark.parametrize(
    ("names", "stats", "fence", "answer"),
    [
        ([], [], 60, 99),
        (["x-a-0000000001"], [], 60, 99),
        (["x-a-0000000001", "x-b-0000000002", "x-c-0000000003"], [stat(czxid=70)], 60, 69),
        (["x-a-0000000001", "x-b-0000000002", "x-c-0000000003"], [None, stat(czxid=80)], 60, 79),
    ],
)
def test_a_fence_need_not_be_raised_where_all_who_can_be_granted_have_higher_ones(
    store: Store, names: list[str], stats: list[object], fence: int, answer: int
) -> None:
    store.wires[0].last_zxid = 99
    store.play(("Sync", "/tree"), ("Sync", PARENT), ("GetChildren", names), *(("Exists", found) for found in stats))
    assert run(store.backend.raise_fence("ns:x", fence)) == answer


def test_a_call_ends_when_its_caller_has_no_use_for_it(store: Store) -> None:
    started = store.runtime.now()
    with pytest.raises(OutcomeUnknown):
        run(store.backend.join(store.claim(), started + 0.25))
    assert store.runtime.now() == started + 0.25
    with pytest.raises(OutcomeUnknown):
        run(store.backend.join(store.claim(), math.inf))
    assert store.runtime.now() == started + 0.25 + 10.0 / 2
