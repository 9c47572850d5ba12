"""Known bugs that named tests must see: queues in a SQL database."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["QUEUE_MUTANTS"]

_ROWS = "sql/queue/rows.py"
_JOB = "sql/queue/job.py"
_WORKER = "sql/queue/worker.py"
_ALL = "tests/sql/test_queue.py"
_OF_WORKER = "tests/sql/test_queue_worker.py"
_PROCESSES = "tests/sql/test_queue_processes.py"

QUEUE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "Q-late-answer-counts",
        "a worker whose job was claimed again completes it all the same",
        _ROWS,
        "_THIS_CLAIM = \"WHERE id {eq} {id} AND fence {eq} {fence} AND state {eq} 'claimed'\"",
        "_THIS_CLAIM = \"WHERE id {eq} {id} AND fence {ge} {fence} AND state {eq} 'claimed'\".replace('{ge}', '>=')",
        (_ALL, "-k", "nobody_elses_until_its_visibility and sqlite"),
    ),
    Mutant(
        "Q-fence-does-not-grow",
        "two claims of a job have the same fence",
        _ROWS,
        "SET state = 'claimed', fence = fence {plus} 1, attempts",
        "SET state = 'claimed', fence = fence {plus} 0, attempts",
        (_ALL, "-k", "life_of_a_job and sqlite3"),
    ),
    Mutant(
        "Q-claims-wait-for-each-other",
        "rows that others have locked are not skipped",
        "sql/queue/postgresql.py",
        '"skip_locked": "FOR UPDATE SKIP LOCKED"',
        '"skip_locked": "FOR UPDATE NOWAIT"',
        (_ALL, "-k", "two_that_claim_at_the_same_time and postgresql"),
    ),
    Mutant(
        "Q-claims-do-not-lock",
        "two that claim at the same time get the same job",
        "sql/queue/mysql.py",
        '"skip_locked": "FOR UPDATE SKIP LOCKED"',
        '"skip_locked": ""',
        (_ALL, "-k", "two_that_claim_at_the_same_time and mysql"),
    ),
    Mutant(
        "Q-poison-for-ever",
        "a job that kills its worker each time is given out for ever",
        _ROWS,
        "            used_up = [info for info in due if self.rules.is_last(info.attempts)]\n",
        "            used_up: list[JobInfo] = []\n",
        (_ALL, "-k", "whose_workers_vanish and sqlite"),
    ),
    Mutant(
        "Q-lost-reply-is-a-refusal",
        "a completion that is repeated because its reply was lost looks like a late one",
        _JOB,
        "    if fence == job.fence and state == wanted:\n        return None\n",
        "",
        (_ALL, "-k", "same_answer_twice and sqlite"),
    ),
    Mutant(
        "Q-other-payload-dropped",
        "a known key with another payload is taken for the same work, which is never done",
        _JOB,
        "    if ours != stored and read_payload(ours) != read_payload(stored):\n",
        "    if False:\n",
        (_ALL, "-k", "comes_again_with_other_work and sqlite"),
    ),
    Mutant(
        "Q-completed-apart",
        "the work is committed without the completion of its job, and done again after a kill",
        _WORKER,
        "                async with source.begin() as tx:\n                    try:\n",
        "                async with self.face.transactions().begin() as tx:\n"
        "                    await self.face.handle(tx, job)\n"
        "                async with source.begin() as tx:\n                    try:\n",
        (_OF_WORKER, "-k", "inside_and_outside_transactions and sqlite and function"),
    ),
    Mutant(
        "Q-not-extended",
        "a job whose handler runs for long is claimed by another meanwhile",
        _WORKER,
        "                    await self._extend_all(source)\n",
        "                    pass\n",
        (_OF_WORKER, "-k", "extended_as_long_as", "--timeout", "20"),
    ),
    Mutant(
        "Q-takes-one-more",
        "a worker that is told to end takes another job",
        _WORKER,
        "        while not self.stop.is_set():\n            job: Job",
        "        while True:\n            job: Job",
        (_PROCESSES, "-k", "told_to_end and sqlite", "--timeout", "60"),
    ),
    Mutant(
        "Q-claims-are-extended-once-too-late",
        "the keeper looks as seldom as a claim lasts, so that every long job is claimed again",
        _WORKER,
        "min(self.plan.queue.visibility / 4, PURGE_EVERY)",
        "self.plan.queue.visibility",
        ("tests/unit/test_queue_worker_steps.py", "-k", "extends_what_runs"),
    ),
    Mutant(
        "Q-connections-of-a-pool-are-kept",
        "a worker keeps the connections that an engine lends it after each transaction",
        "sql/queue/transactions.py",
        "        if not self._keeps:\n            await self.close()\n",
        "",
        ("tests/unit/test_queue_transactions.py", "-k", "goes_back"),
    ),
)
