"""Known bugs that named tests must see: the fits for frameworks."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["INTEGRATIONS_MUTANTS"]

_FASTAPI = "tests/integrations/test_fastapi_locks.py"
_DJANGO = "tests/integrations/test_django_locks.py"
_APSCHEDULER = "tests/integrations/test_apscheduler_once.py"
_CELERY = "tests/integrations/test_celery_locks.py"
_CELERY_PIECES = "tests/integrations/test_celery_pieces.py"

INTEGRATIONS_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "web-loss-after-the-response",
        "a lock of a request is given back after its response was sent, and its loss is told to nobody",
        "integrations/fastapi.py",
        '        self._templates[held] = names\n        return Depends(held, scope="function")\n',
        '        self._templates[held] = names\n        return Depends(held, scope="request")\n',
        (f"{_FASTAPI}::test_a_lock_is_free_before_the_caller_has_its_answer",),
    ),
    Mutant(
        "web-two-spellings",
        "7 and 007 are two locks of one cart",
        "integrations/fastapi.py",
        "    if field not in readers:\n",
        "    if field in readers:\n",
        (f"{_FASTAPI}::test_two_spellings_of_one_number_are_one_lock",),
    ),
    Mutant(
        "web-no-retry-after",
        "a busy lock is answered without saying when to come back",
        "integrations/_refusals.py",
        "            after = refusal.retry_after if own is None else own\n",
        "            after = own\n",
        (f"{_FASTAPI}::test_errors_of_the_function_are_answered_and_its_lock_is_free",),
    ),
    Mutant(
        "django-only-the-default-database",
        "a lock inside a transaction of another database than the default is not refused",
        "integrations/django/locks.py",
        "    for connection in connections.all(initialized_only=True):\n",
        "    for connection in [connections[DEFAULT_DB_ALIAS]]:\n",
        (f"{_DJANGO}::test_a_lock_inside_a_transaction_is_refused_with_the_right_order[other]",),
    ),
    Mutant(
        "celery-skips-itself",
        "a task whose worker was killed comes again, finds its own lock, and is skipped: its work is lost",
        "integrations/celery/unique.py",
        'if on_duplicate == "retry" or is_own:',
        'if on_duplicate == "retry":',
        (f"{_CELERY}::test_message_that_comes_again_is_no_duplicate_of_itself",),
    ),
    Mutant(
        "beat-repeats",
        "the next beat sends again what its predecessor has sent",
        "integrations/celery/beat.py",
        "        self._take_over()\n",
        "        self._heap = None\n",
        (f"{_CELERY}::test_only_the_leader_sends_and_its_successor_does_not_repeat_what_was_sent",),
    ),
    Mutant(
        "apscheduler-own-intervals",
        "intervals that began at different times are other slots, so every process runs the job",
        "integrations/apscheduler.py",
        "    if isinstance(job.trigger, IntervalTrigger):\n",
        "    if job.trigger is IntervalTrigger:\n",
        (f"{_APSCHEDULER}::test_processes_whose_intervals_began_at_different_times_share_them",),
    ),
    Mutant(
        "beat-sends-after-its-end",
        "a beat that lost its leadership in the middle of a tick goes on to send what its successor sends as well",
        "integrations/celery/beat.py",
        "            self._lease.check()\n",
        "            pass\n",
        (f"{_CELERY_PIECES}::test_schedules_of_seconds_leave_no_record_and_begin_anew_with_a_leader",),
    ),
    Mutant(
        "celery-leaves-locks",
        "a worker that stops leaves what it holds to the ttl, so the next one waits for it",
        "integrations/celery/clients.py",
        "client.close(release=True)",
        "client.close()",
        (f"{_CELERY_PIECES}::test_a_worker_that_stops_gives_back_what_it_holds",),
    ),
    Mutant(
        "apscheduler-one-of-several-times",
        "of several scheduled times that are due only the first is run",
        "integrations/apscheduler.py",
        "for run_time in run_times:",
        "for run_time in run_times[:1]:",
        (f"{_APSCHEDULER}::test_the_arguments_of_a_job_reach_its_function_in_every_one_of_its_times",),
    ),
)
