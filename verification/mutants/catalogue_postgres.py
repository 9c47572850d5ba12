"""Known bugs that named tests must see: PostgreSQL, and the guards of PostgreSQL and SQLite."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["POSTGRES_MUTANTS"]

_OF_CONTRACT = "tests/contract/test_postgres.py"
_GUARD = "sql/guards/postgresql.py"
_OF_GUARD = "tests/sql/test_guard_postgresql.py"
_OF_GRANTS = "tests/stores/postgres/test_postgres_grants.py"
_OF_UNTIL = "tests/stores/postgres/test_postgres_until.py"
_VERBS = "_backends/postgres/sql/verbs.sql"

POSTGRES_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "PG-sqlite-number-frees-lock",
        "a guard by number frees the resource from its lock; another lock's fences then pass",
        "sql/guards/sqlite.py",
        "  lock = coalesce(lock, excluded.lock), exclusive_fence = excluded.exclusive_fence,\n",
        "  lock = excluded.lock, exclusive_fence = excluded.exclusive_fence,\n",
        ("tests/unit/test_sql_guard_sqlite.py",),
    ),
    Mutant(
        "PG-read-uncommitted",
        "at READ UNCOMMITTED a transaction that read first is let through: lost update",
        _GUARD,
        "ANY (ARRAY['read committed', 'read uncommitted'])",
        "ANY (ARRAY['read committed'])",
        (_OF_GUARD, "-k", "uncommitted"),
    ),
    Mutant(
        "PG-number-opens-grant",
        "after a guard by number another grant with the same number passes",
        _GUARD,
        "      THEN coalesce(kept.exclusive_grant, excluded.exclusive_grant) ELSE excluded.exclusive_grant END\n",
        "      THEN excluded.exclusive_grant ELSE excluded.exclusive_grant END\n",
        (_OF_GUARD, "-k", "by_number"),
    ),
    Mutant(
        "PG-two-guard-tables",
        "two programs with different search paths each have a table of the guard, and a late write passes",
        _GUARD,
        "    if len(found) > 1:\n",
        "    if len(found) > 2:\n",
        (_OF_GUARD, "-k", "two_tables"),
    ),
    Mutant(
        "PG-unqualified-name",
        "a function that another role planted in the search path runs as the role that guards",
        _GUARD,
        "  OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object(CAST(%(resource)s AS pg_catalog.text), NULL)\n",
        "  OPERATOR(pg_catalog.||) jsonb_build_object(CAST(%(resource)s AS pg_catalog.text), NULL)\n",
        ("tests/stores/postgres/test_postgres_search_path.py", "-k", "guards"),
    ),
    Mutant(
        "PG-clock-fell-back",
        "a release keeps the lock for as long as the database's clock fell back",
        _VERBS,
        "  own.since := least(own.since, at);\n",
        "",
        (_OF_GRANTS, "-k", "fell_back"),
    ),
    Mutant(
        "PG-mark-without-doubt",
        "a claim whose every request was answered leaves a row for one ttl",
        _VERBS,
        "  IF doubt THEN\n    UPDATE @schema@.claim",
        "  IF true THEN\n    UPDATE @schema@.claim",
        (_OF_GRANTS, "-k", "without_doubt"),
    ),
    Mutant(
        "PG-break-not-answered",
        "the reason of a break is lost when its holder releases before the next renewal",
        _VERBS,
        "  RETURN coalesce(own.broken, 'freed');\n",
        "  RETURN CASE WHEN own.broken IS NULL THEN 'freed' ELSE 'gone' END;\n",
        (_OF_GRANTS, "-k", "broken"),
    ),
    Mutant(
        "PG-hung-server",
        "a call on a hung server takes the whole answer timeout, however little time its caller has",
        "_backends/postgres/connection.py",
        "        deadline = min(self._runtime.now() + self._timeout, until)\n",
        "        deadline = self._runtime.now() + self._timeout\n",
        (_OF_UNTIL, "-k", "no_verb and rows"),
    ),
    Mutant(
        "PG-session-not-watched",
        "the holder in a session that the server has ended believes in it until the next renewal",
        "kit/one_session.py",
        "        if ended and self._alarm is not None:\n",
        "        if ended and self._alarm is None:\n",
        ("tests/stores/postgres/test_postgres_sessions.py", "-k", "learns_at_once"),
    ),
    Mutant(
        "PG-renewed-too-late",
        "a grant whose time is over is renewed, although the next holder may be let in at any moment",
        _VERBS,
        "        AND c.expires > at AND NOT @schema@.is_over_3(c.session);\n",
        "        AND NOT @schema@.is_over_3(c.session);\n",
        (_OF_GRANTS, "-k", "time_is_over"),
    ),
    Mutant(
        "PG-released-too-late",
        "a release after the ttl says that the lock was held until then",
        _VERBS,
        "\n      AND l.expires OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp();\n",
        ";\n",
        (_OF_GRANTS, "-k", "time_is_over"),
    ),
    Mutant(
        "PG-dead-waiter",
        "a lock that is handed to a waiter that is gone stays taken for a whole ttl",
        "_backends/postgres/sql/rules.sql",
        "    next.expires := at + make_interval(secs => least(next.ttl, 3));\n",
        "    next.expires := at + make_interval(secs => next.ttl);\n",
        (_OF_GRANTS, "-k", "handed_to_a_waiter"),
    ),
    Mutant(
        "PG-hasty-leader",
        "a waiter with little time left, which leads a batch, fails those who have more",
        "_backends/postgres/queue.py",
        "for turn in [own] if in_a_hurry else turns:",
        "for turn in turns:",
        (_OF_UNTIL, "-k", "leader"),
    ),
    Mutant(
        "PG-hasty-caller",
        "a caller with little time left closes the idle connections of all others",
        "_backends/postgres/executor.py",
        "        in_a_hurry = self._runtime.now() >= until and not connection.is_broken()\n",
        "        in_a_hurry = False\n",
        (_OF_UNTIL, "-k", "idle_connections"),
    ),
    Mutant(
        "PG-release-waits-in-line",
        "a release waits for a connection behind sixty acquires, and misses its second",
        "_backends/postgres/base.py",
        "(self._sql.release, values, until, first=True)",
        "(self._sql.release, values, until)",
        ("tests/stores/postgres/test_postgres_pool.py", "-k", "sixty"),
    ),
    Mutant(
        "PG-head-put-aside",
        "the first call in a queue that was empty for a second is removed by the second one",
        "kit/pool_queue.py",
        "        if not self.first and not self.rest:\n            self._moved = self._runtime.now()\n",
        "",
        ("tests/stores/postgres/test_postgres_pool.py", "-k", "empty_for_long"),
    ),
    Mutant(
        "PG-tables-made-anew",
        "each client that found no tables replaces the functions that another one has just made",
        "_backends/postgres/ddl.py",
        "  IF present IS NULL OR present OPERATOR(pg_catalog.<) {VERSION} THEN\n",
        "  IF true THEN\n",
        ("tests/stores/postgres/test_postgres_rights.py", "-k", "make_them_once"),
    ),
    Mutant(
        "PG-refused-under-lock",
        "clients that poll lock the row of the name in turn, and a release waits for all of them",
        _VERBS,
        "      IF held.shape OPERATOR(pg_catalog.=) 1 AND NOT waits AND",
        "      IF false AND",
        (_OF_GRANTS, "-k", "without_a_lock"),
    ),
    Mutant(
        "PG-broken-min-hold",
        "the release of a broken grant frees the lock before its min_hold",
        _VERBS,
        "  IF own.min_hold > 0 AND own.since",
        "  IF own.broken IS NULL AND own.min_hold > 0 AND own.since",
        (_OF_GRANTS, "-k", "keeps_it_for_its_min_hold"),
    ),
    Mutant(
        "PG-reason-forgotten",
        "the reason of a break at once is forgotten with the first release",
        _VERBS,
        "  IF own.state <> 1 THEN\n    RETURN own.broken;\n",
        "  IF own.state <> 1 THEN\n    DELETE FROM @schema@.claim WHERE number = own.number;\n    RETURN own.broken;\n",
        (_OF_GRANTS, "-k", "outlives_a_release"),
    ),
    Mutant(
        "PG-no-gate",
        "all claims wait for the row of the name at once, and a release among them",
        "_backends/postgres/sql/rules.sql",
        "  PERFORM pg_catalog.pg_advisory_xact_lock(\n",
        "  PERFORM pg_catalog.abs(\n",
        (_OF_GRANTS, "-k", "one_of_many_claims"),
    ),
    # --- written blind, and missed by every test at first
    Mutant(
        "blind-pg-dead-waiter-blocks",
        "readers behind a writer that vanished from the queue are not let in",
        "_backends/postgres/sql/rules.sql",
        "coalesce(bool_or(state <= 3), false) INTO vanished, room",
        "coalesce(bool_or(state <= 2), false) INTO vanished, room",
        (_OF_CONTRACT, "-k", "a_writer_that_stops_asking_does_not_keep"),
    ),
    Mutant(
        "blind-pg-withdraw-ends-min-hold",
        "a withdrawal after the release removes the grant that is kept for its min_hold",
        _VERBS,
        "state IN (1, 3) OR state > 3 AND NOT doubt",
        "state <= 3 OR state > 3 AND NOT doubt",
        (_OF_CONTRACT, "-k", "a_withdrawal_after_the_release_does_not_end"),
    ),
    Mutant(
        "blind-pg-session-closed-while-held",
        "with mode=session the idle connection is closed one ttl after the acquire, although the lease is renewed",
        "kit/one_session.py",
        "            if isinstance(answer, Grant):\n                self.hold(answer.claim)\n",
        "            if isinstance(answer, Grant):\n                self._needed()\n",
        (
            "tests/stores/postgres/test_postgres_sessions.py::test_session_stays_for_as_long_as_a_lease_in_it_is_renewed",
        ),
    ),
    Mutant(
        "blind-pg-break-passes-nothing-on",
        "after a break at once the waiters stay in the queue of a free lock",
        _VERBS,
        "    UPDATE @schema@.lock SET abandoned_until = at + interval '1 day' WHERE key = the_key;\n"
        "    PERFORM @schema@.advance_3(the_key, at);\n  END IF;\n  RETURN true;\n",
        "    UPDATE @schema@.lock SET abandoned_until = at + interval '1 day' WHERE key = the_key;\n"
        "  END IF;\n  RETURN true;\n",
        (_OF_CONTRACT, "-k", "breaking_a_lock_at_once_signals"),
    ),
    Mutant(
        "blind-pg-session-given-up",
        "with mode=session one slow answer makes the next call connect anew, and all leases end",
        "kit/one_session.py",
        "if self._needed() or self._runtime.now() >= until:",
        "if self._runtime.now() >= until:",
        ("tests/stores/postgres/test_postgres_sessions.py", "-k", "does_not_answer_is_not_given_up"),
    ),
    Mutant(
        "blind-guard-sqlite-reader-lowers",
        "a late reader lowers what the newest reader has set, and a writer between the two is let through",
        "sql/guards/sqlite.py",
        "shared_fence = max(shared_fence, excluded.shared_fence)",
        "shared_fence = excluded.shared_fence",
        ("tests/unit/test_sql_guard_sqlite.py::test_late_reader_does_not_lower_what_the_newest_reader_has_set",),
    ),
    Mutant(
        "blind-transaction-lock-names",
        "two pairs of namespace and name that read the same when joined are one transaction lock",
        "sql/guards/transaction_lock.py",
        "digest.update(blake2b(text.encode()).digest())",
        "digest.update(text.encode())",
        ("tests/sql/test_transaction_lock.py::test_names_that_read_the_same_when_joined_are_different_locks",),
    ),
)
