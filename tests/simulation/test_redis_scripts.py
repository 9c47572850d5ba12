"""The scripts of the Redis store, one call after the other: what each replies, writes, and lets expire."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold._backends.redis.scripts import script
from tests.stores.script_bench import DAY, START, ScriptBench

KEYS = ["h", "s", "q", "w", "z", "d"]
SPARE = 64


class Lock(ScriptBench):
    """One name."""

    def ask(self, name: str, owner: str, *arguments: object) -> Any:
        return self.call(script(name), [*KEYS, f"x:{owner}"], *arguments)

    def acquire(
        self,
        owner: str,
        step: str = "0",
        *more: object,
        ttl: int = 10_000,
        mode: str = "x",
        kind: int = 0,
        min_hold: int = 0,
        hint: int = 0,
    ) -> Any:
        if step != "0" and not more:
            more = (6_000, f"gchannel-{owner}")
        return self.ask("acquire", owner, step, owner, ttl, mode, kind, min_hold, f"about {owner}", hint, *more)

    def release(self, owner: str, fence: int) -> Any:
        return self.ask("release", owner, owner, fence)

    def renew(self, owner: str, fence: int, ttl: int = 10_000) -> Any:
        return self.ask("renew", owner, owner, fence, ttl)

    def withdraw(self, owner: str, mark: int = 10_000) -> Any:
        return self.ask("withdraw", owner, owner, mark)

    def break_(self, owner: str, fence: int, *, now: bool) -> Any:
        return self.ask("break", owner, owner, fence, "stuck", "1" if now else "0")

    def pause(self, milliseconds: int) -> Any:
        return self.ask("pause", "pause", milliseconds, "for repairs")

    def inspect(self) -> tuple[bytes, list[list[bytes]], list[bytes]]:
        kind, holders, waiters = self.call(script("inspect"), KEYS)
        return kind, [holders[place : place + 8] for place in range(0, len(holders), 8)], waiters

    @property
    def state(self) -> dict[str, str]:
        return self.fields("s")


@pytest.fixture
def lock() -> Lock:
    return Lock()


BOTH_WAYS = pytest.mark.parametrize("queued", [False, True], ids=["short way", "long way"])


def granted(lock: Lock, owner: str = "a", *, queued: bool = False, **words: Any) -> list[int]:
    """A grant by the short way to a free lock, or by the way that all others take."""
    if queued:
        lock.do("ZADD", "q", 1, "dead")  # a waiter whose line is gone: it is skipped
        lock.do("ZADD", "q", 2, "gone")
    reply: list[int] = lock.acquire(owner, **words)
    assert reply[0] == 1, reply
    return reply


# --- a free lock


@BOTH_WAYS
def test_grant_of_a_free_lock_is_written_whole(lock: Lock, queued: bool) -> None:
    fence = lock.now_us
    assert granted(lock, queued=queued, min_hold=250) == [1, fence, 0, START, 10_000, 0, 0]
    assert lock.do("GET", "h") == b"a"
    assert lock.left("h") == 10_000
    assert lock.state == {
        "f": str(fence), "k": "0", "o": "a", "g": str(fence), "t": str(lock.now_us), "m": "250", "a": "0",
        "d": "about a",
    }  # fmt: skip
    assert lock.left("s") >= 10_000 + DAY


@BOTH_WAYS
def test_fence_is_above_the_clock_the_highest_before_and_what_the_client_has_seen(lock: Lock, queued: bool) -> None:
    first = granted(lock, queued=queued, hint=lock.now_us + 50)[1]
    assert first == lock.now_us + 51
    assert lock.state["t"] == str(lock.now_us), "it is held since now, whatever its fence says"
    lock.release("a", first)
    assert granted(lock, "b", queued=queued)[1] == first + 1
    lock.release("b", first + 1)
    lock.pass_time(1)
    assert granted(lock, "c", queued=queued)[1] == lock.now_us


@BOTH_WAYS
@pytest.mark.parametrize(
    ("step", "mode", "kind", "spare"), [("0:8", "x", 0, 8), ("0:1", "x", 0, 1), ("0", "x", 0, 0), ("0:8", "p", 3, 0)]
)
def test_fences_behind_an_exclusive_grant_are_kept_free(
    lock: Lock, queued: bool, step: str, mode: str, kind: int, spare: int
) -> None:
    fence = lock.now_us
    assert granted(lock, queued=queued, step=step, mode=mode, kind=kind)[6] == spare
    assert lock.state["f"] == str(fence + spare)
    again = lock.acquire("a", step, mode=mode, kind=kind)
    assert again == [1, fence, 0, START, 10_000, 1, spare], "asked again, it is the same grant"
    assert lock.release("a", fence) == 1
    assert granted(lock, "b")[1] == fence + spare + 1


@BOTH_WAYS
def test_next_holder_learns_once_that_the_last_one_vanished(lock: Lock, queued: bool) -> None:
    first = granted(lock)[1]
    lock.break_("a", first, now=False)
    lock.pass_time(10_001)
    second = granted(lock, "b", queued=queued)
    assert second[2] == 1
    assert lock.state["a"] == "1"
    assert lock.renew("b", second[1]) == [1], "the break was of the holder before"
    assert "l" not in lock.state
    assert lock.release("b", second[1]) == 1
    assert granted(lock, "c", queued=queued)[2] == 0
    lock.release("c", int(lock.state["g"]))
    granted(lock, "r", mode="s")
    lock.pass_time(10_001)
    assert granted(lock, "d", queued=queued)[2] == 1, "one of several vanished"


def test_shares_learn_once_that_an_exclusive_holder_vanished_and_leave_nothing_of_it(lock: Lock) -> None:
    granted(lock)
    lock.pass_time(10_001)
    shares = [granted(lock, owner, mode="s") for owner in "bc"]
    assert [share[2] for share in shares] == [1, 0]
    assert lock.left("z") == lock.left("d") == 10_000 + DAY
    for owner, share in zip("bc", shares, strict=True):
        assert lock.release(owner, share[1]) == 1
    assert lock.left("h") == lock.left("z") == lock.left("d") == -2
    assert granted(lock, "e")[2] == 0


def test_state_of_a_name_in_use_outlives_its_fence_by_a_day(lock: Lock) -> None:
    """Its expiry is moved only now and then: a fence that is forgotten sooner can be given again."""
    for pause, ttl in ((0, 10_000), (59_000, 10_000), (1_000, 10_000), (5 * 3_600_000, 10_000), (1, 20 * 3_600_000)):
        lock.pass_time(pause)
        fence = granted(lock, ttl=ttl)[1]
        assert DAY - 60_000 + ttl <= lock.left("s") <= DAY + 60_000 + ttl, "and not for ever"
        lock.release("a", fence)
    far = granted(lock, hint=lock.now_us + 3 * DAY * 1000)[1]
    assert lock.left("s") >= 4 * DAY - 1
    lock.release("a", far)
    lock.pass_time(3 * DAY)
    assert granted(lock)[1] > far


# --- refused


def test_refusal_has_the_holder_its_time_and_the_waiters(lock: Lock) -> None:
    granted(lock)
    assert lock.acquire("b") == [0, 0, 10_000, b"about a", 0]
    assert lock.acquire("b", "1") == [2, 0, START, 10_000, b"about a", 0]
    assert lock.acquire("c", "1")[1] == 1
    lock.pass_time(1_000)
    assert lock.acquire("d") == [0, 2, 9_000, b"about a", 0]


def test_refusal_of_several_holders_has_the_one_that_ends_first(lock: Lock) -> None:
    granted(lock, "a", mode="s", ttl=20_000)
    granted(lock, "b", mode="s", ttl=10_000)
    assert lock.acquire("c") == [0, 0, 20_000, b"about b", 0], "and the time until all are over"


def test_refusal_of_a_lock_that_is_kept_for_min_hold_has_the_one_that_left(lock: Lock) -> None:
    fence = granted(lock, min_hold=3_000)[1]
    lock.pass_time(1_000)
    assert lock.release("a", fence) == 1
    assert lock.acquire("b") == [0, 0, 2_000, b"about a", 0]
    lock.pass_time(2_001)
    assert granted(lock, "b")[2] == 0, "it was released"


def test_refusal_of_a_foreign_holder_has_no_name_but_its_time(lock: Lock) -> None:
    fence = granted(lock)[1]
    lock.release("a", fence)
    lock.do("SET", "h", "theirs", "PX", 700)
    assert lock.acquire("b") == [0, 0, 700, b"", 0]
    lock.do("SET", "h", "theirs")
    assert lock.acquire("b") == [0, 0, 0, b"", 0]


def test_refusal_of_a_paused_name_has_the_pause_first(lock: Lock) -> None:
    fence = granted(lock)[1]
    assert lock.pause(60_000) == 1
    assert lock.acquire("b") == [0, 0, 60_000, b"for repairs", 0]
    assert lock.renew("a", fence) == [1], "it touches no grant"
    assert lock.release("a", fence) == 1
    assert lock.acquire("b")[0] == 0
    lock.pass_time(60_000)
    assert granted(lock, "b")[0] == 1
    assert "p" not in lock.state


# --- asked again


def test_grant_that_is_asked_for_again_starts_anew(lock: Lock) -> None:
    fence = granted(lock)[1]
    lock.pass_time(4_000)
    assert lock.acquire("a", ttl=600_000) == [1, fence, 0, lock.ms, 600_000, 1, 0]
    assert lock.left("h") == 600_000
    assert lock.left("s") >= 600_000 + DAY
    lock.break_("a", fence, now=False)
    assert lock.acquire("a")[0] == 0, "a broken one is not granted again"


@pytest.mark.parametrize("mode", ["x", "s"])
def test_grant_that_is_asked_for_again_says_again_that_the_last_holder_vanished(lock: Lock, mode: str) -> None:
    granted(lock)
    lock.pass_time(10_001)
    fence = granted(lock, "b", mode=mode)[1]
    assert lock.acquire("b", mode=mode)[:3] == [1, fence, 1], "the first answer may have been lost"


def test_share_that_is_asked_for_again_starts_anew(lock: Lock) -> None:
    fence = granted(lock, mode="s")[1]
    lock.pass_time(4_000)
    assert lock.acquire("a", mode="s", ttl=600_000) == [1, fence, 0, lock.ms, 600_000, 1, 0]
    assert lock.left("h") == 600_000
    assert lock.left("s") >= 600_000 + DAY
    granted(lock, "b", mode="s")
    assert lock.break_("a", fence, now=False) == 1
    assert lock.acquire("a", mode="s")[0] == 0


@pytest.mark.parametrize("mode", ["x", "s"])
@pytest.mark.parametrize("step", ["0", "1"])
def test_late_copy_of_a_claim_that_was_released_gets_neither_the_lock_nor_a_place(
    lock: Lock, mode: str, step: str
) -> None:
    fence = granted(lock, mode=mode, min_hold=3_000)[1]
    assert lock.release("a", fence) == 1
    lock.pass_time(1_000)
    assert lock.acquire("a", step, mode=mode, min_hold=3_000) == [0, 0, 2_000, b"about a", 0]
    assert lock.left("h") == 2_000, "it is kept for its min_hold, and no longer"
    assert lock.do("ZCARD", "q") == 0


def test_claim_that_was_withdrawn_is_refused_for_as_long_as_its_mark_stays(lock: Lock) -> None:
    lock.withdraw("a", 5_000)
    assert lock.left("x:a") == 5_000
    assert lock.acquire("a") == lock.acquire("a", "1") == [0, 0, -2, b"", 0]
    assert lock.do("ZCARD", "q") == 0
    lock.pass_time(5_001)
    assert granted(lock)[0] == 1


# --- the queue


def test_turn_on_a_free_lock_is_no_grant_for_a_claim_without_a_place(lock: Lock) -> None:
    assert lock.acquire("a", "2") == [0, 0, -2, b"", 0], "it was passed over, and has to learn that"
    assert lock.do("GET", "h") is None


def test_late_copy_of_a_first_request_does_not_change_how_a_waiter_is_called_nor_for_how_long(lock: Lock) -> None:
    granted(lock, ttl=60_000)
    lock.acquire("b", "1", 6_000, "gthere")
    line = lock.do("HGET", "w", "b")
    lock.pass_time(1_000)
    assert lock.acquire("b", "0", 0, "") == [0, 1, 59_000, b"about a", 0]
    assert lock.do("HGET", "w", "b") == line


def test_refusal_counts_the_waiters_that_are_left_when_dead_ones_are_gone(lock: Lock) -> None:
    granted(lock, mode="s", ttl=60_000)
    lock.acquire("dead", "1", 1_000, "g1")
    lock.acquire("b", "1", 6_000, "g2")
    lock.pass_time(2_000)
    assert lock.acquire("c")[:2] == [0, 1]


def test_place_is_kept_by_asking_and_lost_by_silence(lock: Lock) -> None:
    granted(lock, ttl=60_000)
    assert lock.acquire("b", "1")[1] == 0
    assert lock.acquire("c", "1")[1] == 1
    lock.pass_time(4_000)
    assert lock.acquire("c", "2")[1] == 1
    lock.pass_time(2_000)
    assert lock.acquire("c", "2")[:2] == [2, 0], "the one before it was silent for too long"
    assert lock.acquire("b", "2")[0] == 0, "it has no place any more, and gets none by asking"
    assert lock.acquire("b", "1")[1] == 1


def test_keys_of_the_queue_end_by_themselves(lock: Lock) -> None:
    granted(lock, ttl=600_000)
    lock.acquire("b", "1")
    assert lock.left("q") == lock.left("w") == 20_000
    lock.pass_time(5_000)
    lock.acquire("b", "2")
    assert lock.left("q") == lock.left("w") == 20_000


def test_state_of_a_name_that_has_only_waiters_ends_by_itself(lock: Lock) -> None:
    lock.do("SET", "h", "theirs")
    lock.acquire("b", "1")
    assert 0 < lock.left("s") <= 2 * DAY
    assert lock.state["k"] == "0"


@pytest.mark.parametrize(("how", "command"), [("g", "PUBLISH"), ("G", "SPUBLISH")])
def test_release_hands_over_to_the_next_and_tells_it_all(lock: Lock, how: str, command: str) -> None:
    fence = granted(lock)[1]
    lock.acquire("b", "1", 6_000, f"{how}there", ttl=30_000, min_hold=100)
    lock.acquire("c", "1")
    lock.pass_time(1_000)
    assert lock.release("a", fence) == 1
    handed = lock.now_us
    assert lock.published == [(command, "there", ["g", "b", str(handed), str(lock.ms), f"r{SPARE}", "30000"])]
    assert lock.do("GET", "h") == b"b"
    assert lock.left("h") == 30_000
    assert lock.state == {
        "f": str(handed + SPARE), "k": "0", "n": "2", "o": "b", "g": str(handed), "t": str(handed), "m": "100",
        "a": "0", "d": "about b",
    }  # fmt: skip
    assert lock.acquire("b", "2") == [1, handed, 0, lock.ms, 10_000, 1, SPARE]
    assert lock.do("ZRANGE", "q", 0, -1) == [b"c"]


def test_hand_over_after_a_holder_vanished_says_so_and_keeps_no_fences(lock: Lock) -> None:
    granted(lock, ttl=2_000)
    lock.acquire("b", "1", 6_000, "gthere")
    lock.pass_time(2_001)
    assert lock.acquire("c")[0] == 0, "no claim overtakes a waiter"
    ((_, _, words),) = lock.published
    assert (words[0], words[1], words[4]) == ("g", "b", "1")
    assert lock.state["f"] == lock.state["g"]
    assert lock.state["a"] == "1"


@pytest.mark.parametrize(
    ("ttl", "silent", "handed"), [(30_000, 3_001, 30_000), (30_000, 3_002, 3_001), (2_000, 3_002, 2_000)]
)
def test_waiter_that_missed_its_recheck_is_handed_a_window_only(lock: Lock, ttl: int, silent: int, handed: int) -> None:
    fence = granted(lock)[1]
    lock.acquire("b", "1", 6_002, "gthere", ttl=ttl)
    lock.pass_time(silent)
    lock.release("a", fence)
    assert lock.published[0][2][5] == str(handed)
    assert lock.left("h") == handed, "what it was told is what it has"


def test_place_ends_in_the_very_millisecond(lock: Lock) -> None:
    fence = granted(lock)[1]
    lock.acquire("b", "1", 6_000, "gthere")
    lock.pass_time(6_000)
    lock.release("a", fence)
    assert lock.published == []
    assert (lock.do("ZCARD", "q"), lock.do("GET", "h")) == (0, None)


@pytest.mark.parametrize("how", ["gthere", ""], ids=["by a message", "by asking"])
def test_fence_of_a_waiter_is_above_what_its_client_has_seen(lock: Lock, how: str) -> None:
    first = granted(lock)[1]
    seen = lock.now_us + 5_000_000
    lock.acquire("b", "1", 6_000, how, hint=seen)
    lock.pass_time(1_000)
    lock.release("a", first)
    assert lock.acquire("b", "2", 6_000, how, hint=seen)[:2] == [1, seen + 1]


def test_readers_that_are_let_in_together_learn_once_that_the_writer_vanished(lock: Lock) -> None:
    granted(lock, ttl=2_000)
    for reader in ("r1", "r2"):
        lock.acquire(reader, "1", 6_000, f"g{reader}", mode="s")
    lock.pass_time(2_001)
    lock.acquire("c")
    assert [(words[1], words[4]) for _, _, words in lock.published] == [("r1", "1"), ("r2", "0")]
    assert "l" not in lock.state


def test_what_was_of_the_last_holder_is_forgotten_where_the_next_one_has_to_ask(lock: Lock) -> None:
    fence = granted(lock)[1]
    lock.acquire("b", "1", 6_000, "")
    lock.break_("a", fence, now=False)
    assert lock.release("a", fence) == [2, b"stuck"]
    assert not {"o", "b", "d"} & lock.state.keys()
    got = lock.acquire("b", "2", 6_000, "")
    assert lock.renew("b", got[1]) == [1], "the break was of the holder before"


@pytest.mark.parametrize(("how", "command"), [("w", "PUBLISH"), ("W", "SPUBLISH")])
def test_waiter_that_only_wakes_is_told_and_asks(lock: Lock, how: str, command: str) -> None:
    fence = granted(lock)[1]
    lock.acquire("b", "1", 6_000, f"{how}there")
    lock.release("a", fence)
    assert lock.published == [(command, "there", ["w", "b"])]
    assert lock.do("GET", "h") is None
    assert lock.acquire("c")[0] == 0
    got = lock.acquire("b", "2", 6_000, f"{how}there")
    assert (got[0], got[5], got[6]) == (1, 0, SPARE)
    assert lock.do("ZCARD", "q") == 0


@pytest.mark.parametrize("how", ["g", "w"])
def test_waiter_whose_client_is_gone_is_passed_over(lock: Lock, how: str) -> None:
    fence = granted(lock)[1]
    lock.acquire("b", "1", 6_000, f"{how}there")
    lock.receivers = 0
    assert lock.release("a", fence) == 1
    assert lock.do("GET", "h") is None
    assert lock.do("ZCARD", "q") == lock.do("HLEN", "w") == 0
    assert granted(lock, "c")[2] == 0


def test_waiter_that_polls_is_let_in_when_it_asks(lock: Lock) -> None:
    fence = granted(lock)[1]
    lock.acquire("b", "1", 6_000, "")
    lock.acquire("c", "1", 6_000, "")
    lock.release("a", fence)
    assert lock.published == []
    assert lock.acquire("d")[:2] == [0, 2], "nobody overtakes it"
    assert lock.acquire("c", "2", 6_000, "")[:2] == [2, 1]
    assert lock.acquire("b", "2", 6_000, "")[0] == 1


def test_readers_that_wait_are_let_in_together_and_a_writer_behind_them_is_not(lock: Lock) -> None:
    fence = granted(lock)[1]
    for owner, mode in (("b", "s"), ("c", "s"), ("d", "x"), ("e", "s")):
        assert lock.acquire(owner, "1", mode=mode)[0] == 2
    lock.release("a", fence)
    assert [words[1] for _, _, words in lock.published] == ["b", "c"]
    assert {words[4] for _, _, words in lock.published} == {"0"}, "a share has no fences behind it"
    fences = [int(words[2]) for _, _, words in lock.published]
    assert fences[0] < fences[1]
    lock.release("b", fences[0])
    assert len(lock.published) == 2
    lock.release("c", fences[1])
    assert lock.published[2][2][1] == "d"


@pytest.mark.parametrize("capacity", [1, 2])
def test_semaphore_admits_as_many_as_it_has_permits(lock: Lock, capacity: int) -> None:
    fences = [granted(lock, str(place), mode="p", kind=capacity)[1] for place in range(capacity)]
    assert lock.acquire("b", mode="p", kind=capacity)[0] == 0
    lock.acquire("b", "1", mode="p", kind=capacity)
    lock.release("0", fences[0])
    assert lock.published[0][2][1] == "b"
    assert lock.acquire("c", mode="p", kind=capacity)[0] == 0


def test_name_in_use_has_one_kind_and_a_free_one_any(lock: Lock) -> None:
    fence = granted(lock, mode="p", kind=2)[1]
    assert lock.acquire("b") == [3, b"2"]
    assert lock.acquire("b", mode="p", kind=3) == [3, b"2"]
    lock.release("a", fence)
    fence = granted(lock, "b")[1]
    assert lock.acquire("c", mode="p", kind=2) == [3, b"0"]
    assert lock.acquire("c", mode="s")[0] == 0, "readers and writers share a name"
    lock.acquire("c", "1", mode="s")
    lock.receivers = 0
    lock.release("b", fence)
    assert granted(lock, "d", mode="p", kind=2)[0] == 1
    assert lock.state["k"] == "2"


# --- renew


def test_renewal_moves_every_end(lock: Lock) -> None:
    fence = granted(lock)[1]
    lock.pass_time(9_000)
    assert lock.renew("a", fence, 50_000) == [1]
    assert lock.left("h") == 50_000
    assert lock.left("s") == 50_000 + DAY
    assert lock.renew("a", fence - 1) == lock.renew("b", fence) == [0]
    assert lock.renew("a", fence + 1) == [0], "no such fence was kept free"
    lock.pass_time(50_001)
    assert lock.renew("a", fence) == [0]


def test_renewal_under_a_fence_that_was_kept_free_makes_it_the_grant_s(lock: Lock) -> None:
    fence = granted(lock, step="0:8")[1]
    for later in (fence + 3, fence + 8):
        assert lock.renew("a", later) == [1]
        assert lock.state["g"] == str(later)
    assert lock.renew("a", fence + 3) == [0], "it was passed on"
    assert lock.renew("a", fence + 9) == [0]
    assert lock.release("a", fence + 8) == 1


def test_renewal_of_a_share_keeps_the_longest(lock: Lock) -> None:
    first = granted(lock, "a", mode="s", ttl=20_000)[1]
    second = granted(lock, "b", mode="s")[1]
    lock.pass_time(5_000)
    assert lock.renew("b", second) == [1]
    assert lock.left("h") == 15_000, "the other one lasts longer"
    assert lock.renew("a", first, 50_000) == [1]
    assert lock.left("h") == 50_000
    assert lock.left("z") == lock.left("d") == lock.left("s") == 50_000 + DAY
    assert lock.renew("b", first) == [0]
    lock.pass_time(10_000)
    assert lock.renew("b", second) == [0], "its own time is over"


def test_renewal_during_a_pause_does_not_forget_the_pause(lock: Lock) -> None:
    fence = granted(lock)[1]
    lock.pause(3 * DAY)
    assert lock.left("s") >= 4 * DAY
    assert lock.renew("a", fence) == [1]
    assert lock.left("s") >= 4 * DAY
    share = Lock()
    fence = granted(share, mode="s")[1]
    share.pause(3 * DAY)
    assert share.renew("a", fence) == [1]
    assert share.left("s") >= 4 * DAY


# --- release


@pytest.mark.parametrize(("spare", "taken"), [(0, 1), (4, 1), (5, 0)])
def test_release_takes_the_fence_of_the_grant_and_those_kept_free_behind_it(lock: Lock, spare: int, taken: int) -> None:
    fence = granted(lock, step="0:4")[1]
    assert lock.release("a", fence - 1) == 0
    assert lock.release("a", fence + spare) == taken
    assert (lock.do("GET", "h") is None) is (taken == 1)


def test_release_that_is_repeated_or_of_another_frees_nothing(lock: Lock) -> None:
    fence = granted(lock)[1]
    assert lock.release("b", fence) == 0
    assert lock.release("a", fence) == 1
    assert lock.release("a", fence) == 0
    assert "o" not in lock.state
    later = granted(lock, "b")[1]
    assert lock.release("a", fence) == 0
    assert lock.renew("b", later) == [1]


@pytest.mark.parametrize(("after", "kept"), [(0, 3_000), (2_999, 1), (3_000, -2)])
def test_min_hold_keeps_what_is_left_of_it_and_no_more(lock: Lock, after: int, kept: int) -> None:
    fence = granted(lock, min_hold=3_000)[1]
    lock.pass_time(after)
    assert lock.release("a", fence) == 1
    assert lock.left("h") == kept
    assert lock.release("a", fence) == 0
    share = Lock()
    fence = granted(share, mode="s", min_hold=3_000)[1]
    share.pass_time(after)
    assert share.release("a", fence) == 1
    assert share.left("h") == kept
    assert share.release("a", fence) == 0


@pytest.mark.parametrize("released", [True, False])
@pytest.mark.parametrize(("mode", "kind"), [("x", 0), ("s", 0), ("p", 3)])
def test_only_what_was_not_released_counts_as_abandoned_also_after_a_min_hold(
    lock: Lock, mode: str, kind: int, released: bool
) -> None:
    fence = granted(lock, mode=mode, kind=kind, min_hold=3_000)[1]
    if released:
        assert lock.release("a", fence) == 1
    lock.pass_time(10_001)
    assert granted(lock, "b", mode=mode, kind=kind)[2] == (not released)


def test_lock_that_is_kept_for_min_hold_is_handed_over_afterwards(lock: Lock) -> None:
    fence = granted(lock, min_hold=3_000)[1]
    lock.acquire("b", "1")
    lock.release("a", fence)
    assert lock.published == []
    lock.pass_time(3_001)
    assert lock.acquire("b", "2")[0] == 1
    assert lock.state["a"] == "0"


# --- withdraw, break


def test_withdrawal_of_a_holder_passes_the_lock_on(lock: Lock) -> None:
    granted(lock)
    lock.acquire("b", "1")
    assert lock.withdraw("a") == 1
    assert lock.published[0][2][1] == "b"
    assert lock.published[0][2][4] == f"r{SPARE}", "nobody vanished"


def test_withdrawal_of_a_share_and_of_a_place_leaves_nothing_of_it(lock: Lock) -> None:
    granted(lock, mode="s")
    granted(lock, "b", mode="s")
    lock.acquire("c", "1")
    assert lock.withdraw("a", 0) == lock.withdraw("c", 0) == 1
    assert lock.do("ZRANGE", "z", 0, -1) == [b"b"]
    assert {name.partition(":")[0] for name in lock.fields("d")} == {"b"}
    assert lock.do("ZCARD", "q") == lock.do("HLEN", "w") == 0
    assert lock.left("x:a") == lock.left("x:c") == -2


@pytest.mark.parametrize("mode", ["x", "s"])
def test_next_holder_learns_of_the_vanished_one_when_its_own_heir_withdraws(lock: Lock, mode: str) -> None:
    granted(lock, mode=mode)
    lock.pass_time(10_001)
    assert granted(lock, "b", mode=mode)[2] == 1
    assert lock.withdraw("b") == 1
    assert granted(lock, "c", mode=mode)[2] == 1


@pytest.mark.parametrize("fence", [-1, 0, 4, 5])
@pytest.mark.parametrize("now", [True, False])
def test_break_takes_the_fence_of_the_grant_and_those_kept_free_behind_it(lock: Lock, fence: int, now: bool) -> None:
    first = granted(lock, step="0:4")[1]
    done = 0 <= fence <= 4
    assert lock.break_("a", first + fence, now=now) == done
    assert lock.renew("a", first) == ([2, b"stuck"] if done else [1])
    assert (lock.do("GET", "h") is None) is (done and now)


@pytest.mark.parametrize("mode", ["x", "s"])
def test_break_at_once_leaves_its_reason_for_as_long_as_the_grant_would_have_lasted(lock: Lock, mode: str) -> None:
    fence = granted(lock, mode=mode)[1]
    lock.pass_time(4_000)
    assert lock.break_("b", fence, now=True) == 0
    assert lock.break_("a", fence + 1, now=True) == 0
    assert lock.break_("a", fence, now=True) == 1
    assert lock.left("x:a") == 6_000
    assert lock.left("h") == -2
    assert lock.release("a", fence) == [2, b"stuck"]
    later = granted(lock, "c", mode=mode)
    assert later[2] == 1, "its work may be half done"
    assert lock.release("c", later[1]) == 1
    assert granted(lock, "d", mode=mode)[2] == 0, "the next one is not told again"


def test_break_hands_the_lock_to_the_next(lock: Lock) -> None:
    fence = granted(lock)[1]
    lock.acquire("b", "1")
    lock.break_("a", fence, now=True)
    assert lock.published[0][2][1] == "b"
    share = Lock()
    fence = granted(share, mode="s")[1]
    share.acquire("b", "1")
    share.break_("a", fence, now=True)
    assert share.published[0][2][1] == "b"


def test_next_holder_is_not_broken_with_the_one_before(lock: Lock) -> None:
    fence = granted(lock)[1]
    lock.acquire("b", "1")
    lock.break_("a", fence, now=False)
    assert lock.release("a", fence) == [2, b"stuck"]
    assert lock.renew("b", int(lock.state["g"])) == [1]
    assert lock.acquire("b", "2")[0] == 1


def test_share_whose_time_is_over_is_neither_shown_nor_broken(lock: Lock) -> None:
    fence = granted(lock, mode="s")[1]
    granted(lock, "b", mode="s", ttl=20_000)
    lock.pass_time(10_001)
    assert [holder[:2] for holder in lock.inspect()[1]] == [[b"b", b"s"]]
    fence = granted(lock, "c", mode="s", ttl=1_000)[1]
    lock.pass_time(1_001)
    assert lock.break_("c", fence, now=True) == 0


@pytest.mark.parametrize(
    ("replication", "life", "held_off"),
    [
        ("master_replid:def\r\nmaster_replid2:0000\r\n", "abc:def", 0),
        ("master_replid:def\r\nmaster_replid2:0120\r\n", "abc:def", 30_000),
        ("", "abc:", 0),
    ],
)
def test_strict_script_sees_which_life_of_which_server_runs_it(
    lock: Lock, replication: str, life: str, held_off: int
) -> None:
    """When a server was promoted is not known, so how long it has run says nothing."""
    lock.uptime, lock.replication = 50, replication
    reply = lock.acquire("a", "0", 6_000, "", 30_000)
    assert (reply[0], lock.state["r"]) == (0 if held_off else 1, life)
    assert int(lock.state["u"]) - lock.ms == (held_off or -20_000)


@pytest.mark.parametrize("known", [False, True])
def test_strict_server_grants_nothing_until_all_leases_of_its_other_life_are_over(lock: Lock, known: bool) -> None:
    def strict(owner: str, life: str, age: int, step: str = "0") -> Any:
        lock.run_id, lock.uptime = life, age // 1_000
        return lock.acquire(owner, step, 6_000, f"w{owner}", 30_000)

    if known:
        fence = strict("a", "old", 90_000)[1]
        lock.release("a", fence)
    assert strict("b", "new", 20_000) == [0, 0, 30_000 if known else 10_000, b"", 30_000 if known else 10_000]
    assert 0 < lock.left("s") <= DAY + 60_000
    assert strict("b", "new", 20_000, "1")[0] == 2, "but it has a place"
    lock.pass_time(9_000)
    assert strict("c", "new", 29_000)[4] == (21_000 if known else 1_000), "the end stays where it is"
    lock.pass_time(21_001)
    assert strict("c", "new", 50_001)[0] == 1
    assert strict("d", "new", 50_001)[2:] == [10_000, b"about c", 0]


def test_share_that_was_released_is_not_broken(lock: Lock) -> None:
    fence = granted(lock, mode="s", min_hold=3_000)[1]
    lock.release("a", fence)
    assert lock.break_("a", fence, now=True) == 0


# --- pause, inspect, fences, records


def test_pause_is_found_by_its_key_and_resuming_lets_the_next_in(lock: Lock) -> None:
    assert lock.pause(0) == 0
    assert lock.pause(60_000) == 1
    assert lock.left("x:pause") == 60_000
    assert lock.left("s") >= 60_000 + DAY - 1
    assert lock.acquire("b", "1")[0] == 2
    assert lock.pause(0) == 1
    assert lock.left("x:pause") == -2
    assert lock.published[0][2][1] == "b"
    assert "p" not in lock.state
    lock.pause(1_000)
    lock.pass_time(1_000)
    assert lock.pause(0) == 0, "it was over"


def test_inspect_shows_holders_waiters_and_the_pause(lock: Lock) -> None:
    fence = granted(lock, ttl=20_000)[1]
    lock.acquire("b", "1", mode="s")
    lock.pause(60_000)
    lock.pass_time(2_000)
    kind, holders, waiters = lock.inspect()
    assert kind == b"0"
    assert holders == [
        [b"a", b"x", b"%d" % fence, b"2000000", b"18000", b"", b"0", b"about a"],
        [b"", b"", b"0", b"2000000", b"58000", b"", b"0", b"for repairs"],
    ]
    assert waiters == [b"s", b"about b"]
    lock.break_("a", fence, now=False)
    assert lock.inspect()[1][0][5:7] == [b"stuck", b"0"]
    lock.pass_time(4_000)
    assert lock.inspect()[2] == [], "it was silent for too long"


def test_inspect_shows_each_of_several_holders(lock: Lock) -> None:
    first = granted(lock, "a", mode="p", kind=3, min_hold=5_000)[1]
    lock.pass_time(1_000)
    second = granted(lock, "b", mode="p", kind=3)[1]
    lock.release("a", first)
    lock.break_("b", second, now=False)
    kind, holders, _ = lock.inspect()
    assert kind == b"3"
    assert holders == [
        [b"a", b"p", b"%d" % first, b"1000000", b"4000", b"", b"1", b"about a"],
        [b"b", b"p", b"%d" % second, b"0", b"10000", b"stuck", b"0", b"about b"],
    ]
    assert Lock().inspect() == (b"0", [], [])


def test_inspect_shows_what_is_kept_and_what_is_foreign(lock: Lock) -> None:
    fence = granted(lock, min_hold=5_000)[1]
    lock.pass_time(1_000)
    lock.release("a", fence)
    assert lock.inspect()[1] == [[b"", b"x", b"%d" % fence, b"1000000", b"4000", b"", b"1", b"about a"]]
    lock.do("SET", "h", "theirs", "PX", 700)
    assert lock.inspect()[1] == [[b"", b"x", b"0", b"0", b"700", b"", b"0", b""]]


def test_raised_fence_is_kept_until_a_day_after_its_own_time(lock: Lock) -> None:
    far = lock.now_us + 5 * DAY * 1000
    assert lock.call(script("raise_fence"), KEYS, far) == far
    assert lock.left("s") == 6 * DAY
    assert lock.call(script("raise_fence"), KEYS, 7) == far
    assert lock.left("s") == 6 * DAY, "it is not forgotten sooner"
    assert granted(lock)[1] == far + 1
    low = Lock()
    assert low.call(script("raise_fence"), KEYS, 7) == 7
    assert low.left("s") == DAY


def test_raised_fence_does_not_shorten_what_is_known_of_a_long_lease(lock: Lock) -> None:
    granted(lock, ttl=3 * DAY)
    assert lock.left("s") == 4 * DAY
    lock.call(script("raise_fence"), KEYS, lock.now_us + 1)
    assert lock.left("s") == 4 * DAY


@pytest.mark.parametrize("how", ["at once", "the long way", "shared", "handed over", "after a withdrawal"])
def test_raised_fence_is_kept_as_long_whoever_is_granted_next(lock: Lock, how: str) -> None:
    """A name that forgot it would give out lower fences, and the resources that saw the higher one refuse them."""
    far = lock.now_us + 5 * DAY * 1000
    handed_over = how in {"handed over", "after a withdrawal"}
    if handed_over:
        fence = granted(lock)[1]
        lock.acquire("b", "1")
    assert lock.call(script("raise_fence"), KEYS, far) == far
    if how == "handed over":
        lock.release("a", fence)
    elif how == "after a withdrawal":
        lock.withdraw("a")
    else:
        granted(lock, queued=how == "the long way", mode="s" if how == "shared" else "x")
    if handed_over:
        assert int(lock.published[0][2][2]) == far + 1
    assert int(lock.state["f"]) > far
    assert lock.left("s") >= 6 * DAY


def test_reading_under_a_higher_fence_does_not_end_a_record_that_lasts_longer(lock: Lock) -> None:
    fence = lock.now_us
    assert lock.call(script("write_record"), ["r"], "value", fence, 3 * DAY) == 1
    assert lock.call(script("read_record"), ["r"], fence + 1)[:3] == [b"value", 3 * DAY, fence + 1]
    assert lock.left("r") == 4 * DAY


def test_record_is_there_for_its_ttl_and_its_fence_for_a_day_longer(lock: Lock) -> None:
    fence = lock.now_us
    assert lock.call(script("write_record"), ["r"], "value", fence, 5_000) == 1
    assert lock.call(script("write_record"), ["r"], "late", fence - 1, 5_000) == 0
    assert lock.call(script("write_record"), ["r"], "same", fence, 5_000) == 1
    lock.pass_time(4_999)
    assert lock.call(script("read_record"), ["r"], 0) == [b"same", 1, fence, lock.now_us]
    lock.pass_time(1)
    assert lock.call(script("read_record"), ["r"], 0) == [None, 0, fence, lock.now_us]
    assert lock.left("r") == DAY
    ahead = fence + 2 * DAY * 1000
    assert lock.call(script("read_record"), ["r"], ahead)[2] == ahead
    assert lock.left("r") == 3 * DAY - 5_000
    assert lock.call(script("write_record"), ["r"], "late", ahead - 1, 5_000) == 0
    assert lock.call(script("write_record"), ["r"], "value", ahead, 5_000) == 1
    assert lock.left("r") == 3 * DAY - 5_000
    assert lock.call(script("read_record"), ["r"], ahead)[0] == b"value"


# --- what a break and a release leave


def test_grant_after_a_broken_one_that_was_released_at_once_is_not_broken(lock: Lock) -> None:
    fence = granted(lock)[1]
    lock.break_("a", fence, now=False)
    assert lock.release("a", fence) == [2, b"stuck"]
    assert "b" not in lock.state
    assert lock.renew("b", granted(lock, "b")[1]) == [1]


@pytest.mark.parametrize(("mode", "behind"), [("x", 0), ("x", 3), ("s", 0)])
def test_release_of_a_broken_grant_that_is_kept_for_min_hold_is_answered_alike_again(
    lock: Lock, mode: str, behind: int
) -> None:
    fence = granted(lock, step="0:8", mode=mode, min_hold=3_000)[1] + behind
    lock.break_("a", fence, now=False)
    assert lock.release("a", fence) == [2, b"stuck"]
    assert lock.release("a", fence) == [2, b"stuck"]
    assert lock.acquire("a", "1", mode=mode)[0] == 0, "a late copy of its claim gets no place"
    (holder,) = lock.inspect()[1]
    assert (int(holder[2]), holder[5], holder[6]) == (fence, b"stuck", b"1")


def test_share_that_was_released_is_neither_renewed_nor_withdrawn_before_its_min_hold_is_over(lock: Lock) -> None:
    fence = granted(lock, mode="s", min_hold=3_000)[1]
    lock.release("a", fence)
    assert lock.renew("a", fence) == [0]
    lock.withdraw("a")
    assert lock.left("h") == 3_000


def test_details_of_a_share_go_with_it_whatever_became_of_it(lock: Lock) -> None:
    fence = granted(lock, mode="s", min_hold=1_000)[1]
    granted(lock, "b", mode="s", ttl=60_000)
    lock.break_("a", fence, now=False)
    lock.release("a", fence)
    lock.pass_time(1_001)
    lock.acquire("c")
    assert {name[:2] for name in lock.fields("d")} == {"b:"}


def test_withdrawal_of_a_share_lets_the_next_in(lock: Lock) -> None:
    granted(lock, mode="p", kind=1)
    lock.acquire("b", "1", 6_000, "gthere", mode="p", kind=1)
    lock.withdraw("a")
    assert [words[:2] for _, _, words in lock.published] == [["g", "b"]]


def test_withdrawal_of_what_was_broken_at_once_keeps_the_reason_for_as_long_as_its_mark(lock: Lock) -> None:
    fence = granted(lock)[1]
    lock.break_("a", fence, now=True)
    lock.withdraw("a", 60_000)
    assert lock.left("x:a") == 60_000
    assert lock.release("a", fence) == [2, b"stuck"]


def test_reason_of_a_break_at_once_is_told_under_every_fence_behind_that_of_the_grant(lock: Lock) -> None:
    fence = granted(lock, step="0:8")[1]
    lock.break_("a", fence, now=True)
    assert lock.renew("a", fence + 3) == lock.release("a", fence + 3) == [2, b"stuck"]
    assert lock.renew("a", fence - 1) == [0], "it is about another grant"
    lock.do("SET", "x:a", "bof an earlier version")
    assert lock.renew("a", fence) == [2, b"of an earlier version"]


def test_renewal_does_not_forget_a_fence_that_was_raised_far_ahead(lock: Lock) -> None:
    fence = granted(lock)[1]
    lock.do("HSET", "s", "f", fence + 7 * DAY * 1000)
    lock.renew("a", fence)
    assert lock.left("s") == 8 * DAY
