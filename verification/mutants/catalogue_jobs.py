"""Known bugs that named tests must see: jobs, their operators, and pauses."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant, contract

__all__ = ["JOBS_MUTANTS"]

_ONCE = "_patterns/once.py"
_RECORDS = "_patterns/job_records.py"
_PAUSES = "kit/pauses.py"
_OPERATORS = "tests/faces/test_job_operators.py"


def _pattern(case: str) -> tuple[str, ...]:
    return (f"tests/patterns/test_patterns_memory.py::test_patterns[job_operators:{case}-ThreadDriver]",)


JOBS_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "jobs-again-twice",
        "two operators who run a slot again both run it",
        _ONCE,
        "            repeats = seen is not None and reading.record is not None and reading.record.value == seen\n",
        "            repeats = seen is not None\n",
        _pattern("of_two_orders_to_run_a_slot_again_one_runs"),
    ),
    Mutant(
        "jobs-again-another-slot",
        "an order to run a slot again runs while a later slot was the last, and opens that",
        _ONCE,
        "(self._order is None or skipped.slot != slot.label)",
        "self._order is None",
        (f"{_OPERATORS}::test_running_again_does_not_open_a_later_slot",),
    ),
    Mutant(
        "jobs-failed-not-told",
        "a run that failed is not shown to operators",
        "_patterns/once_run.py",
        "        if loss is None and (not closed or self._slot.start is None):\n",
        "        if loss is None and self._slot.start is None:\n",
        (f"{_OPERATORS}::test_a_run_that_failed_is_remembered_longer_than_its_slot_and_a_later_one_replaces_it",),
    ),
    Mutant(
        "jobs-forgotten-counts",
        "a slot that was forgotten still counts as run",
        _RECORDS,
        '    if facts is None or facts.get("forgotten") is not None:\n        return None\n    if slot.start',
        "    if facts is None:\n        return None\n    if slot.start",
        _pattern("a_slot_that_a_job_was_made_to_forget_runs_again"),
    ),
    Mutant(
        "jobs-forgets-while-running",
        "a paused job that still runs is made to forget, and its record is refused",
        _RECORDS,
        "        if state.holdings:\n",
        "        if not state.holdings:\n",
        (f"{_OPERATORS}::test_a_paused_job_that_still_runs_is_not_made_to_forget",),
    ),
    Mutant(
        "jobs-fence-of-a-run",
        "beside a pause, an operator writes under a fence that a later run gets as well",
        _RECORDS,
        "            if await raise_fence(key, highest + 1) == highest + 1:\n",
        "            if highest:\n",
        (f"{_OPERATORS}::test_forgetting_beside_a_pause_does_not_take_a_fence_that_a_later_run_gets",),
    ),
    Mutant(
        "jobs-none-is-skipped",
        "a function that returns None looks as if it had been skipped",
        "_patterns/job_result.py",
        "        return self.ran\n",
        "        return self._value is not None\n",
        ("tests/faces/test_job_result.py::test_a_function_that_returns_none_is_not_taken_for_skipped",),
    ),
    Mutant(
        "pause-permits",
        "a paused semaphore gives out permits",
        "kit/rules.py",
        "        return not holders.exclusive and holders.number + ahead.number < claim.capacity",
        "        return holders.number + ahead.number < claim.capacity",
        contract("pauses:every_kind_of_lock_can_be_paused"),
    ),
    Mutant(
        "pause-resume-silent",
        "a resumed name wakes nobody",
        _PAUSES,
        "    rows.delete(row)\n    rows.changed = True\n",
        "    rows.delete(row)\n",
        contract("pauses:the_first_in_line_is_signalled_when_a_name_is_resumed"),
    ),
    Mutant(
        "pause-redis-common-case",
        "Redis: the common case does not look for a pause",
        "_backends/redis/scripts/acquire.lua",
        "  if not state[4] then -- nor paused\n",
        "  if true then\n",
        ("tests/contract/test_redis.py", "-k", "a_paused_name_is_granted_to_nobody"),
    ),
    Mutant(
        "pause-redis-hand-over",
        "Redis: a release hands a paused lock to a waiter",
        "_backends/redis/scripts/queue.lua",
        "  if paused_left() > 0 then return false end\n",
        "",
        ("tests/contract/test_redis.py", "-k", "waiters_keep_their_places"),
    ),
    Mutant(
        "pause-postgres-permits",
        "PostgreSQL: a paused semaphore gives out permits",
        "_backends/postgres/sql/rules.sql",
        "  IF EXISTS (SELECT FROM @schema@.claim WHERE owner = @schema@.pause_owner_4(the_key)) THEN\n",
        "  IF false THEN\n",
        ("tests/contract/test_postgres.py", "-k", "every_kind_of_lock_can_be_paused"),
    ),
    Mutant(
        "pause-forgotten-at-boot",
        "SQLite: a pause ends when the host is restarted",
        "_backends/sqlite/schema.py",
        '    connection.execute("DELETE FROM claim WHERE owner <> ?", (OWNER,))\n',
        '    connection.execute("DELETE FROM claim")\n',
        ("tests/stores/sqlite/test_sqlite_cleaning.py::test_pause_outlives_a_boot",),
    ),
)
