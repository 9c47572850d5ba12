"""Known bugs that named tests must see: leasehold.sql over asyncpg and aiosqlite, and the store over asyncpg."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["ASYNCPG_MUTANTS"]

_WIRE = "sql/wires/asyncpg.py"
_AIOSQLITE = "sql/wires/aiosqlite.py"
_CONNECTION = "_backends/postgres/asyncpg_connection.py"
_OF_WIRE = "tests/sql/test_asyncpg_wire.py"
_OF_AIOSQLITE = "tests/sql/test_aiosqlite_wire.py"
_OF_STORE = "tests/stores/postgres/test_asyncpg_store.py"

ASYNCPG_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "ASYNCPG-guards-nothing",
        "the guard is accepted outside a transaction, where its lock is gone with the statement",
        _WIRE,
        "        return Transaction.OPEN if self._connection.is_in_transaction() else Transaction.AUTOCOMMIT\n",
        "        return Transaction.OPEN if self._connection.is_in_transaction() else Transaction.OPENS\n",
        (_OF_WIRE, "-k", "outside_a_transaction"),
    ),
    Mutant(
        "ASYNCPG-forgets-with-the-loan",
        "what is known of a session is kept with the proxy of one loan: the table is looked for every time",
        _WIRE,
        '        self.driver: Any = getattr(connection, "_con", connection)\n',
        "        self.driver: Any = connection\n",
        (_OF_WIRE, "-k", "once_per_session"),
    ),
    Mutant(
        "ASYNCPG-counts-nothing",
        "RETURNING inside a part of a statement is taken for its own: no row counts as changed",
        _WIRE,
        "_RETURNING.search(plain) is not None",
        "_RETURNING.search(statement) is not None",
        (_OF_WIRE, "-k", "give_rows or row_with_a_fence"),
    ),
    Mutant(
        "ASYNCPG-ended-is-no",
        "a connection that ended before the answer came is read as: not granted",
        _CONNECTION,
        "            if error.severity_en is None and error.severity is None:  # not from the server: it has ended\n",
        "            if error.sqlstate is None:\n",
        (_OF_STORE, "-k", "lost_answer"),
    ),
    Mutant(
        "ASYNCPG-silence-is-no",
        "an answer that did not come in time is read as: not granted",
        _CONNECTION,
        "        except TimeoutError:\n            raise errors.lost(None, self._label) from None\n",
        "        except TimeoutError:\n            raise errors.not_listening(None, self._label) from None\n",
        (_OF_STORE, "-k", "little_time and hangs"),
    ),
    Mutant(
        "ASYNCPG-abandoned-unseen",
        "the next holder does not learn that the one before has vanished",
        _CONNECTION,
        '            return b"t" if value else b"f"\n',
        "            return str(value).encode()\n",
        ("tests/stores/postgres/test_asyncpg_processes.py", "-k", "killed"),
    ),
    Mutant(
        "ASYNCPG-password-shown",
        "messages show the password of the pool's DSN",
        "_backends/postgres/asyncpg_lender.py",
        '"host": parts.netloc.rpartition("@")[2]',
        '"host": parts.netloc',
        (_OF_STORE, "-k", "password"),
    ),
    Mutant(
        "AIOSQLITE-guards-nothing",
        "the guard is accepted on a connection that commits every statement by itself",
        _AIOSQLITE,
        "        return sqlite_transaction(_inner(self.driver))\n",
        "        return Transaction.OPEN if self.driver.in_transaction else Transaction.OPENS\n",
        (_OF_AIOSQLITE, "-k", "commits_by_itself"),
    ),
    Mutant(
        "AIOSQLITE-rows-of-the-users-own",
        "a row factory of the user's own changes what the guard reads",
        _AIOSQLITE,
        "            cursor.row_factory = None  # the connection may have one of its own\n",
        "",
        ("tests/sql/test_guard_async.py", "-k", "aiosqlite and late_writer"),
    ),
    Mutant(
        "AIOSQLITE-begin-goes-on",
        "an attempt that is cancelled while it waits for the file leaves a transaction open, and the file locked",
        "sql/sqlite_busy.py",
        "    except BaseException:\n        if opens:  # also if BEGIN",
        "    except Exception:\n        if opens:  # also if BEGIN",
        (_OF_AIOSQLITE, "-k", "is_cancelled"),
    ),
)
