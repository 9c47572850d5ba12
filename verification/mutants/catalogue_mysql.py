"""Known bugs that named tests must see: the MySQL and MariaDB store."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["MYSQL_MUTANTS"]

_CONTRACT = "tests/contract/test_mysql.py"
_GRANTS = "tests/stores/mysql/test_mysql_grants.py"
_WAKE_UPS = "tests/stores/mysql/test_mysql_wake_ups.py"
_HAND_OVER = "tests/stores/mysql/test_mysql_hand_over.py"
_QUEUE = "_backends/mysql/queue.py"
_ROWS = "_backends/mysql/rows.py"
_STATEMENTS = "_backends/mysql/statements.py"

MYSQL_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "MY-version-not-compared",
        "a change is written although another client changed the name meanwhile: two owners",
        _ROWS,
        "%b WHERE name = %b AND version = %d",
        "%b WHERE name = %b AND version >= %d",
        (_GRANTS, "-k", "older_version"),
    ),
    Mutant(
        "MY-new-name-taken-twice",
        "two clients that both find a name unknown both grant it",
        _ROWS,
        "ON DUPLICATE KEY UPDATE name = VALUES(name)",
        "ON DUPLICATE KEY UPDATE owner = VALUES(owner)",
        (_GRANTS, "-k", "older_version"),
    ),
    Mutant(
        "MY-raised-fence-folded",
        "a holder below a raised fence is folded into the row, gets the raised fence there, and is lost",
        _ROWS,
        "is_plain and is_last and",
        "is_plain and",
        (_CONTRACT, "-k", "raised_fence_lifts_every"),
    ),
    Mutant(
        "MY-ended-session-holds",
        "a session that has ended keeps its locks until their ttl is over",
        _ROWS,
        "        if ended:\n",
        "        if ended and not session:\n",
        ("tests/stores/mysql/test_mysql_sessions.py", "-k", "crash"),
    ),
    Mutant(
        "MY-nobody-woken",
        "a release wakes nobody in another client",
        "_backends/mysql/notifications.py",
        "            self._wake_up_worker.start()\n",
        "            self._wake_up_worker.wake()\n",
        (_CONTRACT, "-k", "release_signals"),
    ),
    Mutant(
        "MY-joining-waiter-takes-the-wake-up",
        "a wake-up goes to a claim that has no place yet, and the first in line sleeps on beside a free lock",
        "_backends/mysql/notifications.py",
        "                waiter.signal.set()\n                continue\n",
        "                pass\n",
        (_WAKE_UPS, "-k", "joins"),
    ),
    Mutant(
        "MY-granted-waiter-takes-the-wake-up",
        "a wake-up goes to a claim that holds already, and those behind it sleep on beside a free lock",
        "_backends/mysql/backend.py",
        "        self._listener.forget(waiter)\n",
        "",
        (_WAKE_UPS, "-k", "granted"),
    ),
    Mutant(
        "MY-new-listener-unread",
        "a release that was decided before the listener started wakes no one",
        "_backends/mysql/backend.py",
        "        if waiter.listener == name:\n",
        "        if waiter.number:\n",
        (_WAKE_UPS, "-k", "under_way"),
    ),
    Mutant(
        "MY-deadlock-is-fatal",
        "a renewal that lost a deadlock fails, and with it the lease may",
        "_backends/mysql/errors.py",
        "AGAIN = frozenset({1205, 1213})",
        "AGAIN = frozenset({1205})",
        ("tests/stores/mysql/test_mysql_server.py", "-k", "deadlock"),
    ),
    Mutant(
        "MY-place-not-kept",
        "a waiter that keeps asking loses its place after three seconds",
        _STATEMENTS,
        "AND owner = %b AND state = 3 AND expires",
        "AND owner = %b AND state = 4 AND expires",
        (_CONTRACT, "-k", "keeps_asking"),
    ),
    Mutant(
        "MY-young-fence-cleaned",
        "the row of a name goes while a clock that is set back could give its fences again",
        "_backends/mysql/maintenance.py",
        "SPARE = 86_400 * sql.MICRO",
        "SPARE = 0 * sql.MICRO",
        (_GRANTS, "-k", "fences_go_on"),
    ),
    Mutant(
        "MY-handed-over-during-a-pause",
        "a release hands a paused name over to the next waiter",
        _QUEUE,
        'AND SUM(state <= 2) = 1 "',
        'AND SUM(state <= 2) >= 1 "',
        (_HAND_OVER, "-k", "paused"),
    ),
    Mutant(
        "MY-handed-over-twice",
        "a release that is sent again hands over what the next one holds: two owners",
        _QUEUE,
        "number = @leasehold_next AND ROW_COUNT() = 1;",
        "number = @leasehold_next;",
        (_HAND_OVER, "-k", "sent_twice_frees_nothing"),
    ),
    Mutant(
        "MY-two-places-for-one-claim",
        "a claim that is sent again after a lost answer waits twice, and late copies of a withdrawn one wait",
        _QUEUE,
        "SUM(state = 2 OR owner = %(owner)b OR mode = 'permit') = 0",
        "SUM(state = 2 OR mode = 'permit') = 0",
        (_HAND_OVER, "-k", "one_place or late_copy"),
    ),
    Mutant(
        "MY-all-listeners-sleep",
        "KILL QUERY of one listener can stop all of them for two seconds",
        "_backends/mysql/notifications.py",
        "wait = SLEEP if self._has_user_lock else WAIT_FOR_LOCK",
        "wait = SLEEP",
        (_HAND_OVER, "-k", "sleeps_and_the_others"),
    ),
    Mutant(
        "MY-missing-table-asked-for-ever",
        "a query for a table that somebody has dropped is sent again and again, without a pause and without an end",
        "_backends/mysql/pool.py",
        "if answer.error.code in errors.MISSING and not was_missing:",
        "if answer.error.code in errors.MISSING:",
        ("tests/stores/mysql/test_mysql_requests.py", "-k", "missing_still"),
    ),
    Mutant(
        "MY-session-of-a-used-name",
        "a name that was used before has no session: a crash of its holder does not free it",
        _STATEMENTS,
        '        b"session = IF(shape = 0 AND fence < %d, VALUES(session), session), "\n',
        "",
        ("tests/stores/mysql/test_mysql_rows.py", "-k", "used_before"),
    ),
    Mutant(
        "MY-handed-over-with-a-min-hold",
        "a holder with min_hold that releases hands the lock over at once",
        _QUEUE,
        'b"AND broken IS NULL AND min_hold = 0, number, NULL)), ',
        'b"AND broken IS NULL, number, NULL)), ',
        ("tests/stores/mysql/test_mysql_crowd.py", "-k", "min_hold"),
    ),
    Mutant(
        "MY-owed-answer-is-taken",
        "after an interrupted call in a session the next one takes its answer: a grant that is somebody else's",
        "_backends/mysql/connection.py",
        "is_ours = answer.error is None and answer.results[-1].rows == [(mark,)]",
        "is_ours = True",
        ("tests/stores/mysql/test_mysql_connection.py", "-k", "interrupted_call"),
    ),
)
