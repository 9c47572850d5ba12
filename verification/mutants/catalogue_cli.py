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
        "cli-replaced-watchdog",
        "a replaced watchdog does not know when the lease ends",
        "cli/watchdog_handle.py",
        "        for word, instant in self._sent.items():\n            self._send(word, instant)",
        "        self._sent.clear()",
        ("tests/processes/test_cli_watchdog.py::test_a_watchdog_that_replaces_another_knows_what_that_one_was_told",),
    ),
    Mutant(
        "cli-second-interrupt",
        "after a second Ctrl-C the lock is given back while killed processes still run",
        "cli/supervisor.py",
        "if self.stopped_for is None and self._killed_at is None and not self._wait_group:",
        "if self.stopped_for is None and not self._wait_group:",
        (
            "tests/unit/test_cli_supervisor.py::test_after_a_second_interrupt_the_lock_stays_until_the_killed_group_is_gone",
        ),
    ),
    Mutant(
        "cli-memory",
        "run locks a memory store, which nobody else sees",
        "cli/run.py",
        "        refuse_private_store(client)\n",
        "",
        ("tests/processes/test_cli_run.py::test_a_memory_store_is_refused_because_it_locks_nothing_between_commands",),
    ),
    Mutant(
        "cli-outage-unsaid",
        "an absent store is announced as a busy lock",
        "cli/wait_line.py",
        "        if outage is None:\n            return describe_wait",
        "        if outage is None or outage:\n            return describe_wait",
        ("tests/processes/test_cli_run.py::test_a_store_that_does_not_answer_is_named_while_it_is_tried",),
    ),
    Mutant(
        "cli-renewals-unsaid",
        "failing renewals are not announced",
        "cli/supervisor.py",
        "            self._error = event.error",
        "            self._error = None",
        (
            "tests/processes/test_cli_run.py::test_renewals_that_fail_are_announced_while_there_is_time_and_so_is_their_return",
        ),
    ),
    Mutant(
        "cli-report-rights",
        "a report can be read by its author only",
        "cli/report.py",
        "os.chmod(temporary, 0o666 & ~_umask())",
        "os.chmod(temporary, 0o600 & ~_umask())",
        ("tests/unit/test_cli_pieces.py::test_a_report_has_the_rights_of_an_ordinary_file",),
    ),
    Mutant(
        "cli-break-password",
        "info shows the password of the URL",
        "cli/inspect.py",
        'if arguments.url and "@" not in arguments.url:',
        "if arguments.url:",
        ("tests/unit/test_cli_pieces.py::test_a_command_to_break_a_lock_never_shows_a_password",),
    ),
    Mutant(
        "cli-held-of-another-kind",
        "a foreign LEASEHOLD_HELD ends the program",
        "cli/run.py",
        " if isinstance(names, list) else []",
        "",
        ("tests/unit/test_cli_pieces.py::test_a_held_list_that_makes_no_sense_is_empty",),
    ),
    Mutant(
        "cli-open-folder",
        "doctor does not see a folder where anybody may replace the file",
        "cli/doctor_file.py",
        "and not folder.st_mode & stat.S_ISVTX",
        "and folder.st_mode & stat.S_ISVTX",
        ("tests/unit/test_cli_pieces.py::test_a_folder_where_anybody_may_replace_the_file_is_a_warning",),
    ),
    Mutant(
        "cli-zombies",
        "dead processes that nobody buried keep the lock",
        "cli/child.py",
        'state not in (b"Z", b"X")',
        'state != b"X"',
        ("tests/unit/test_cli_pieces.py::test_a_dead_member_that_nobody_has_buried_does_not_keep_a_group_alive",),
    ),
    Mutant(
        "cli-signal-with-the-lock",
        "a TERM that comes together with the lock is lost",
        "cli/signals.py",
        "self._kept = [number for number in self.collect(0.0) if number in ENDING]",
        "self._kept = [number for number in self.collect(0.0) if number in ()]",
        ("tests/unit/test_cli_pieces.py::test_a_signal_that_came_with_the_lock_is_kept_for_the_command",),
    ),
    Mutant(
        "cli-watch-ends",
        "watch ends when the store is away",
        "cli/watch.py",
        '            console.error(f"{error}; watching on")\n        return None',
        "            raise\n        return None",
        ("tests/processes/test_cli_verbs.py::test_watch_goes_on_while_the_store_is_away_and_mentions_it_once",),
    ),
    Mutant(
        "cli-namespace",
        "--namespace is ignored",
        "cli/connection.py",
        "namespace=arguments.namespace",
        "namespace=None",
        ("tests/processes/test_cli_verbs.py::test_namespaces_keep_the_same_name_apart",),
    ),
    Mutant(
        "cli-stopped-command",
        "a stopped command of a stopped wrapper never learns of its end",
        "cli/watchdog.py",
        "            signal_group(self._group, signal.SIGCONT)  #",
        "            pass  #",
        (
            "tests/processes/test_cli_watchdog.py::test_a_stopped_command_of_a_stopped_wrapper_is_woken_to_act_on_its_end",
        ),
    ),
)
