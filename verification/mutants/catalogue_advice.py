"""Known bugs that named tests must see: choosing a store, and moving fences to it."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["ADVICE_MUTANTS"]

MOVES = "tests/fencing/test_fence_move.py"

ADVICE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "highest-fence-of-a-forgotten-name",
        "the highest fence is what the store still keeps of the name",
        "_face/operators.py",
        "return max(kept, lease.fence)",
        "return kept",
        (f"{MOVES}::test_highest_fence_is_known_although_the_store_has_forgotten_the_name",),
    ),
    Mutant(
        "highest-fence-without-a-raise",
        "the highest fence does not know of one that was raised",
        "_face/operators.py",
        "return max(kept, lease.fence)",
        "return lease.fence",
        (f"{MOVES}::test_name_that_is_paused_at_the_old_store_can_be_moved",),
    ),
    Mutant(
        "fence-move-of-a-held-name",
        "a name that is held at the old store is moved",
        "cli/fence_move.py",
        "if state.holdings or state.waiting]",
        "if state.waiting]",
        (f"{MOVES}::test_name_that_is_held_at_the_old_store_is_not_moved",),
    ),
    Mutant(
        "fence-move-all-half-done",
        "all names are said to be moved to a store that counts each by itself",
        "cli/fence_move.py",
        "        if highest <= given:\n            raise",
        "        if highest < 0:\n            raise",
        (f"{MOVES}::test_store_that_counts_each_name_and_is_behind_does_not_take_all_names",),
    ),
    Mutant(
        "choose-a-store-that-cannot",
        "a store is recommended that lacks what the pattern needs",
        "cli/choose_decide.py",
        " and _fits(_store_of(each), pattern)",
        "",
        ("tests/unit/test_choose.py::test_every_combination_has_an_answer_that_the_store_can_carry",),
    ),
)
