"""How partitions are shared out: even, by the same rule for everyone, and with no more moves than needed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold import partition_of
from leasehold._patterns.shares import Plan, plan, quota
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

counts = st.integers(1, 40)
seeds = st.integers(0, 2**32).map(random.Random)
fences = st.sets(st.integers(1, 1000), min_size=1, max_size=8)

Shares = dict[int, list[int]]


def quotas(count: int, members: Iterable[int]) -> dict[int, int]:
    ordered = sorted(members)
    return {member: quota(count, len(ordered), rank) for rank, member in enumerate(ordered)}


def settle(count: int, shares: Shares, chance: random.Random) -> int:
    """Let members look one after the other, in any order, until none has anything to do; how many partitions moved."""
    before = {index: member for member, held in shares.items() for index in held}
    for rounds in range(1, 10):
        busy = False
        for member in chance.sample(sorted(shares), len(shares)):
            held = shares[member]
            todo = plan(count, list(shares), member, held, ())
            busy = busy or bool(todo.let_go or todo.wanted)
            shares[member] = held = [index for index in held if index not in todo.let_go]
            taken = set().union(*shares.values())
            held += [index for index in todo.candidates if index not in taken][: todo.wanted]
        if not busy:
            assert rounds <= 3, "one round to let go, one to take, one with nothing to do"
            return sum(1 for member, held in shares.items() for i in held if before.get(i, member) != member)
    raise AssertionError("it never came to rest")


def settled(count: int, members: Iterable[int], chance: random.Random) -> Shares:
    shares: Shares = {member: [] for member in members}
    settle(count, shares, chance)
    return shares


@given(counts, fences)
def test_quotas_are_even_within_one_and_give_everything_away(count: int, members: set[int]) -> None:
    due = list(quotas(count, members).values())
    assert sum(due) == count
    assert max(due) - min(due) <= 1
    assert due == sorted(due, reverse=True), "the oldest have the one more"


@given(counts, fences, seeds, st.data())
def test_any_state_comes_to_rest_even_and_complete_with_the_fewest_moves(
    count: int, members: set[int], chance: random.Random, data: st.DataObject
) -> None:
    owner = data.draw(st.lists(st.sampled_from([0, *members]), min_size=count, max_size=count))
    shares = {member: [index for index in range(count) if owner[index] == member] for member in members}
    due = quotas(count, members)
    needed = sum(max(0, len(held) - due[member]) for member, held in shares.items())
    assert settle(count, shares, chance) <= needed
    assert {member: len(held) for member, held in shares.items()} == due
    assert sorted(index for held in shares.values() for index in held) == list(range(count))


@given(counts, fences, seeds)
def test_when_one_joins_only_its_own_share_moves(count: int, members: set[int], chance: random.Random) -> None:
    shares = settled(count, members, chance)
    newcomer = max(members) + 1
    shares[newcomer] = []
    assert settle(count, shares, chance) == len(shares[newcomer]) == count // (len(members) + 1)


@given(counts, fences, seeds)
def test_when_one_leaves_nobody_else_gives_anything_up(count: int, members: set[int], chance: random.Random) -> None:
    shares = settled(count, members, chance)
    if len(members) > 1:
        del shares[chance.choice(sorted(members))]
        kept = {member: set(held) for member, held in shares.items()}
        settle(count, shares, chance)
        for member, held in kept.items():
            assert held <= set(shares[member])


@given(counts, fences, st.data())
def test_candidates_are_all_others_once_and_one_that_is_leaving_is_neither_counted_nor_tried(
    count: int, members: set[int], data: st.DataObject
) -> None:
    me = data.draw(st.sampled_from(sorted(members)))
    mine = data.draw(st.lists(st.integers(0, count - 1), unique=True))
    cut = data.draw(st.integers(0, len(mine)))
    staying, leaving = mine[:cut], mine[cut:]
    todo = plan(count, members, me, staying, leaving)
    due = quotas(count, members)[me]
    assert todo.wanted == max(0, due - len(staying))
    assert list(todo.let_go) == staying[due:], "those that it got last"
    if todo.wanted:
        assert sorted((*todo.candidates, *mine)) == list(range(count))


def test_members_that_look_for_free_partitions_together_begin_at_different_ones() -> None:
    first = [plan(64, range(1, 9), me, (), ()).candidates[0] for me in range(1, 9)]
    assert first == [0, 8, 16, 24, 32, 40, 48, 56]


def test_who_is_not_on_the_list_takes_nothing_and_gives_nothing_up() -> None:
    assert plan(8, [1, 2], 3, [0, 1, 2], ()) == Plan()
    assert plan(8, [], 3, [0], ()) == Plan()


def test_more_members_than_partitions_leaves_the_youngest_without() -> None:
    assert list(quotas(3, range(1, 6)).values()) == [1, 1, 1, 0, 0]


def test_a_key_has_the_same_partition_in_every_process_and_language() -> None:
    assert partition_of("order:42", 64) == partition_of(b"order:42", 64) == 43
    assert partition_of("order:42", 1) == 0
    assert {partition_of(f"order:{number}", 8) for number in range(100)} == set(range(8))
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(ConfigurationError):
            partition_of("x", wrong)  # type: ignore[arg-type]
