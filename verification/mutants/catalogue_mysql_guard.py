"""Known bugs that named tests must see: the guard, the triggers and the idempotency keys of MySQL and MariaDB."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["MYSQL_GUARD_MUTANTS"]

_GUARD = "sql/guards/mysql.py"
_TABLE = "sql/mysql_table.py"
_TRIGGERS = "sql/guards/fence_mysql.sql"
_KEYS = "sql/idempotency/mysql.py"
_OF_GUARD = "tests/sql/test_guard_mysql.py"
_OF_ALL_GUARDS = "tests/sql/test_guard.py"
_OF_TRIGGERS = "tests/sql/test_triggers_mysql.py"
_OF_KEYS = "tests/sql/test_idempotency_mysql.py"

MYSQL_GUARD_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "MG-snapshot-not-compared",
        "at REPEATABLE READ a transaction that read before the guard writes back an old value",
        _GUARD,
        "    AND (%(fresh)s OR passes IN (0, %(seen)s) OR session = @leasehold_session))",
        "    AND (%(fresh)s OR %(seen)s >= 0 OR session = @leasehold_session))",
        (_OF_GUARD, "-k", "exactly_if_another_has_committed_since and REPEATABLE"),
    ),
    Mutant(
        "MG-passes-not-counted",
        "a second transaction of the same holder leaves no trace that an older snapshot would show",
        _GUARD,
        "  passes = passes + IF({_IF_NEWER}, 1, 0),\n",
        "  passes = 1,\n",
        (_OF_GUARD, "-k", "exactly_if_another_has_committed_since and REPEATABLE"),
    ),
    Mutant(
        "MG-number-frees-lock",
        "a guard by number frees the resource from its lock; another lock's fences then pass",
        _GUARD,
        "  `lock` = IF({_IF_NEWER}, COALESCE(`lock`, UNHEX(%(lock)s)), `lock`),\n  exclusive_grant",
        "  `lock` = IF({_IF_NEWER}, UNHEX(%(lock)s), `lock`),\n  exclusive_grant",
        (_OF_ALL_GUARDS, "-k", "by_number and pymysql"),
    ),
    Mutant(
        "MG-number-opens-grant",
        "after a guard by number another grant with the same number passes",
        _GUARD,
        "    IF(%(fence)s = exclusive_fence, COALESCE(exclusive_grant, %(grant)s), %(grant)s), exclusive_grant),\n",
        "    %(grant)s, exclusive_grant),\n",
        (_OF_ALL_GUARDS, "-k", "by_number and pymysql"),
    ),
    Mutant(
        "MG-status-of-the-driver",
        "a transaction that a SELECT opened is not seen, for drivers learn the state from other answers only",
        _TABLE,
        "    await wire.query(statement, values)\n    return wire.transaction()\n",
        "    state = wire.transaction()\n    await wire.query(statement, values)\n    return state\n",
        (_OF_GUARD, "-k", "where_every_statement_sees_commits"),
    ),
    Mutant(
        "MG-table-commits-the-transaction",
        "the table is made inside the user's transaction, and commits what was open",
        _TABLE,
        'await fresh_state(wire, "DO 0", {}) is Transaction.OPEN:',
        'await fresh_state(wire, "DO 0", {}) is None:',
        (_OF_GUARD, "-k", "never_made_inside"),
    ),
    Mutant(
        "MG-refused-goes-on",
        "a program that swallows the refusal writes all the same",
        _TABLE,
        '        await wire.query("START TRANSACTION READ ONLY", {})\n',
        "",
        (_OF_GUARD, "-k", "even_if_the_program_goes_on"),
    ),
    Mutant(
        "MG-trigger-takes-any-session",
        "a session whose fence another has passed since may still write",
        _TRIGGERS,
        "        WHERE resource = wanted AND session = here AND exclusive_fence > shared_fence;\n",
        "        WHERE resource = wanted AND exclusive_fence > shared_fence;\n",
        (_OF_TRIGGERS, "-k", "once_another_has_passed"),
    ),
    Mutant(
        "MG-number-stays-in-the-session",
        "a number that was set once opens every row to whoever uses the session next",
        _TRIGGERS,
        "  SET @leasehold_fence = NULL;\n",
        "",
        (_OF_TRIGGERS, "-k", "left_in_a_session"),
    ),
    Mutant(
        "MI-savepoint-not-asked",
        "a commit hidden in the work tears it from its record, and nobody is told",
        _KEYS,
        '        await wire.query(f"RELEASE SAVEPOINT {_savepoint(opened)}", {})\n',
        "        return\n",
        (_OF_KEYS, "-k", "ended_inside_the_block"),
    ),
    Mutant(
        "MI-waits-for-the-row",
        "who comes second waits for the whole work of the first instead of being told",
        _KEYS,
        "rules.schema, values, waits=False)",
        "rules.schema, values)",
        (_OF_KEYS, "-k", "wait_ends_with_in_flight", "-o", "timeout=30"),
    ),
)
