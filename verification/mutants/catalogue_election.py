"""Known bugs that the simulation or named tests must see: elections."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["ELECTION_MUTANTS"]

_TERM = "_patterns/term.py"
_ELECTION = "_patterns/election.py"
_FACES = "tests/faces/test_election.py"
_SUITE = "tests/patterns/test_patterns_memory.py::test_patterns"

ELECTION_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "election-leads-to-the-end",
        "the term lasts as long as the lease, so that no time is left to stop",
        _TERM,
        "return min(super().trusted_until(since, ttl), since + self._timings.renew_deadline)",
        "return super().trusted_until(since, ttl)",
    ),
    Mutant(
        "election-step-down-leads-on",
        "who stepped down is still the leader for its own clock",
        _TERM,
        "                self.lose(loss)\n",
        "",
    ),
    Mutant(
        "election-late-answer-frees",
        "a renewal that is confirmed late lets the next leader in while the body still stops",
        _TERM,
        "    gives_back_late = False  #",
        "    gives_back_late = True  #",
        (
            f"{_FACES}::test_a_renewal_that_is_confirmed_after_the_deadline_does_not_let_another_in_while_the_body_stops",
        ),
    ),
    Mutant(
        "election-keeps-the-chair",
        "a leader that stopped at its renew deadline does not resign",
        _ELECTION,
        "        return loss is None or loss.reason in _KEPT_BY_THE_STORE\n",
        "        return loss is None\n",
        (f"{_FACES}::test_is_leader_ends_with_the_renew_deadline_and_the_lease_later",),
    ),
    Mutant(
        "election-swallows-a-loss",
        "run goes on after the loss of another lease of its function",
        _ELECTION,
        "return self._term is not None and lost.name == self._term.name and self._term.loss is not None",
        "return self._term is not None",
        (f"{_FACES}::test_a_loss_of_another_lease_ends_run",),
    ),
    Mutant(
        "election-swallows-an-error",
        "run campaigns again after an error of the store that its function had",
        _ELECTION,
        "                    if leading._term is not None:\n"
        "                        raise  # an error of the function\n",
        "",
        (f"{_FACES}::test_an_error_of_the_store_in_the_function_ends_run_but_one_in_the_campaign_does_not",),
    ),
    Mutant(
        "election-on-lost-twice",
        "on_lost is called at the loss and again at the end of the body",
        "_patterns/callbacks.py",
        "        return not called\n",
        "        return True\n",
        (f"{_FACES}::test_a_loss_is_called_back_while_the_body_still_runs_and_only_once",),
    ),
    Mutant(
        "election-kept-by-its-object",
        "a term that the program has dropped is renewed for as long as its election lives",
        _ELECTION,
        "        election._newest = weakref.ref(term)\n",
        "        election._newest = lambda: term\n",
        (f"{_FACES}::test_a_term_that_was_dropped_is_not_kept_by_its_election",),
    ),
    Mutant(
        "election-margin-unchecked",
        "a renew deadline within the margin for drifting clocks is accepted",
        _ELECTION,
        "    if timings.renew_deadline >= longest:\n",
        "    if timings.renew_deadline >= timings.ttl:\n",
        (f"{_SUITE}[elections:timings_in_the_wrong_order_are_refused_before_anything_is_sent-ThreadDriver]",),
    ),
    Mutant(
        "election-callback-decides",
        "an error in a callback ends the term",
        "_patterns/callbacks.py",
        "            self._complain(function)\n            return None\n",
        "            raise\n",
        (f"{_FACES}::test_callbacks_come_in_order_and_an_error_in_one_changes_nothing",),
    ),
    Mutant(
        "cli-elect-campaigns-after-term",
        "elect campaigns again although it was asked to end",
        "cli/elect.py",
        "        if job.is_ending or not _goes_on(job, code, led=led):\n",
        "        if not _goes_on(job, code, led=led):\n",
        ("tests/processes/test_elect_processes.py::test_term_while_a_lost_command_stops_ends_the_program",),
    ),
    Mutant(
        "cli-elect-kills-late",
        "a command that ignores TERM runs beside that of the next leader",
        "cli/elect.py",
        "    if wanted > room:\n",
        "    if wanted > arguments.ttl:\n",
        ("tests/processes/test_elect_processes.py::test_bad_usage_runs_nothing",),
    ),
)
