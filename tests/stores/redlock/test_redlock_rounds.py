"""What the store makes of the nodes' answers, round by round, and what it sends after them; without nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from leasehold._backends.redlock import doctor
from leasehold._backends.redlock.backend import RENEWAL_EACH, ROUNDS, UNHURRIED, RedlockBackend
from leasehold._backends.redlock.calls import Call, Calls
from leasehold._backends.redlock.nodes import Poll
from leasehold._backends.redlock.options import Options
from leasehold._backends.redlock.wire import SILENCE_LIMIT
from leasehold._runtimes.threads import run
from leasehold.errors import (
    BackendRejected,
    BackendUnavailable,
    ClientClosed,
    ConfigurationError,
    OutcomeUnknown,
)
from leasehold.values import Claim, Grant, Holder, Loss, LossReason, Mode, Refusal

TTL = 10.0
START = 1_000_000_000  # the number that the clocks of the nodes propose at the beginning
SECOND = 1_000_000
DOWN = BackendUnavailable("n is down")
LOST = OutcomeUnknown("n did not answer")


class Sent:
    """The request to one node."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.after: list[Call] = []
        self.is_finished = False

    def send_after(self, call: Call) -> None:
        assert not self.is_finished, "the connection may be another's"
        self.after.append(call)

    def finish(self) -> None:
        self.is_finished = True


class ScriptedNode:
    """What the store knows of a node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offset: float | None = None
        self.is_late = False
        self.later: list[Call] = []

    def __str__(self) -> str:
        return self.name

    def may_receive_late(self, ttl: float) -> bool:
        assert ttl == TTL
        return self.is_late

    def deliver_later(self, call: Call) -> None:
        self.later.append(call)


class ScriptedNodes:
    """Nodes that give these answers, one list for each round; also the runtime, whose time passes on command."""

    def __init__(self, count: int = 5) -> None:
        self.label = "redlock://x"
        self.all = [ScriptedNode(f"n{place + 1}") for place in range(count)]
        self.majority = count // 2 + 1
        self.is_closed = False
        self.rounds: list[Any] = []
        self.polls: list[Poll] = []
        self.timeouts: list[float] = []
        self.time = 0.0
        self.takes = 0.0  # seconds for each round
        self.calls = Calls(60, count)
        self.store = RedlockBackend(self, self.calls, Options(60.0, 0.05), self)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.all)

    def now(self) -> float:
        return self.time

    def number(self) -> int:
        return START + round(self.time * SECOND)

    async def ready(self, *_: float) -> None:
        if self.is_closed:
            raise ClientClosed(backend=self.label)

    async def poll(self, call: Call, _: Any, timeout: float, *__: float) -> Poll:
        sent, answers = self.time, self.rounds.pop(0)
        self.time += self.takes
        answers = answers(call) if callable(answers) else answers
        self.timeouts.append(timeout)
        requests: Any = [Sent(node) for node in self.all]
        self.polls.append(Poll(call, requests, answers, sent))
        return self.polls[-1]

    def sent_after(self, place: int = -1) -> list[list[bytes]]:
        """What went after the requests of a round, node by node."""
        requests: Any = self.polls[place].requests
        return [[call.short for call in request.after] for request in requests]

    def released(self, claim: Claim, *numbers: int, sent: float = 0.0) -> list[bytes]:
        return [self.calls.release(claim, number, sent).short for number in numbers]


@pytest.fixture
def nodes() -> ScriptedNodes:
    return ScriptedNodes()


def claim_of(letter: str = "a", ttl: float = TTL) -> Claim:
    return Claim("app:x", letter * 32, ttl, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


def voted(number: int, now_us: int = 0) -> list[int]:
    return [1, now_us, number]


def too_low(highest: int) -> list[int]:
    return [2, 0, highest]


def busy(highest: int, left: int = 700) -> list[Any]:
    return [0, 0, highest, left, b""]


def acquired(nodes: ScriptedNodes, claim: Claim, until: float = 1e9) -> Grant | Refusal:
    return run(nodes.store.try_acquire(claim, until))


# --- votes


def test_votes_of_a_majority_are_a_grant_and_nothing_is_revoked_of_the_others(nodes: ScriptedNodes) -> None:
    nodes.rounds = [[voted(START)] * 3 + [busy(START - 5), DOWN]]
    assert acquired(nodes, claim_of()) == Grant(claim_of(), START, TTL, None, None)
    assert nodes.sent_after() == [[], [], [], [], []]
    assert nodes.polls[0].call.short == nodes.calls.vote(claim_of(), START).short
    assert all(request.is_finished for request in nodes.polls[0].requests)  # type: ignore[attr-defined]  # see `Sent`


def test_votes_for_other_numbers_than_the_granted_one_are_revoked(nodes: ScriptedNodes) -> None:
    """And a node that is silent may yet vote for the proposed one, which is not the granted one either."""
    nodes.rounds = [[voted(7)] * 3 + [voted(START), None]]
    granted = acquired(nodes, claim_of())
    assert isinstance(granted, Grant)
    assert granted.fence == 7
    assert nodes.sent_after() == [[], [], [], nodes.released(claim_of(), START), nodes.released(claim_of(), START)]


def test_votes_of_a_round_without_a_majority_are_revoked_before_the_connections_are_let_go(
    nodes: ScriptedNodes,
) -> None:
    nodes.rounds = [[voted(START), voted(START), busy(9), busy(9), busy(9)]]
    assert isinstance(acquired(nodes, claim_of()), Refusal)
    revoked = nodes.released(claim_of(), START)
    assert nodes.sent_after() == [revoked, revoked, [], [], []]
    requests: Any = nodes.polls[0].requests
    assert {call.until for request in requests for call in request.after} == {TTL}, "a node that is away gets it later"


def test_numbers_that_are_too_low_are_raised_above_all_that_the_nodes_know(nodes: ScriptedNodes) -> None:
    nodes.rounds = [
        [too_low(START + 40), too_low(START + 90), voted(START), busy(START + 70), DOWN],
        lambda call: [voted(START + 91)] * 3 + [busy(START + 70), DOWN],
    ]
    granted = acquired(nodes, claim_of())
    assert nodes.polls[1].call.short == nodes.calls.vote(claim_of(), START + 91).short
    assert granted == Grant(claim_of(), START + 91, TTL, 0.0, None), "it counts from the round that brought it"
    assert nodes.sent_after(0)[2] == nodes.released(claim_of(), START), "the vote for the first number is revoked"


def test_no_more_rounds_are_made_than_there_are_and_none_after_the_end(nodes: ScriptedNodes) -> None:
    low = [too_low(START + 9)] * 5
    nodes.rounds = [low] * 10
    assert isinstance(acquired(nodes, claim_of()), Refusal)
    assert len(nodes.polls) == ROUNDS
    nodes.takes = 1.0
    assert isinstance(acquired(nodes, claim_of(), until=1.0), Refusal)
    assert len(nodes.polls) == ROUNDS + 1


def test_grant_that_took_as_long_as_its_ttl_is_none_and_its_votes_are_revoked(nodes: ScriptedNodes) -> None:
    nodes.takes = TTL
    nodes.rounds = [[voted(START)] * 5]
    assert isinstance(acquired(nodes, claim_of()), Refusal)
    assert nodes.sent_after() == [nodes.released(claim_of(), START)] * 5


def test_claim_that_a_node_knows_as_withdrawn_is_refused_and_asked_no_more(nodes: ScriptedNodes) -> None:
    nodes.rounds = [[[5, 0], too_low(START + 1), too_low(START + 1), voted(START), None]]
    assert acquired(nodes, claim_of()) == Refusal("app:x")
    assert nodes.sent_after()[3:] == [nodes.released(claim_of(), START)] * 2


def test_number_that_was_revoked_is_not_granted_as_long_as_its_release_may_arrive(nodes: ScriptedNodes) -> None:
    """A release is sent again within the ttl, and a connection may keep one for a while longer."""
    nodes.rounds = [[None] * 5]
    with pytest.raises(OutcomeUnknown):
        acquired(nodes, claim_of("a"))
    nodes.time = TTL + SILENCE_LIMIT - 0.1
    nodes.rounds = [[None] * 5]
    with pytest.raises(OutcomeUnknown):
        acquired(nodes, claim_of("b"))  # whatever is over is forgotten now
    nodes.rounds = [[voted(START)] * 5] * ROUNDS
    assert isinstance(acquired(nodes, claim_of("a")), Refusal)
    assert nodes.sent_after() == [nodes.released(claim_of("a"), START, sent=nodes.time)] * 5


def test_next_proposal_of_a_claim_is_above_its_revoked_numbers(nodes: ScriptedNodes) -> None:
    nodes.rounds = [[None] * 5]
    with pytest.raises(OutcomeUnknown):
        acquired(nodes, claim_of())
    nodes.time = -1.0  # what the nodes' clocks say now lies below
    nodes.rounds = [lambda call: [voted(START + 1)] * 5]
    acquired(nodes, claim_of())
    assert nodes.polls[-1].call.short == nodes.calls.vote(claim_of(), START + 1).short


def test_votes_for_a_revoked_number_call_for_one_above_it(nodes: ScriptedNodes) -> None:
    nodes.rounds = [[None] * 5]
    with pytest.raises(OutcomeUnknown):
        acquired(nodes, claim_of())
    nodes.time = -1.0
    nodes.rounds = [[voted(START)] * 3 + [[3, 0, 7]] * 2, [voted(START + 1)] * 5]
    assert isinstance(acquired(nodes, claim_of()), Grant)
    assert nodes.polls[-1].call.short == nodes.calls.vote(claim_of(), START + 1).short


def test_silent_node_may_have_a_vote_for_every_number_of_the_claim(nodes: ScriptedNodes) -> None:
    nodes.rounds = [[None] * 5]
    with pytest.raises(OutcomeUnknown):
        acquired(nodes, claim_of())
    nodes.rounds = [[voted(START + 1)] * 3 + [None, LOST]]
    granted = acquired(nodes, claim_of())
    assert isinstance(granted, Grant)
    assert nodes.sent_after()[3:] == [nodes.released(claim_of(), START)] * 2, "but not the granted one"


def test_ttl_of_a_claim_may_be_as_long_as_the_store_allows_and_no_longer(nodes: ScriptedNodes) -> None:
    nodes.rounds = [[voted(START)] * 5]
    assert isinstance(acquired(nodes, claim_of(ttl=60.0)), Grant)
    with pytest.raises(ConfigurationError, match="max_ttl=60"):
        acquired(nodes, claim_of(ttl=60.1))


def test_every_ballot_tells_what_time_the_nodes_have(nodes: ScriptedNodes) -> None:
    nodes.takes = 2.0
    nodes.rounds = [[voted(START, 7 * SECOND), busy(3), DOWN, None, voted(START, 9 * SECOND)]]
    acquired(nodes, claim_of())
    assert [node.offset for node in nodes.all] == [5.0, -2.0, None, None, 7.0]


# --- numbers that an operator raised


def test_raised_fence_is_carried_to_nodes_that_missed_it_with_every_ballot(nodes: ScriptedNodes) -> None:
    far = START + 3600 * SECOND
    nodes.rounds = [[far] * 5, [voted(far + 2)] * 5]
    assert run(nodes.store.raise_fence("app:x", far)) == far
    acquired(nodes, claim_of())
    vote = nodes.calls.vote(claim_of(), far + 2)
    assert nodes.polls[1].call.short == nodes.calls.raise_fence("app:x", far + 1).short + vote.short


def test_number_that_lies_ahead_of_the_clocks_is_remembered_for_its_own_name(nodes: ScriptedNodes) -> None:
    far = START + 3600 * SECOND
    nodes.rounds = [[too_low(far)] * 5, [voted(far + 1)] * 5, [voted(far + 2)] * 5]
    acquired(nodes, claim_of())
    acquired(nodes, claim_of("b"))
    assert nodes.calls.raise_fence("app:x", far + 1).short in nodes.polls[2].call.short
    other = Claim("app:other", "c" * 32, TTL, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
    nodes.rounds = [[voted(START)] * 5]
    acquired(nodes, other)
    assert nodes.polls[3].call.short == nodes.calls.vote(other, START).short


def test_number_within_the_window_of_the_clocks_is_not_taken_for_one_that_was_raised(nodes: ScriptedNodes) -> None:
    near = START + SECOND
    nodes.rounds = [[too_low(near)] * 5, [voted(near + 1)] * 5]
    acquired(nodes, claim_of())
    assert nodes.polls[1].call.short == nodes.calls.vote(claim_of(), near + 1).short


def test_names_with_raised_numbers_do_not_pile_up(nodes: ScriptedNodes) -> None:
    far = START + 3600 * SECOND
    for place in range(1200):
        claim = Claim(f"app:{place}", "a" * 32, TTL, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
        nodes.rounds = [[too_low(far)] * 5, [voted(far + 1)] * 5]
        acquired(nodes, claim)
    assert 0 < len(nodes.store._ahead) <= 1001


def test_raised_fence_is_the_highest_that_any_node_knows_and_a_node_that_missed_it_is_told_of(
    nodes: ScriptedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    nodes.rounds = [[7, 9, 8, DOWN, None]]
    assert run(nodes.store.raise_fence("app:x", 7)) == 9
    assert "raised on 3 of 5 nodes" in caplog.text
    caplog.clear()
    nodes.rounds = [[7, 9, 8, 7, 7]]
    run(nodes.store.raise_fence("app:x", 7))
    assert caplog.text == ""
    nodes.rounds = [[7, 9, DOWN, DOWN, None]]
    with pytest.raises(OutcomeUnknown, match="3 of 5 nodes did not answer"):
        run(nodes.store.raise_fence("app:x", 7))


# --- renewals, releases


def renewed(*codes: int) -> list[Any]:
    return [[word for code in codes for word in (code, b"")]]


def test_nodes_that_lost_a_lock_get_it_back_when_a_majority_confirmed_it(nodes: ScriptedNodes) -> None:
    grants = [Grant(claim_of(letter), START, TTL) for letter in "ab"]
    nodes.rounds = [[renewed(1, 4), renewed(1, 4), renewed(1, 4), renewed(4, 1), None]]
    first, second = run(nodes.store.renew(grants))
    assert isinstance(first, Grant)
    assert isinstance(second, Loss)
    assert nodes.sent_after() == [[], [], [], [nodes.calls.repair(grants[0]).short], []]
    assert nodes.timeouts == [pytest.approx(0.05 + 2 * RENEWAL_EACH)]
    assert run(nodes.store.renew([])) == []


def test_lock_is_not_put_back_when_its_renewal_took_as_long_as_the_ttl(nodes: ScriptedNodes) -> None:
    nodes.takes = TTL
    nodes.rounds = [[renewed(1), renewed(1), renewed(1), renewed(4), None]]
    run(nodes.store.renew([Grant(claim_of(), START, TTL)]))
    assert nodes.sent_after() == [[]] * 5


def test_release_says_what_the_nodes_said_and_reaches_those_that_were_away_later(nodes: ScriptedNodes) -> None:
    grant = Grant(claim_of(), START, TTL)
    nodes.time = 3.0
    nodes.rounds = [[1, 1, 1, DOWN, None]]
    assert run(nodes.store.release(grant)) is True
    assert [len(node.later) for node in nodes.all] == [0, 0, 0, 1, 0]
    assert nodes.all[3].later[0].until == 3.0 + TTL
    nodes.rounds = [[[2, b"stuck"]] * 3 + [0, 0]]
    assert run(nodes.store.release(grant)) == Loss(LossReason.BROKEN, "stuck")


# --- withdrawals


@pytest.mark.parametrize("doubt", [True, False])
def test_withdrawal_marks_the_claim_where_a_request_of_it_may_still_arrive(nodes: ScriptedNodes, doubt: bool) -> None:
    marking = nodes.calls.withdraw(claim_of(), 0.0)
    plain = nodes.calls.withdraw(claim_of(), 0.0, mark=False)
    nodes.all[1].is_late = True
    nodes.rounds = [[1, 1, 1, DOWN, None]]
    run(nodes.store.withdraw(claim_of(), doubt=doubt))
    assert nodes.polls[0].call.short == (marking if doubt else plain).short
    marked = [[], [], [], [], []] if doubt else [[], [marking.short], [], [marking.short], [marking.short]]
    assert nodes.sent_after() == marked


@pytest.mark.parametrize(("answers", "is_sure"), [([1, 1, 1, DOWN, None], True), ([1, 1, DOWN, LOST, None], False)])
def test_withdrawal_is_sure_when_a_majority_confirmed_it(
    nodes: ScriptedNodes, answers: list[Any], is_sure: bool
) -> None:
    nodes.rounds = [answers]
    if is_sure:
        run(nodes.store.withdraw(claim_of()))
        return
    with pytest.raises(OutcomeUnknown, match="2 of 5 nodes confirmed the withdrawal, and 3 are needed"):
        run(nodes.store.withdraw(claim_of()))
    assert all(request.is_finished for request in nodes.polls[0].requests)  # type: ignore[attr-defined]  # see `Sent`


# --- operators


@pytest.mark.parametrize(
    ("answers", "is_broken"),
    [
        ([1, 1, 1, 0, 0], True),
        ([1, 1, 0, 0, 0], False),
        ([1, 1, 0, 0, DOWN], True),
        ([1, 0, 0, DOWN, None], True),
        ([0, 0, 0, DOWN, None], False),
    ],
)
def test_grant_is_broken_where_no_majority_can_be_left(
    nodes: ScriptedNodes, answers: list[Any], is_broken: bool
) -> None:
    nodes.rounds = [answers]
    assert run(nodes.store.break_("app:x", START, "stuck", now=True)) is is_broken
    assert nodes.polls[0].call.short == nodes.calls.break_("app:x", START, "stuck", now=True).short


def test_what_a_minority_says_is_not_believed(nodes: ScriptedNodes) -> None:
    nodes.rounds = [[1, 1, DOWN, DOWN, None], [[], [], DOWN, LOST, None]]
    with pytest.raises(OutcomeUnknown, match="n is down"):
        run(nodes.store.break_("app:x", START, "stuck", now=False))
    with pytest.raises(OutcomeUnknown, match="n5 did not answer in time"):
        run(nodes.store.inspect("app:x"))


def test_name_that_no_node_holds_has_no_state(nodes: ScriptedNodes) -> None:
    nodes.rounds = [[[]] * 5, [[0, START, 1000, 5000, b"", b""]] * 3 + [[], []]]
    assert run(nodes.store.inspect("app:x")) is None
    state = run(nodes.store.inspect("app:x"))
    assert state is not None
    assert (state.name, state.holdings[0].fence) == ("app:x", START)


# --- closed


@pytest.mark.parametrize("verb", ["try_acquire", "renew", "release", "withdraw", "inspect", "break_", "raise_fence"])
@pytest.mark.parametrize("is_closed", [True, False])
def test_error_of_a_call_that_was_under_way_is_the_close_of_its_client(
    nodes: ScriptedNodes, verb: str, is_closed: bool
) -> None:
    def ended(_: Call) -> Any:
        nodes.is_closed = is_closed
        raise BackendRejected("the connection broke")

    nodes.rounds = [ended]
    grant = Grant(claim_of(), START, TTL)
    asked: dict[str, Any] = {
        "renew": lambda: nodes.store.renew([grant]),
        "release": lambda: nodes.store.release(grant),
        "inspect": lambda: nodes.store.inspect("app:x"),
        "break_": lambda: nodes.store.break_("app:x", START, "stuck", now=True),
        "raise_fence": lambda: nodes.store.raise_fence("app:x", 7),
    }
    with pytest.raises(ClientClosed if is_closed else BackendRejected):
        run(asked.get(verb, lambda: getattr(nodes.store, verb)(claim_of()))())


def test_renewals_that_the_close_of_the_client_cut_off_are_not_answered_with_doubt(nodes: ScriptedNodes) -> None:
    def ended(_: Call) -> Any:
        nodes.is_closed = True
        return [renewed(1), LOST, LOST, LOST, LOST]

    nodes.rounds = [ended]
    with pytest.raises(ClientClosed):
        run(nodes.store.renew([Grant(claim_of(), START, TTL)]))


# --- several at once, and operators


def test_each_of_several_locks_is_put_back_where_it_is_missing(nodes: ScriptedNodes) -> None:
    first = Grant(claim_of("a"), START, TTL)
    second = Grant(replace(claim_of("b"), key="app:y"), START + 1, TTL)
    nodes.rounds = [[[[1, b"", 1, b""]]] * 3 + [[[1, b"", 4, b""]], [[4, b"", 1, b""]]]]
    assert run(nodes.store.renew([first, second])) == [first, second]
    assert nodes.sent_after() == [
        [], [], [], [nodes.calls.repair(second).short], [nodes.calls.repair(first).short]
    ]  # fmt: skip
    requests: Any = nodes.polls[0].requests
    assert all(request.is_finished for request in requests), "their connections are for the next call"


def test_raised_fence_holds_in_every_round_of_a_claim_whatever_the_nodes_know(nodes: ScriptedNodes) -> None:
    far = START + 10 * SECOND
    nodes.rounds = [[far] * 5, [[2, 0, START + 1]] * 5, [voted(far + 2)] * 5]
    run(nodes.store.raise_fence("app:x", far))
    assert isinstance(run(nodes.store.try_acquire(claim_of())), Grant)
    assert nodes.polls[2].call.short == nodes.polls[1].call.short
    assert str(far + 2).encode() in nodes.polls[2].call.short


def test_orders_of_an_operator_are_waited_for_longer_than_a_claim(nodes: ScriptedNodes) -> None:
    nodes.rounds = [[7] * 5, [1] * 5]
    run(nodes.store.raise_fence("app:x", 7))
    assert run(nodes.store.break_("app:x", 7, "stuck", now=True)) is True
    assert nodes.timeouts == [UNHURRIED, UNHURRIED]


def test_doctor_connects_first_and_looks_also_where_no_majority_is_there(
    nodes: ScriptedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    async def ready(*_: float) -> None:
        done.append("connected")
        raise DOWN

    async def examine(*_: object) -> list[Any]:
        done.append("examined")
        return []

    nodes.ready = ready  # type: ignore[method-assign]
    monkeypatch.setattr(doctor, "examine", examine)
    assert run(nodes.store.examine()) == []
    assert done == ["connected", "examined"]
