"""Known bugs that named tests must see: cli."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["CLI_MUTANTS"]

CLI_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "cli-conflict-code-0",
        "-E 0 gives 75",
        "cli/run.py",
        "return exit_codes.BUSY if code is None else int(code)",
        "return int(code or exit_codes.BUSY)",
        ("tests/processes/test_cli_exit_codes.py::test_a_busy_lock_gives_75_or_what_was_asked_for",),
    ),
    Mutant(
        "cli-once-conflict-code-0",
        "once: -E 0 gives 75",
        "cli/once.py",
        "return exit_codes.BUSY if code is None else int(code)",
        "return int(code or exit_codes.BUSY)",
        ("tests/processes/test_cli_exit_codes.py::test_a_slot_that_is_another_s_gives_75_or_what_was_asked_for",),
    ),
    Mutant(
        "cli-nohup",
        "nohup leasehold run ends with the terminal",
        "cli/signals.py",
        "if number is signal.SIGCHLD or signal.getsignal(number) is not signal.SIG_IGN:",
        "if number is signal.SIGCHLD or number in FORWARDED:",
        ("tests/processes/test_cli_signals.py::test_hangup_does_not_end_the_wait_under_nohup",),
    ),
    Mutant(
        "cli-replaced-guardian",
        "a replaced guardian does not know when the lease ends",
        "cli/guarding.py",
        "        for word, instant in self._told.items():\n            self._tell(word, instant)",
        "        self._told.clear()",
        ("tests/processes/test_cli_guardian.py::test_a_guardian_that_replaces_another_knows_what_that_one_was_told",),
    ),
    Mutant(
        "cli-second-interrupt",
        "after a second Ctrl-C the lock is given back while killed processes still run",
        "cli/supervise.py",
        "if self.stopped_for is None and self._killed_at is None and not self._wait_group:",
        "if self.stopped_for is None and not self._wait_group:",
        (
            "tests/unit/test_cli_supervise.py::test_after_a_second_interrupt_the_lock_stays_until_the_killed_group_is_gone",
        ),
    ),
    Mutant(
        "cli-memory",
        "run locks a memory store, which nobody else sees",
        "cli/run.py",
        "            refuse_private_store(client)\n",
        "",
        ("tests/processes/test_cli_run.py::test_a_memory_store_is_refused_because_it_locks_nothing_between_commands",),
    ),
    Mutant(
        "cli-outage-unsaid",
        "an absent store is announced as a busy lock",
        "cli/waiting.py",
        "        if outage is None:\n            return describe_wait",
        "        if outage is None or outage:\n            return describe_wait",
        ("tests/processes/test_cli_run.py::test_a_store_that_does_not_answer_is_named_while_it_is_tried",),
    ),
    Mutant(
        "cli-renewals-unsaid",
        "failing renewals are not announced",
        "cli/renewals.py",
        "            self._error = event.error",
        "            self._error = None",
        (
            "tests/processes/test_cli_run.py::test_renewals_that_fail_are_announced_while_there_is_time_and_so_is_their_return",
        ),
    ),
)
