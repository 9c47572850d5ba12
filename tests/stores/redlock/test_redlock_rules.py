"""The rules of one node, call after call: what it replies, remembers, and forgets when. Time passes on command."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold._backends.redlock.scripts import script
from tests.stores.script_bench import DAY, START, ScriptBench

SETTINGS = "30000/5"
OUT = 34_000  # for so long a node that knows nothing sits out
WINDOW = 2_000_000


class Node(ScriptBench):
    """One node; unless `is_new` it has known everything for long."""

    def __init__(self, *, is_new: bool = False) -> None:
        super().__init__()
        if not is_new:
            self.do("HSET", "m", "r", "abc", "s", "1000", "x", SETTINGS)

    def vote(self, owner: str, number: int, *, ttl: int = 10_000, settings: str = SETTINGS) -> Any:
        return self.call(script("vote"), ["m", "l", f"x:{owner}"], owner, number, ttl, f"about {owner}", settings)

    def release(self, owner: str, number: int) -> Any:
        return self.call(script("release"), ["l"], owner, number)

    def renew(self, owner: str, number: int, *, ttl: int = 10_000, settings: str = SETTINGS) -> Any:
        return self.call(script("renew"), ["m", "l"], settings, owner, number, ttl)

    def repair(self, owner: str, number: int, *, ttl: int = 10_000) -> Any:
        return self.call(script("repair"), ["l", f"x:{owner}"], owner, number, ttl, f"about {owner}")

    def withdraw(self, owner: str, mark: int = 10_000) -> Any:
        return self.call(script("withdraw"), ["l", f"x:{owner}"], owner, mark)

    def break_(self, number: int, *, now: bool) -> Any:
        return self.call(script("break"), ["l"], number, "stuck", "1" if now else "0")

    def raise_fence(self, number: int) -> Any:
        return self.call(script("raise_fence"), ["l"], number)

    def greet(self, settings: str = SETTINGS) -> Any:
        return self.call(script("greet"), ["m"], settings)

    def look(self, *keys: str) -> Any:
        return self.call(script("look"), list(keys or ("l",)))

    @property
    def lock(self) -> dict[str, str]:
        return self.fields("l")


@pytest.fixture
def node() -> Node:
    return Node()


def voted(node: Node, owner: str = "a", ttl: int = 10_000) -> int:
    number = node.now_us
    assert node.vote(owner, number, ttl=ttl) == [1, number, number]
    return number


# --- the marker


def test_new_node_sits_out_from_its_first_vote_on() -> None:
    node = Node(is_new=True)
    assert node.vote("a", node.now_us) == [4, node.now_us, OUT]
    assert node.fields("m") == {"r": "abc", "s": str(START), "x": SETTINGS}
    node.pass_time(OUT - 1)
    assert node.vote("a", node.now_us) == [4, node.now_us, 1]
    node.pass_time(1)
    assert node.vote("a", node.now_us)[0] == 1


def test_looking_at_a_new_node_writes_nothing() -> None:
    node = Node(is_new=True)
    assert node.greet() == [b"abc", node.now_us, OUT, b""]
    assert node.look() == []
    assert node.do("DBSIZE") == 0
    node.run_id = "def"
    assert node.greet()[0] == b"def"


def test_node_that_was_started_again_sits_out_whatever_it_has(node: Node) -> None:
    assert node.greet()[2] == 0
    number = voted(node)
    node.run_id = "def"
    assert node.greet()[2] == OUT
    assert node.renew("a", number) == [3, b""], "extended, and it does not count"
    assert node.fields("m") == {"r": "def", "s": str(START), "x": SETTINGS}, "a renewal begins its time"
    assert node.vote("b", node.now_us)[0] == 4
    node.pass_time(OUT)
    assert node.vote("b", node.now_us)[0] == 1


def test_marker_of_another_process_is_replaced_as_a_whole(node: Node) -> None:
    node.do("HSET", "m", "r", "older", "s", str(START - 60_000), "x", "60000/3", "y", "1")
    node.vote("a", node.now_us)
    assert node.fields("m") == {"r": "abc", "s": str(START), "x": SETTINGS}
    node.do("DEL", "m")
    node.do("HSET", "m", "r", "abc")
    assert node.vote("a", node.now_us)[0] == 4, "it does not say since when"


def test_node_whose_clock_was_set_back_sits_out_again_and_not_for_longer(node: Node) -> None:
    node.do("HSET", "m", "s", str(START + 3_600_000))
    assert node.greet()[2] == OUT
    assert node.fields("m")["s"] == str(START + 3_600_000), "looking writes nothing"
    assert node.vote("a", node.now_us) == [4, node.now_us, OUT]
    assert node.fields("m")["s"] == str(START)


def test_node_with_other_terms_says_which_and_confirms_nothing(node: Node) -> None:
    number = voted(node)
    for settings in ("60000/5", "30000/3"):
        assert node.vote("b", node.now_us, settings=settings) == [6, node.now_us, SETTINGS.encode()]
        assert node.greet(settings)[3] == SETTINGS.encode()
        assert node.renew("a", number, settings=settings) == [3, b""]
    assert node.fields("m")["x"] == SETTINGS
    assert Node(is_new=True).vote("a", node.now_us, settings="60000/5")[2] == 64_000


# --- votes


def test_vote_is_remembered_whole_and_for_a_day_longer(node: Node) -> None:
    number = voted(node)
    assert node.lock == {
        "o": "a", "f": str(number), "e": str(START + 10_000), "s": str(node.now_us), "d": "about a", "c": str(number)
    }  # fmt: skip
    assert node.left("l") == 10_000 + DAY
    node.raise_fence(number + 3 * DAY * 1000)
    node.pass_time(10_000)
    ahead = number + 3 * DAY * 1000 + 1
    assert node.vote("b", ahead)[0] == 1
    assert node.left("l") == 4 * DAY - 10_000, "as long as a number so high would be accepted"


def test_same_claim_has_one_vote_whatever_number_it_proposes(node: Node) -> None:
    number = voted(node)
    node.pass_time(4_000)
    assert node.vote("a", node.now_us) == [1, node.now_us, number]
    assert node.lock["e"] == str(node.ms + 10_000), "it starts anew"
    assert node.lock["c"] == node.lock["f"] == str(number)
    assert node.left("l") == 10_000 + DAY


def test_lock_of_another_is_refused_until_its_time_is_over(node: Node) -> None:
    number = voted(node)
    node.pass_time(9_999)
    assert node.vote("b", node.now_us) == [0, node.now_us, number, 1, b"about a"]
    node.pass_time(1)
    later = node.now_us
    assert node.vote("b", later) == [1, later, later]
    assert node.vote("a", later + 1)[0] == 0


@pytest.mark.parametrize(
    ("apart", "code"), [(-WINDOW - 1, 3), (-WINDOW, 1), (0, 1), (WINDOW, 1), (WINDOW + 1, 3), (DAY * 1000, 3)]
)
def test_number_is_accepted_within_the_window_of_the_clock_either_way(node: Node, apart: int, code: int) -> None:
    reply = node.vote("a", node.now_us + apart)
    assert reply[0] == code
    if code == 3:
        assert reply == [3, node.now_us, 0]
        assert node.lock == {}


def test_number_has_to_be_above_all_that_were_accepted(node: Node) -> None:
    number = voted(node)
    node.release("a", number)
    above = int(node.lock["c"])
    assert node.vote("b", above) == [2, node.now_us, above]
    assert node.vote("b", above - 1) == [2, node.now_us, above]
    assert node.vote("b", above + 1)[0] == 1


def test_raised_number_moves_the_window_up_and_not_down(node: Node) -> None:
    far = node.now_us + DAY * 1000
    assert node.raise_fence(far) == far
    assert node.vote("a", node.now_us) == [2, node.now_us, far]
    assert node.vote("a", far + WINDOW + 1)[0] == 3
    assert node.vote("a", far + WINDOW)[0] == 1
    low = Node()
    low.raise_fence(7)
    assert low.vote("a", low.now_us + WINDOW + 1)[0] == 3
    assert low.vote("a", low.now_us + WINDOW)[0] == 1


def test_raised_number_is_never_lowered_and_remembered_for_its_time(node: Node) -> None:
    far = node.now_us + 3 * DAY * 1000
    assert node.raise_fence(far) == far
    assert node.raise_fence(7) == far
    assert node.left("l") == 4 * DAY
    other = Node()
    voted(other, ttl=2 * DAY)
    other.raise_fence(7)
    assert other.left("l") == 3 * DAY, "the lock is held for longer"
    third = Node()
    third.raise_fence(7)
    assert third.left("l") == DAY


def test_withdrawn_claim_has_no_vote_as_long_as_its_mark_stays(node: Node) -> None:
    assert node.withdraw("a", 5_000) == 1
    assert node.left("x:a") == 5_000
    assert node.vote("a", node.now_us) == [5, node.now_us]
    assert node.repair("a", node.now_us) == 0
    node.pass_time(5_001)
    assert node.vote("a", node.now_us)[0] == 1


# --- renew


def test_renewal_extends_the_grant_with_this_owner_and_this_number_only(node: Node) -> None:
    number = voted(node)
    node.pass_time(4_000)
    assert node.renew("a", number, ttl=50_000) == [1, b""]
    assert node.lock["e"] == str(node.ms + 50_000)
    assert node.left("l") == 50_000 + DAY
    assert node.renew("b", number) == [0, b""]
    assert node.renew("a", number + 1) == [0, b""]
    assert node.renew("a", number - 1) == [0, b""]
    node.pass_time(50_000)
    assert node.renew("a", number) == [4, b""], "its time is over here, and nobody came after it"


def test_renewal_of_a_number_ahead_of_the_clock_keeps_it_for_its_time(node: Node) -> None:
    far = node.now_us + 3 * DAY * 1000
    node.raise_fence(far)
    assert node.vote("a", far + 1)[0] == 1
    assert node.renew("a", far + 1) == [1, b""]
    assert node.left("l") == 4 * DAY


@pytest.mark.parametrize(
    ("became", "code"), [("lost", 4), ("released", 0), ("withdrawn", 0), ("another's", 0), ("raised", 0)]
)
def test_lock_may_be_put_back_where_no_higher_number_was_accepted(node: Node, became: str, code: int) -> None:
    number = voted(node)
    if became == "lost":
        node.do("HDEL", "l", "o")
    elif became == "released":
        node.release("a", number)
    elif became == "withdrawn":
        node.withdraw("a", 0)
    elif became == "raised":
        node.do("HDEL", "l", "o")
        node.raise_fence(number + 1)
    else:
        node.pass_time(10_000)
        voted(node, "b")
    assert node.renew("a", number) == [code, b""]
    assert node.repair("a", number) == (1 if code == 4 else 0)


def test_several_grants_are_renewed_in_one_call(node: Node) -> None:
    number = voted(node)
    node.do("HSET", "k", "o", "b", "f", 7, "e", node.ms + 10, "c", 7, "b", "stuck")
    reply = node.call(
        script("renew"), ["m", "l", "k", "j"], SETTINGS, "a", number, 20_000, "b", 7, 30_000, "c", 9, 40_000
    )
    assert reply == [1, b"", 2, b"stuck", 4, b""]
    assert node.lock["e"] == str(node.ms + 20_000)


def test_repair_writes_the_lock_as_a_vote_does(node: Node) -> None:
    number = voted(node)
    before = node.lock
    node.do("DEL", "l")
    assert node.repair("a", number) == 1
    assert node.lock == before
    assert node.left("l") == 10_000 + DAY
    assert node.repair("b", number + 5) == 0, "it is held"
    node.pass_time(10_000)
    assert node.repair("b", number - 5) == 0, "a higher number was here"
    assert node.repair("b", number) == 1
    ahead = Node()
    far = ahead.now_us + 3 * DAY * 1000
    assert ahead.repair("a", far) == 1
    assert ahead.left("l") == 4 * DAY


# --- release, withdraw


def test_release_frees_the_grant_with_this_owner_and_this_number_only(node: Node) -> None:
    number = voted(node)
    assert node.release("b", number) == 0
    assert node.release("a", number - 1) == 0
    assert "o" in node.lock
    assert node.release("a", number) == 1
    assert "o" not in node.lock
    assert node.lock["c"] == str(number + 1)
    assert node.release("a", number) == 0
    assert node.lock["c"] == str(number + 1)
    late = voted_later(node)
    node.pass_time(10_000)
    assert node.release("a", late) == 0, "its time was over"
    assert "o" not in node.lock


def voted_later(node: Node) -> int:
    node.pass_time(1)
    return voted(node)


def test_release_bars_its_number_for_as_long_as_it_could_be_accepted(node: Node) -> None:
    number = node.now_us
    assert node.release("a", number) == 0
    assert node.lock == {"c": str(number + 1)}
    assert node.left("l") == DAY
    far = number + 3 * DAY * 1000
    assert node.release("a", far) == 0
    assert node.left("l") == 4 * DAY
    assert node.release("a", number) == 0
    assert node.lock["c"] == str(far + 1), "it is never lowered"


def test_withdrawal_ends_a_grant_of_this_claim_and_bars_its_number(node: Node) -> None:
    number = voted(node)
    assert node.withdraw("b", 0) == 1
    assert "o" in node.lock
    assert node.withdraw("a", 0) == 1
    assert node.lock["c"] == str(number + 1)
    assert "o" not in node.lock
    assert node.left("x:a") == -2, "without doubt there is no mark"
    node.raise_fence(number + 50)
    other = Node()
    number = voted(other)
    other.raise_fence(number + 50)
    other.withdraw("a", 0)
    assert other.lock["c"] == str(number + 50)


# --- break


@pytest.mark.parametrize("now", [True, False])
def test_broken_grant_is_told_to_its_holder_and_to_no_other(node: Node, now: bool) -> None:
    number = voted(node)
    assert node.break_(number + 1, now=now) == node.break_(number - 1, now=now) == 0
    assert node.break_(number, now=now) == 1
    assert node.renew("a", number) == [2, b"stuck"]
    assert ("o" in node.lock) is not now
    later = node.vote("b", node.now_us + 5)
    assert later[0] == (1 if now else 0)
    assert node.release("a", number) == [2, b"stuck"]
    assert node.release("a", number) == [2, b"stuck"], "the answer to the first may have got lost"
    assert node.repair("a", number) == 0
    if now:
        assert node.renew("b", later[2]) == [1, b""], "the break was of the holder before"
        assert node.look()[4] == b""


def test_grant_that_is_over_cannot_be_broken(node: Node) -> None:
    number = voted(node)
    node.pass_time(10_000)
    assert node.break_(number, now=True) == 0
    assert Node().break_(number, now=False) == 0
    other = Node()
    number = voted(other)
    other.release("a", number)
    assert other.break_(number, now=True) == other.break_(number, now=False) == 0


def test_next_holder_is_not_broken_with_the_one_before(node: Node) -> None:
    number = voted(node)
    node.break_(number, now=False)
    node.pass_time(10_000)
    later = voted(node, "b")
    assert node.renew("b", later) == [1, b""]
    again = Node()
    number = voted(again)
    again.break_(number, now=False)
    again.pass_time(10_000)
    assert again.repair("b", number + 1) == 1
    assert again.renew("b", number + 1) == [1, b""]
    third = Node()
    number = voted(third)
    third.break_(number, now=False)
    third.release("a", number)
    later = voted_later(third)
    assert third.renew("a", later) == [1, b""]


def test_break_at_once_bars_the_number(node: Node) -> None:
    number = voted(node)
    node.break_(number, now=True)
    assert node.lock["c"] == str(number + 1)
    other = Node()
    number = voted(other)
    other.raise_fence(number + 50)
    other.break_(number, now=True)
    assert other.lock["c"] == str(number + 50)


# --- look


def test_look_shows_what_is_held_with_its_place_among_the_names(node: Node) -> None:
    number = voted(node)
    node.pass_time(2_000)
    assert node.look("other", "l") == [1, number, 2_000_000, 8_000, b"", b"about a"]
    node.break_(number, now=False)
    assert node.look()[4] == b"stuck"
    node.pass_time(8_000)
    assert node.look() == []


# --- edges


def test_claim_of_a_broken_grant_that_is_sent_again_gets_no_vote(node: Node) -> None:
    number = voted(node)
    node.break_(number, now=False)
    assert node.vote("a", number + 1) == [0, node.now_us, number, 10_000, b"about a"]


def test_release_of_a_broken_grant_whose_time_is_over_finds_nothing(node: Node) -> None:
    number = voted(node)
    node.break_(number, now=False)
    node.pass_time(10_000)
    assert node.release("a", number) == 0


def test_numbers_do_not_run_away_from_the_clock_window_by_window(node: Node) -> None:
    first = node.now_us + WINDOW
    assert node.vote("a", first) == [1, node.now_us, first]
    node.release("a", first)
    assert node.vote("b", first + WINDOW) == [3, node.now_us, first + 1], "nobody has raised it by order"


def test_lock_outlives_a_number_ahead_of_the_clock_by_a_day(node: Node) -> None:
    node.vote("a", node.now_us + 1_900_000, ttl=1_000)
    assert node.left("l") == 1_900 + DAY
