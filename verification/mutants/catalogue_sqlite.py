"""Known bugs that named tests must see: sqlite."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["SQLITE_MUTANTS"]

SQLITE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "sqlite-group-directory",
        "local: trusts a directory that a whole group may write to",
        "_backends/sqlite/lock_file.py",
        "status.st_mode & 0o022",
        "status.st_mode & 0o002",
        (
            "tests/stores/sqlite/test_sqlite_location.py::test_directory_of_local_that_a_group_or_the_world_may_write_to_is_refused",
        ),
    ),
    Mutant(
        "sqlite-hard-link",
        "a file with two hard links has two owners",
        "_backends/sqlite/lock_file.py",
        "if links > 1:",
        "if links > 2:",
        (
            "tests/stores/sqlite/test_sqlite_one_file.py::test_file_with_a_second_hard_link_has_no_owner_under_either_name",
        ),
    ),
    Mutant(
        "sqlite-later-link",
        "a link that is made while the file is open is not noticed",
        "_backends/sqlite/lock_file.py",
        "return status.st_dev, status.st_ino, status.st_nlink",
        "return status.st_dev, status.st_ino, 1",
        (
            "tests/stores/sqlite/test_sqlite_one_file.py::test_open_file_that_gets_a_second_link_is_refused_until_that_is_gone",
        ),
    ),
    Mutant(
        "sqlite-file-mount",
        "a file that is a mount of its own has locks of its own",
        "_backends/sqlite/lock_file.py",
        "any(point == path for",
        "any(point == path + '/' for",
        (
            "tests/stores/sqlite/test_sqlite_one_file.py::test_file_that_is_mounted_by_itself_is_refused_and_its_directory_may_be_mounted",
        ),
    ),
    Mutant(
        "sqlite-umask",
        "directories of local: are made as wide as the umask allows",
        "_backends/sqlite/lock_file.py",
        "place.mkdir(mode=0o700)\n        place.chmod(0o700)",
        "place.mkdir()",
        ("tests/stores/sqlite/test_sqlite_location.py::test_directories_of_local_are_private_whatever_the_umask",),
    ),
    Mutant(
        "sqlite-until",
        "a call on a locked file ignores its caller's limit",
        "_backends/sqlite/backend.py",
        "deadline = min(now + PATIENCE, until)",
        "deadline = now + PATIENCE",
        (
            "tests/stores/sqlite/test_sqlite_limits.py::test_call_on_a_file_that_another_program_locked_ends_by_its_limit",
        ),
    ),
    Mutant(
        "sqlite-doubt",
        "a withdrawal without doubt leaves a row for a ttl",
        "_backends/sqlite/ledger.py",
        "rules.withdraw, claim, doubt=doubt)",
        "rules.withdraw, claim, doubt=True)",
        ("tests/stores/sqlite/test_sqlite_rules.py::test_withdrawal_without_doubt_leaves_no_row",),
    ),
    Mutant(
        "sqlite-release-of-broken",
        "the release of a broken grant does not name the break",
        "_backends/sqlite/ledger.py",
        "return self._visit(connection, claim.key, rules.release, grant)",
        "return self._visit(connection, claim.key, rules.release, grant) is True",
        (
            "tests/stores/sqlite/test_sqlite_rules.py::test_release_of_a_broken_grant_answers_the_break_and_lets_the_next_waiter_in",
        ),
    ),
    Mutant(
        "sqlite-close-wakes",
        "the waiters of a closed client are not woken",
        "_backends/sqlite/notifications.py",
        "        for signal in list(self._signals.values()):\n            signal.set()",
        "        self._signals.clear()",
        ("tests/stores/sqlite/test_sqlite_limits.py::test_closing_raises_the_signal_of_every_waiter",),
    ),
    Mutant(
        "sqlite-expired-place",
        "a place that runs out lets nobody know",
        "kit/rules.py",
        "any(state <= _WAITING for",
        "any(state < _WAITING for",
        ("tests/stores/sqlite/test_sqlite_rules.py::test_place_that_runs_out_lets_the_next_in_line_know",),
    ),
    Mutant(
        "sqlite-container-time",
        "the time of a container is corrected the wrong way",
        "_backends/sqlite/host.py",
        "time.clock_gettime(self._clock_id) - self._shift",
        "time.clock_gettime(self._clock_id) + self._shift",
        ("tests/stores/sqlite/test_sqlite_host.py",),
    ),
    Mutant(
        "sqlite-release-after-ttl",
        "release() says True although the ttl was over",
        "_backends/sqlite/statements.py",
        'AND owner = ? AND fence = ? AND expires > ?"\n)',
        'AND owner = ? AND fence = ? AND expires > 0 * ?"\n)',
        ("tests/stores/sqlite/test_sqlite_rules.py::test_release_after_the_ttl_frees_nothing_and_says_so",),
    ),
    Mutant(
        "sqlite-record-fence",
        "the fence of a record goes with the record",
        "_backends/sqlite/statements.py",
        'AND expires <= ? AND fence < ?"',
        'AND expires <= ? AND fence < 9 * ?"',
        ("tests/stores/sqlite/test_sqlite_cleaning.py::test_fence_of_a_record_that_ran_out_is_kept_for_a_day",),
    ),
    Mutant(
        "sqlite-kept-bell",
        "a waiter is called through a pipe that its client has no more",
        "_backends/sqlite/rows.py",
        "            row.listener = self._listen()  # the client may have another pipe by now\n",
        "            row.listener = row.listener or '0123456789abcdef'\n",
        (
            "tests/stores/sqlite/test_sqlite_rules.py::test_waiter_whose_client_has_another_pipe_by_now_is_called_through_that",
        ),
    ),
    Mutant(
        "sqlite-renewal-wakes",
        "a renewal that finds another holder expired wakes nobody",
        "_backends/sqlite/ledger.py",
        "        self._notify(connection, notifications)\n        return answers",
        "        return answers",
        (
            "tests/stores/sqlite/test_sqlite_rules.py::test_renewal_that_finds_another_holder_expired_wakes_the_next_in_line",
        ),
    ),
    Mutant(
        "sqlite-first-slice",
        "cleaning never passes the first slice",
        "_backends/sqlite/cleaning.py",
        'return last if number == SLICE else ""',
        'return ""',
        ("tests/stores/sqlite/test_sqlite_cleaning.py::test_use_alone_cleans_also_what_sorts_behind_the_first_slice",),
    ),
    Mutant(
        "sqlite-synchronous",
        "?synchronous= is ignored",
        "_backends/sqlite/schema.py",
        "PRAGMA synchronous={synchronous}",
        "PRAGMA synchronous=normal",
        ("tests/stores/sqlite/test_sqlite_rules.py::test_synchronous_is_what_the_url_says",),
    ),
    Mutant(
        "blind-sqlite-fork-inherits",
        "a forked child inherits an open connection, and its parent removes the log that it writes to",
        "_backends/sqlite/connection.py",
        "        if self._connection is not None and not self._connection.in_transaction:\n            self._drop()\n",
        "",
        (
            "tests/stores/sqlite/test_sqlite_processes.py::test_parent_that_closes_does_not_take_the_log_away_from_its_child",
        ),
    ),
)
