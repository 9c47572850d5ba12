"""Known bugs that named tests must see: partitions shared out among members."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["PARTITIONS_MUTANTS"]

_SHARES = "_patterns/shares.py"
_PARTITIONS = "_patterns/partitions.py"
_PARTITION = "_patterns/partition.py"
_UNIT = "tests/unit/test_shares.py::"
_FACES = "tests/faces/test_partitions.py::"
_PROCESSES = "tests/processes/test_partition_processes.py::"

PARTITIONS_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "partitions-surplus-kept",
        "a member that has more than it is due keeps it",
        _SHARES,
        "        return Plan(let_go=tuple(staying[due:]))\n",
        "        return Plan()\n",
        (f"{_UNIT}test_any_state_comes_to_rest_even_and_complete_with_the_fewest_moves",),
    ),
    Mutant(
        "partitions-youngest-first",
        "the youngest have the one more, so that others give up and take when one joins",
        _SHARES,
        "    ordered = sorted(members)\n",
        "    ordered = sorted(members, reverse=True)\n",
        (f"{_UNIT}test_when_one_joins_only_its_own_share_moves",),
    ),
    Mutant(
        "partitions-tries-its-own",
        "a member tries to take what it is about to let go of",
        _SHARES,
        "    mine = {*staying, *leaving}\n",
        "    mine = {*staying}\n",
        (f"{_UNIT}test_candidates_are_all_others_once_and_one_that_is_leaving_is_neither_counted_nor_tried",),
    ),
    Mutant(
        "partitions-off-the-list",
        "a member that the store does not list counts itself all the same",
        _SHARES,
        "        return Plan()  # no member counts us",
        "        ordered.append(me)  # no member counts us",
        (f"{_UNIT}test_who_is_not_on_the_list_takes_nothing_and_gives_nothing_up",),
    ),
    Mutant(
        "partitions-lost-is-owned",
        "a partition whose lease is over is listed as owned",
        _PARTITIONS,
        "        ours = [partition for partition in tuple(self._held.values()) if partition._is_ours()]\n",
        "        ours = list(self._held.values())\n",
        (f"{_FACES}test_a_member_that_slept_too_long_owns_nothing_and_joins_again",),
    ),
    Mutant(
        "partitions-check-passes",
        "a partition that another member owns passes the check",
        _PARTITION,
        "        self._lease.check(need)\n",
        "        return\n",
        (f"{_PROCESSES}test_members_on_sqlite_that_are_killed_and_stopped",),
    ),
    Mutant(
        "partitions-no-grace",
        "a surplus is taken from a worker that is in the middle of its work",
        _PARTITIONS,
        "if index in self._held], now + self._grace)\n",
        "if index in self._held], now)\n",
        (f"{_FACES}test_a_surplus_is_announced_and_moves_when_its_worker_releases_it",),
    ),
    Mutant(
        "partitions-grace-without-end",
        "a worker that never releases keeps a partition from the others for ever",
        _PARTITIONS,
        "partition._leave_by <= now:\n",
        "partition._leave_by <= now - 1e9:\n",
        (f"{_FACES}test_what_its_worker_does_not_release_is_taken_from_it_after_the_grace_time",),
    ),
    Mutant(
        "partitions-joins-only-once",
        "a member that slept too long never becomes a member again",
        _PARTITIONS,
        "        if self._membership is None or self._membership.loss is not None:\n",
        "        if self._membership is None:\n",
        (f"{_FACES}test_a_member_that_slept_too_long_owns_nothing_and_joins_again",),
    ),
    Mutant(
        "partitions-gives-up-in-an-outage",
        "a member whose store is silent for a moment forgets what it owns, and its worker stops",
        _PARTITIONS,
        "            self._failures += 1\n",
        "            self._failures += 1\n            self._held.clear()\n",
        (f"{_FACES}test_while_the_store_is_silent_a_member_keeps_what_it_has",),
    ),
    Mutant(
        "partitions-any-count",
        "members that divide the keys by different numbers share partitions",
        _PARTITIONS,
        "count * MEMBERS_PER_PARTITION",
        "MEMBERS_PER_PARTITION",
        (f"{_FACES}test_members_must_agree_about_the_count",),
    ),
    Mutant(
        "partitions-stays-on-the-list",
        "a member that leaves stays on the list for a ttl, and its share has no owner",
        _PARTITIONS,
        "            await self._let_go(self._membership)\n",
        "            return\n",
        (f"{_FACES}test_a_member_that_is_alone_owns_all_as_soon_as_it_has_joined",),
    ),
)
