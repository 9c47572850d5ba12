"""Known bugs that named tests must see: idempotency keys in the transaction of their work."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["SQL_IDEMPOTENCY_MUTANTS"]

_POSTGRESQL = "sql/idempotency/postgresql.py"
_SQLITE = "sql/idempotency/sqlite.py"
_RECORD = "sql/idempotency/record.py"
_ALL = "tests/sql/test_sql_idempotency.py"
_OF_POSTGRESQL = "tests/sql/test_idempotency_postgresql.py"
_OF_SQLITE = "tests/sql/test_idempotency_sqlite.py"

SQL_IDEMPOTENCY_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "SI-no-second-look",
        "a commit between the first look and the lock is not seen, and the work is done in vain",
        _POSTGRESQL,
        "    if result is not None:\n        return Kept(fingerprint, result)\n    return Opened(",
        "    return Opened(",
        (_OF_POSTGRESQL, "-k", "between_the_look_and_the_lock"),
    ),
    Mutant(
        "SI-record-of-another-transaction",
        "a commit hidden in the work tears it from its record, and nobody is told",
        _POSTGRESQL,
        "WHERE {_IS_HERE}\n",
        "WHERE true\n",
        (_OF_POSTGRESQL, "-k", "commit_inside_the_block_is_noticed"),
    ),
    Mutant(
        "SI-refused-complete-goes-on",
        "a program that swallows a refused complete commits its work without a record",
        _POSTGRESQL,
        "            await wire.query(_ABORT, {})\n",
        "            pass\n",
        (_OF_POSTGRESQL, "-k", "commit_inside_the_block_is_noticed"),
    ),
    Mutant(
        "SI-newer-record-overwritten",
        "a second attempt overwrites the record of the first instead of being refused",
        _POSTGRESQL,
        "WHERE kept.expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()\nRETURNING 1\n",
        "RETURNING 1\n",
        (_ALL, "-k", "once_also_inside_one_transaction"),
    ),
    Mutant(
        "SI-waits-for-the-maker",
        "everybody waits for the transaction that makes the table, however long it is paused",
        "sql/one_table.py",
        '        if not (await wire.query(_ALONE, {"table": self.name})).rows[0][0]:\n            return None\n',
        '        await wire.query(_ALONE.replace("_try", ""), {"table": self.name})\n',
        (_OF_POSTGRESQL, "-k", "keeps_nobody_waiting", "-o", "timeout=30"),
    ),
    Mutant(
        "SI-table-of-a-rolled-back-transaction",
        "a table that was rolled back is remembered, and the next attempt fails",
        "sql/one_table.py",
        "        if not made:\n",
        "        if True:\n",
        (_ALL, "-k", "rolled_back_leaves_the_key_free"),
    ),
    Mutant(
        "SI-sweep-fails-the-work",
        "sweeping at REPEATABLE READ meets rows that others removed, and fails the user's transaction",
        _POSTGRESQL,
        "may_sweep=level in _SEES_COMMITS",
        "may_sweep=True",
        (_OF_POSTGRESQL, "-k", "no_sweeping_at_a_higher_level"),
    ),
    Mutant(
        "SI-sqlite-looks-before-the-lock",
        "the attempt takes no write lock, so two of them find the key absent",
        _SQLITE,
        "        await wire.query(_TAKE, claim.place())\n",
        "        await _look(wire, claim)\n",
        (_OF_SQLITE, "-k", "itself_takes_the_write_lock"),
    ),
    Mutant(
        "SI-sqlite-hidden-commit",
        "a commit hidden in the work is not noticed on SQLite",
        _SQLITE,
        '        if "no such savepoint" in str(error):\n            raise ended_inside() from error\n        raise\n',
        "        return\n",
        (_OF_SQLITE, "-k", "ended_before_complete"),
    ),
    Mutant(
        "SI-principals-share-keys",
        "one customer is shown the result of another one's key",
        _RECORD,
        '    who = NO_PRINCIPAL if principal is None else check_text(principal, "principal")\n',
        "    who = NO_PRINCIPAL\n",
        (_ALL, "-k", "other_principals"),
    ),
    Mutant(
        "SI-payload-not-compared",
        "the same key with another payload is answered with the result of the first",
        _RECORD,
        "or claim.fingerprint == kept.fingerprint:",
        "or claim.fingerprint:",
        (_ALL, "-k", "another_payload"),
    ),
    Mutant(
        "SI-order-of-keys-in-the-fingerprint",
        "a payload whose keys come in another order is taken for another payload",
        "_fingerprint.py",
        "sort_keys=True, ",
        "",
        ("tests/unit/test_idempotency_record.py",),
    ),
)
