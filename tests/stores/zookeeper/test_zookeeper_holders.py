"""The verbs of holders and operators of ZooKeeper, request by request: released, withdrawn, renewed, seen, broken."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.exceptions import BadVersionError, ConnectionLoss, NoAuthError, NoNodeError
from kazoo.protocol.states import KazooState

from leasehold._backends.zookeeper.claim_node import ClaimState
from leasehold._backends.zookeeper.inspect import BATCH
from leasehold._backends.zookeeper.keys import NodeData
from leasehold._backends.zookeeper.session import UNCONFIRMED
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.values import Grant, Holder, Loss, LossReason, Refusal
from tests.stores.zookeeper.zookeeper_scripted import NO_ANSWER, PARENT, Script, Store, data, stat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold._backends.zookeeper.claim_node import ClaimNode

BROKEN = Loss(LossReason.BROKEN, "stuck")
TAKEN = Loss(LossReason.TAKEN, "its ZooKeeper node is gone")


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.check()


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
        (NO_ANSWER, None, False),
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


@pytest.mark.parametrize("was_broken", [True, False])
def test_a_release_of_what_was_gone_before_looks_for_the_reason(store: Store, was_broken: bool) -> None:
    grant, node = store.held()
    node.mark_gone()
    lines: list[tuple[str, object]] = [("GetChildren", [note_of(node)] * was_broken)]
    script = store.play(*lines, *([("GetData", (data("stuck"), stat()))] if was_broken else []))
    assert run(store.backend.release(grant)) == (BROKEN if was_broken else False)
    assert script.requests[0].path == PARENT
    assert not store.registry.nodes


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


@pytest.mark.parametrize("state", [ClaimState.NEW, ClaimState.GONE])
def test_a_claim_without_a_node_leaves_at_once(store: Store, state: ClaimState) -> None:
    node = store.node(store.first, state=state)
    run(store.backend.withdraw(node.claim))
    assert store.runtime.waits == []
    assert not store.first.nodes
    assert not store.first.unwanted


def test_a_withdrawal_waits_until_the_worker_has_deleted_the_node(store: Store) -> None:
    node = store.node(store.first, state=ClaimState.PRESENT)
    store.play(("Delete", True))
    store.runtime.plan = [store.worker.visit_all]
    woken = store.worker.woken
    run(store.backend.withdraw(node.claim, store.runtime.now() + 1.5, doubt=False))
    assert store.worker.woken > woken
    assert store.runtime.waits == [store.runtime.now() + 1.5]
    assert not store.first.nodes


def test_a_withdrawal_that_is_not_confirmed_is_unknown_and_repeated(store: Store) -> None:
    node = store.node(store.first, state=ClaimState.PRESENT)
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
def test_a_node_that_was_written_into_is_read(store: Store, broken: str | None, answers: Any) -> None:
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


@pytest.mark.parametrize("others", [0, 1])
def test_a_grant_whose_session_ends_during_its_renewal_is_lost_and_the_renewal_has_not_failed(
    store: Store, others: int
) -> None:
    ended, _ = store.held("ns:a")
    kept = [store.held("ns:b", store.connected(30.0))[0] for _ in range(others)]

    def ends(_: object) -> object:
        store.first.mark_over()
        return ConnectionLoss()

    store.play(("Exists", NO_ANSWER), ("Sync", ends))
    for wire in store.wires[1:]:
        wire.answer = Script(("Exists", stat()), ("Sync", PARENT))
    loss = Loss(LossReason.SESSION_ENDED, "the ensemble ended its ZooKeeper session")
    assert run(store.backend.renew([ended, *kept])) == [loss, *kept_with(kept, 30.0)]


def kept_with(grants: list[Grant], ttl: float) -> list[Grant]:
    """As they are renewed on sessions with this ttl."""
    return [Grant(grant.claim, grant.fence, ttl) for grant in grants]


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
    store.play(("Exists", NO_ANSWER), ("Sync", NO_ANSWER))
    store.wires[1].answer = Script(("Exists", stat()), ("Sync", PARENT))
    unconfirmed, confirmed = run(store.backend.renew([silent, loud]))
    assert confirmed == Grant(loud.claim, loud.fence, 30.0)
    assert unconfirmed == Grant(silent.claim, silent.fence, 16.0), "for as long as before"
    store.advance(20)
    store.play(("Exists", NO_ANSWER), ("Sync", NO_ANSWER))
    store.wires[1].answer = Script(("Sync", PARENT))
    assert run(store.backend.renew([silent, loud]))[0] == UNCONFIRMED


def test_without_a_connection_the_session_is_not_confirmed(store: Store) -> None:
    grant, _ = store.held()
    store.wire.on_state(KazooState.SUSPENDED)
    with pytest.raises(BackendUnavailable, match="there is no connection"):
        run(store.backend.renew([grant]))


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
        ([], [], 99, 99),
        (["x-a-0000000001"], [], 60, 99),
        (["x-a-0000000001", "x-b-0000000002", "x-c-0000000003"], [stat(czxid=70)], 60, 69),
        (["x-a-0000000001", "x-b-0000000002"], [stat(czxid=61)], 60, 60),
        (["x-a-0000000001", "x-b-0000000002"], [stat(czxid=150)], 60, 99),
        (["x-a-0000000001", "x-b-0000000002", "x-c-0000000003"], [None, stat(czxid=80)], 60, 79),
    ],
)
def test_a_fence_need_not_be_raised_where_all_who_can_be_granted_have_higher_ones(
    store: Store, names: list[str], stats: list[object], fence: int, answer: int
) -> None:
    store.wires[0].last_zxid = 99
    store.play(("Sync", "/tree"), ("Sync", PARENT), ("GetChildren", names), *(("Exists", found) for found in stats))
    assert run(store.backend.raise_fence("ns:x", fence)) == answer
