"""What the answers of the nodes mean, counted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from redis import ResponseError

import leasehold._backends.redlock.scripts as scripts_package
from leasehold._backends.redlock.acquire import Votes, enough_votes, may_have_voted_for
from leasehold._backends.redlock.calls import RENEWED_TOGETHER, Calls
from leasehold._backends.redlock.inspect import kept_by_majority, require_majority, to_states
from leasehold._backends.redlock.release import freed, yes_or_no
from leasehold._backends.redlock.renew import Renewals, enough_renewals
from leasehold._backends.redlock.scripts import NAMES, script
from leasehold._backends.redlock.wire import reply_or_error
from leasehold._core.quorum import WINDOW
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.kit.holder import holder_to_json
from leasehold.values import Claim, Grant, Holder, Loss, LossReason, Mode

NODES = ["n1", "n2", "n3", "n4", "n5"]
HOLDER = Holder("db-3", 7, "nightly")
FACTS = holder_to_json(HOLDER).encode()
DOWN = BackendUnavailable("n5 cannot be reached")
REFUSES = BackendRejected("n3 refuses the login")
LOST = OutcomeUnknown("n4 closed the connection")
YES = [1, 0, 42]
TOO_LOW = [2, 0, 99]
WINDOW_ = [3, 0, 5]
OUT = [4, 0, 2500]
BUSY = [0, 0, 41, 700, FACTS]


def claim(ttl: float = 10.0) -> Claim:
    return Claim("app:x", "o" * 32, ttl, Mode.EXCLUSIVE, 1, 0.0, HOLDER)


def votes(*answers: Any) -> Votes:
    return Votes(list(answers), NODES)


# --- votes


@pytest.mark.parametrize(
    ("answers", "enough"),
    [
        ((YES, YES, YES, None, None), True),
        ((YES, YES, None, None, None), False),
        ((BUSY, BUSY, BUSY, None, None), True),
        ((BUSY, DOWN, OUT, None, YES), True),
        ((YES, YES, BUSY, BUSY, None), False),
        ((BUSY, DOWN, DOWN, None, None), True),
        ((BUSY, BUSY, LOST, None, None), False),
        ((REFUSES, REFUSES, REFUSES, None, None), True),
        ((BUSY, REFUSES, DOWN, None, None), True),
        ((REFUSES, REFUSES, LOST, None, None), False),
        ((LOST, LOST, LOST, None, None), False),
        ((TOO_LOW, DOWN, DOWN, None, None), False),
        ((TOO_LOW, DOWN, DOWN, YES, YES), True),
        ((TOO_LOW, DOWN, DOWN, BUSY, None), True),
        ((TOO_LOW, TOO_LOW, WINDOW_, None, None), True),
        ((TOO_LOW, TOO_LOW, YES, None, None), False),
        ((TOO_LOW, BUSY, BUSY, None, None), False),
    ],
)
def test_a_ballot_is_over_at_a_majority_or_when_none_is_possible(answers: tuple[Any, ...], enough: bool) -> None:
    assert enough_votes(answers) is enough


def test_three_votes_for_one_number_grant_it() -> None:
    assert votes(YES, YES, YES, None, BUSY).granted == 42


def test_three_votes_for_two_numbers_grant_nothing_and_call_for_another_number() -> None:
    split = votes(YES, [1, 0, 40], [1, 0, 40], YES, None)
    assert split.granted is None
    assert split.wants_another_number


def test_low_numbers_call_for_a_higher_one_only_if_that_can_help() -> None:
    assert votes(TOO_LOW, TOO_LOW, YES, None, None).wants_another_number
    assert votes(WINDOW_, WINDOW_, WINDOW_, DOWN, DOWN).wants_another_number
    assert not votes(TOO_LOW, BUSY, BUSY, BUSY, YES).wants_another_number
    assert not votes(BUSY, BUSY, BUSY, None, None).wants_another_number
    assert max(votes(TOO_LOW, BUSY, WINDOW_, None, None).highest) == 99


def test_every_number_that_a_refusing_node_knows_is_to_be_exceeded() -> None:
    assert votes(TOO_LOW, BUSY, YES, WINDOW_, OUT).highest == [99, 41, 5]
    assert votes([0, 0, 77, 700, FACTS], YES, YES, DOWN, None).highest == [77]


def test_a_refusal_names_the_holder_that_most_nodes_name_and_not_the_one_that_lasts_longest() -> None:
    rival = holder_to_json(Holder("db-4", 8, "daily")).encode()
    refusal = votes([0, 0, 41, 900, rival], BUSY, BUSY, [0, 0, 40, 650, FACTS], None).refusal("app:x")
    assert (refusal.holder, refusal.retry_after) == (HOLDER, 0.65)


def test_a_refusal_names_the_holder_of_a_majority_and_when_it_ends() -> None:
    refusal = votes(BUSY, BUSY, [0, 0, 41, 650, FACTS], None, None).refusal("app:x")
    assert refusal.holder == HOLDER
    assert refusal.retry_after == 0.65


@pytest.mark.parametrize(
    ("answers", "is_refused"),
    [
        ((DOWN, BUSY, BUSY, None, None), True),
        ((DOWN, DOWN, BUSY, None, None), True),
        ((DOWN, DOWN, BUSY, BUSY, BUSY), True),
        ((OUT, WINDOW_, BUSY, None, None), True),
        ((LOST, LOST, BUSY, BUSY, BUSY), True),
        ((DOWN, DOWN, TOO_LOW, YES, YES), True),
        ((YES, YES, BUSY, BUSY, LOST), True),
        ((DOWN, DOWN, DOWN, BUSY, BUSY), False),
        ((DOWN, LOST, BUSY, YES, YES), True),
        ((LOST, LOST, BUSY, YES, None), False),
        ((DOWN, LOST, LOST, BUSY, YES), False),
        ((None, None, None, BUSY, BUSY), False),
        ((OUT, OUT, OUT, BUSY, None), False),
        ((TOO_LOW, DOWN, DOWN, None, None), False),
    ],
)
def test_a_busy_node_is_as_sure_a_no_as_a_dead_one(answers: tuple[Any, ...], is_refused: bool) -> None:
    assert votes(*answers).is_refused is is_refused


def test_a_lock_that_every_voting_node_has_is_no_split_vote() -> None:
    refusal = votes(BUSY, BUSY, DOWN, None, None).refusal("app:x")
    assert refusal.holder == HOLDER
    assert refusal.retry_after == 0.7


def test_a_split_vote_has_no_end_to_wait_for() -> None:
    assert votes(BUSY, BUSY, YES, YES, None).refusal("app:x").retry_after is None
    assert votes(YES, YES, None, None, None).refusal("app:x").holder is None


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ((OUT, OUT, OUT, None, None), BackendUnavailable),
        ((OUT, DOWN, DOWN, YES, YES), BackendUnavailable),
        ((OUT, DOWN, LOST, YES, YES), OutcomeUnknown),
        ((None, None, None, YES, YES), OutcomeUnknown),
        (([6, 0, b"30000/5"],) * 3 + (YES, YES), BackendRejected),
        (([6, 0, b"30000/5"],) * 2 + (DOWN, YES, YES), BackendUnavailable),
        ((BackendRejected("NOPERM"),) * 3 + (None, None), BackendRejected),
    ],
)
def test_the_error_is_as_sure_as_enough_nodes_are(answers: tuple[Any, ...], kind: type[Exception]) -> None:
    assert type(votes(*answers).failure("redlock://x", WINDOW)) is kind


def test_the_error_names_each_node_with_its_reason() -> None:
    text = str(votes(OUT, WINDOW_, [6, 0, b"45000/3"], DOWN, None).failure("redlock://x", WINDOW))
    assert "n1 may have forgotten what it granted before, and sits out for 2.5 s more" in text
    assert "the clock of n2 is more than 2 s away" in text
    assert "n3 was set up with max_ttl=45 as one of 3 nodes" in text
    assert "n5 cannot be reached" in text
    assert "n5 did not answer" not in text, "it was not waited for"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ((OUT, OUT, [4, 0, 1500], None, None), "; a majority can vote in 2.5 s"),
        ((OUT, [4, 0, 34000], [4, 0, 1500], YES, YES), "; a majority can vote in 1.5 s"),
        ((OUT, [4, 0, 1500], [4, 0, 3500], TOO_LOW, BUSY), "; a majority can vote in 1.5 s"),
        ((OUT, DOWN, DOWN, YES, None), None),
        ((WINDOW_, WINDOW_, WINDOW_, YES, YES), None),
    ],
)
def test_the_error_names_the_time_until_there_is_a_majority_again(answers: tuple[Any, ...], said: str | None) -> None:
    error = votes(*answers).failure("redlock://x", WINDOW)
    text = str(error)
    assert text.endswith(said) if said else "a majority can vote in" not in text
    assert error.back_in == (float(said.split()[-2]) if said else None), "a program waits for so long"


def test_the_error_for_other_terms_names_the_key_and_what_to_do() -> None:
    text = str(votes(*([[6, 0, b"30000/2"]] * 3), None, None).failure("redlock://x", WINDOW))
    assert "max_ttl=30 as one of 2 nodes: give all clients the same URL" in text
    assert "stop all clients and delete the key leasehold:redlock:node on every node" in text


@pytest.mark.parametrize(
    ("answer", "numbers"),
    [(None, (40, 41, 42)), (LOST, (40, 41, 42)), ([1, 0, 40], (40,)), (BUSY, ()), (TOO_LOW, ()), (DOWN, ())],
)
def test_a_silent_node_may_have_a_vote_for_any_number_of_the_claim(answer: Any, numbers: tuple[int, ...]) -> None:
    assert tuple(may_have_voted_for(answer, 42, (40, 41))) == numbers


# --- renewals


def renewed(*codes: int) -> list[Any]:
    return [[word for code in codes for word in (code, b"stuck job" if code == 2 else b"")]]


@pytest.mark.parametrize(
    ("codes", "outcome"),
    [
        ((1, 1, 1, None, None), "extended"),
        ((1, 1, 1, 0, 4), "extended"),
        ((1, 1, 1, 2, 2), "extended"),
        ((1, 1, 3, 3, 3), "unknown"),
        ((1, 1, None, 0, 4), "unknown"),
        ((1, 1, 0, 4, 0), LossReason.TAKEN),
        ((4, 4, 4, 4, 4), LossReason.TAKEN),
        ((1, 1, 2, 2, 2), LossReason.BROKEN),
    ],
)
def test_a_renewal_counts_only_by_a_majority_of_nodes_that_do_not_sit_out(codes: tuple[Any, ...], outcome: Any) -> None:
    answers = [None if code is None else renewed(code) for code in codes]
    found = Renewals(answers, "redlock://x").outcome(0, Grant(claim(), 42, 10.0))
    if outcome == "extended":
        assert isinstance(found, Grant)
    elif outcome == "unknown":
        assert isinstance(found, OutcomeUnknown)
    else:
        assert isinstance(found, Loss)
        assert found.reason is outcome
        assert (found.detail == "stuck job") is (outcome is LossReason.BROKEN)


def test_a_renewed_grant_counts_from_the_renewal() -> None:
    renewed_grant = Renewals([renewed(1)] * 3, "x").outcome(0, Grant(claim(), 42, 10.0, since=5.0))
    assert renewed_grant == Grant(claim(), 42, 10.0)


def test_renewals_are_waited_for_until_every_one_of_them_is_decided() -> None:
    enough = enough_renewals(2)
    assert not enough([renewed(1, 1), renewed(1, 0), None, None, None])
    assert not enough([renewed(1, 1), renewed(1, 0), renewed(1, 1), None, None])
    assert enough([renewed(1, 1), renewed(1, 1), renewed(1, 1), None, None])
    assert enough([renewed(1, 0), renewed(1, 0), renewed(1, 0), None, None])
    assert enough([renewed(1, 1), DOWN, DOWN, DOWN, DOWN])


def test_only_nodes_that_are_free_and_know_no_higher_number_are_repaired() -> None:
    renewals = Renewals([renewed(1), renewed(4), renewed(0), None, renewed(4)], "x")
    assert renewals.to_repair(0) == [1, 4]


def test_many_grants_are_renewed_in_several_calls_and_answered_in_order() -> None:
    count = RENEWED_TOGETHER + 5
    call = Calls(30, 5).renew([Grant(claim(), number, 10.0) for number in range(1, count + 1)])
    assert call.count == 2
    parts = [[1, b""] * RENEWED_TOGETHER, [0, b""] * 5]
    renewals = Renewals([parts] * 3, "x")
    assert isinstance(renewals.outcome(RENEWED_TOGETHER - 1, Grant(claim(), 1, 10.0)), Grant)
    assert isinstance(renewals.outcome(RENEWED_TOGETHER, Grant(claim(), 1, 10.0)), Loss)


def test_a_part_of_a_renewal_that_failed_counts_as_no_answer_and_the_other_parts_count() -> None:
    """Whichever part it is, and a node that refused all of them is an error."""
    error = ResponseError("OOM command not allowed")
    first, last = [1, b""] * RENEWED_TOGETHER, [1, b""] * 5
    whole, grant = [first, last], Grant(claim(), 1, 10.0)
    for parts, answered, missing in (
        ([error, last], RENEWED_TOGETHER, RENEWED_TOGETHER - 1),
        ([first, error], RENEWED_TOGETHER - 1, RENEWED_TOGETHER),
    ):
        call = Calls(30, 5).renew([grant] * (RENEWED_TOGETHER + 5))
        renewals = Renewals([whole, whole, reply_or_error(call, parts, "n3"), None, None], "x")
        assert isinstance(renewals.outcome(answered, grant), Grant)
        assert isinstance(renewals.outcome(missing, grant), OutcomeUnknown)
        assert isinstance(reply_or_error(call, [error, error], "n3"), BackendError)


# --- releases, looks


def test_a_release_freed_what_a_majority_may_have_had() -> None:
    assert freed([1, 1, 1, None, None], "x")
    assert freed([1, 1, 0, 0, DOWN], "x"), "the bare majority lost a node, which may have had it"
    assert not freed([1, 0, 0, 0, 0], "x")
    assert not freed([0, 0, 0, None, None], "x")
    broken = [2, b"stuck job"]
    assert freed([broken, broken, broken, None, None], "x") == Loss(LossReason.BROKEN, "stuck job")
    assert freed([1, 1, 0, broken, DOWN], "x") == Loss(LossReason.BROKEN, "stuck job")
    assert freed([1, 1, 1, broken, broken], "x") is True, "a break that no majority knows is none"
    with pytest.raises(OutcomeUnknown):
        freed([0, 0, None, None, DOWN], "x")


def test_a_release_is_not_waited_for_beyond_a_majority() -> None:
    assert yes_or_no([1, 1, 1, None, None])
    assert yes_or_no([0, 0, 0, None, None])
    assert yes_or_no([0, [2, b"why"], [2, b"why"], None, None])
    assert not yes_or_no([1, 1, 0, None, DOWN])
    assert yes_or_no([1, 1, 0, DOWN, DOWN])


def look(number: int, left: int = 5000, held: int = 1_000_000) -> list[Any]:
    return [0, number, held, left, b"", FACTS]


def test_a_lock_is_shown_when_a_majority_may_have_it() -> None:
    (state,) = to_states(["x"], [look(7), look(7, 3000), look(7, 9000), [], []])
    assert state.holdings[0].fence == 7
    assert state.holdings[0].expires_in == 3.0
    assert to_states(["x"], [look(7), look(7), [], [], []]) == []
    assert to_states(["x"], [look(7), look(7), [], [], DOWN]) != []
    assert to_states(["x"], [look(7), look(8), look(7), look(8), []]) == []


def test_a_lock_lasts_until_its_majority_is_gone() -> None:
    assert kept_by_majority([9, 5, 7], 5) == 5
    assert kept_by_majority([9, 5, 7, 1, 2], 5) == 5
    assert kept_by_majority([9, 5], 5) == 0.0
    assert kept_by_majority([9, 5], 5, missing=1) == 5
    assert kept_by_majority([9], 5, missing=3) == 9
    assert kept_by_majority([], 5, missing=5) == 0.0


def test_a_minority_is_not_believed() -> None:
    require_majority([0, 1, [], None, DOWN], NODES, "x")
    with pytest.raises(OutcomeUnknown, match=r"3 of 5 nodes did not answer.*n5 cannot be reached"):
        require_majority([0, 1, None, None, DOWN], NODES, "x")


# --- scripts


def test_the_scripts_and_the_decisions_agree_on_the_window() -> None:
    text = (Path(scripts_package.__file__).parent / "clock.lua").read_text()
    (number,) = re.findall(r"WINDOW_US = (\d+)", text)
    assert int(number) == WINDOW * 1_000_000


def test_every_script_is_loaded_at_the_greeting_and_documents_its_arguments_and_replies() -> None:
    files = {path.stem for path in Path(scripts_package.__file__).parent.glob("*.lua")} - {"clock", "marker"}
    assert files == set(NAMES)
    for name in NAMES:
        head = (Path(scripts_package.__file__).parent / f"{name}.lua").read_text().partition("include")[0]
        assert "KEYS" in head, name
        assert "ARGV" in head, name
        assert "Reply" in head, name
        assert b"KEYS   1" not in script(name).text, "the head is not sent"


def test_no_script_joins_a_number_to_a_text() -> None:
    """Two dots write a large number with an exponent, and lose digits."""
    for path in Path(scripts_package.__file__).parent.glob("*.lua"):
        code = re.sub(r"--.*", "", path.read_text())
        assert ".." not in code, path.name


def test_a_key_in_another_alphabet_is_sent_with_its_length_in_bytes() -> None:
    payload = Calls(30, 5).look(["ключ"]).short
    key = "leasehold:redlock:lock:ключ".encode()
    assert b"$%d\r\n%b\r\n" % (len(key), key) in payload


def test_calls_are_sent_again_for_the_ttl_of_their_claim_and_without_a_mark_never() -> None:
    calls = Calls(30.0, 5)
    assert (calls.release(claim(), 42, 5.0).until, calls.withdraw(claim(), 6.0).until) == (15.0, 16.0)
    assert calls.withdraw(claim(), 6.0, mark=False).until == 0.0
    assert calls.renew([Grant(claim(), 42, 10.0)]).until == 0.0


def test_each_of_several_grants_is_renewed_for_its_own_ttl() -> None:
    sent = Calls(30.0, 5).renew([Grant(claim(ttl), 42, ttl) for ttl in (10.0, 25.0)]).short
    assert (sent.count(b"\r\n10000\r\n"), sent.count(b"\r\n25000\r\n")) == (1, 1)


def test_prefix_of_a_list_is_no_pattern() -> None:
    assert rb"leasehold:redlock:lock:app:a\*\[b\]*" in Calls(30.0, 5).scan(b"0", "app:a*[b]")
