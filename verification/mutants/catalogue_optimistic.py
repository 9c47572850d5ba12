"""Known bugs that named tests must see: optimistic writes, row locks, and inserts that happen once."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["OPTIMISTIC_MUTANTS"]

_SWAP = "sql/optimistic/cas.py"
_ATTEMPTS = "sql/optimistic/attempts.py"
_RETRIES = "tests/sql/test_sql_retry.py"
_LOCKS = "tests/sql/test_row_locks.py"

OPTIMISTIC_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "OC-version-not-compared",
        "the version is raised and not compared, so that the second writer erases the first",
        _SWAP,
        '        this_row = f"{rows.fits(self.where)} AND {rows.qualified(self.column)} = %(version)s"\n',
        '        this_row = f"{rows.fits(self.where)} AND {rows.qualified(self.column)} >= %(version)s"\n',
        ("tests/processes/test_optimistic_processes.py", "-k", "lose_nothing and postgresql"),
    ),
    Mutant(
        "OC-snapshot-shown",
        "the loser in MariaDB is shown its own snapshot: the version that it expected",
        "sql/tables/rows.py",
        '_PRESENT = {"mysql": " LOCK IN SHARE MODE"}\n',
        '_PRESENT = {"mysql": ""}\n',
        ("tests/sql/test_optimistic.py", "-k", "present_row_and_not"),
    ),
    Mutant(
        "OC-serialization-failure-is-an-error",
        "at REPEATABLE READ of PostgreSQL the loser gets an error of the driver",
        _SWAP,
        'if sqlstate(error) == "40001" or mysql_code',
        'if sqlstate(error) == "40P01" or mysql_code',
        ("tests/sql/test_optimistic.py", "-k", "without_it"),
    ),
    Mutant(
        "OC-unknown-commit-repeated",
        "a commit whose answer was lost is done again",
        _ATTEMPTS,
        "if unknown and (not self._rules.idempotent or self._is_over(pause)):",
        "if unknown and self._is_over(pause):",
        (_RETRIES, "-k", "answer_is_lost"),
    ),
    Mutant(
        "OC-same-session-again",
        "the unit runs again in the transaction whose reads are out of date",
        "sql/optimistic/retry.py",
        "            with manager_of(begin) as tx:\n                result = _plain(unit(tx))\n",
        "            with manager_of(begin) as tx:\n"
        "                try:\n"
        "                    result = _plain(unit(tx))\n"
        "                except Exception:\n"
        "                    result = _plain(unit(tx))\n",
        (_RETRIES, "-k", "fresh_transaction"),
    ),
    Mutant(
        "RL-order-as-named",
        "rows are locked in the order in which they were named, and two transactions deadlock",
        "sql/row_locks/lock_request.py",
        "        ordered = sorted(checked, key=_values)\n",
        "        sorted(checked, key=_values)\n        ordered = checked\n",
        (_LOCKS, "-k", "order"),
    ),
    Mutant(
        "RL-limit-stays",
        "the lock_timeout of a call stays for the rest of the transaction",
        "sql/row_locks/postgresql.py",
        "    if before is not None:\n",
        "    if before == found:\n",
        (_LOCKS, "-k", "settings_as_they_were"),
    ),
    Mutant(
        "RL-silent-on-sqlite",
        "SQLite reads the row and locks nothing",
        "sql/row_locks/sqlite.py",
        "        await with_busy_timeout(wire, request.wait, lambda: _take(wire, state, rows))\n",
        "        pass\n",
        (_LOCKS, "-k", "sqlite3"),
    ),
    Mutant(
        "IO-any-constraint",
        "a row that meets another one by another constraint is taken for one that exists",
        "sql/inserts/postgresql.py",
        "            return Taken(by_key=False, constraint=_constraint(error))\n",
        "            return Taken(by_key=True)\n",
        ("tests/sql/test_insert_once.py", "-k", "told_apart"),
    ),
    Mutant(
        "IO-no-savepoint",
        "another constraint ends the whole transaction of PostgreSQL",
        "sql/savepoints.py",
        "    if wire.transaction() is Transaction.AUTOCOMMIT:\n",
        "    if wire.transaction() is not None:\n",
        ("tests/sql/test_insert_once.py", "-k", "told_apart and postgresql"),
    ),
    Mutant(
        "OC-session-forgets-other-columns",
        "a compare-and-swap drops changes of other columns that the session has not written yet",
        "sql/tables/sqlalchemy.py",
        "self._session.expire(held, list(names))",
        "self._session.expire(held)",
        ("tests/sql/test_tables_and_sessions.py", "-k", "not_dropped"),
    ),
    Mutant(
        "RL-wait-for-each-row",
        "the wait of lock_rows begins anew with every row",
        "sql/row_locks/postgresql.py",
        "int((request.left() or 0) * 1000)",
        "int((request.wait or 0) * 1000)",
        ("tests/unit/test_row_locks_step_by_step.py", "-k", "all_rows_together"),
    ),
)
