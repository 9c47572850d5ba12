"""The MySQL server of a run: the shipped statements, put into the dialect of an SQLite database in memory.

What the store relies on is kept: assignments of `ON DUPLICATE KEY UPDATE` take place from left to right, rows count as
affected if they changed, one instant is the time of all of a statement, variables and `LAST_INSERT_ID` belong to the
session, `KILL QUERY` ends the statement of a listener, and a user lock ends with its session. A statement in a form
that is not known here is an error of the run.

A transaction, which no client interrupts in the middle, takes place in one step, so row locks are not simulated; that a
transaction is rolled back for a deadlock is. What was committed stays: a restart ends the sessions and nothing else.
"""

from __future__ import annotations

import re
import sqlite3
from collections import deque
from typing import TYPE_CHECKING, Any

from leasehold._backends.mysql.ddl import statements
from leasehold._backends.mysql.errors import DUPLICATE
from leasehold._backends.mysql.packets import Answer, Result, ServerError
from leasehold._backends.mysql.statements import MICRO, NOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.simulation.world import World

    Reply = Callable[[Answer], None]

__all__ = ["TABLES", "Session", "SimMysql"]

EPOCH = 1_600_000_000
INTERRUPTED, DEADLOCK, SYNTAX = 1317, 1213, 1064
TABLES = ("leasehold_lock", "leasehold_claim", "leasehold_record")
OK = Result([])

_LISTENER = re.compile(rb"SELECT /\* leasehold listener \w+ \*/ (?:SLEEP|GET_LOCK)\((?:'leasehold listeners', )?(\d)\)")
_FIND_LISTENER = re.compile(
    rb"SET @(\w+) = \(SELECT ID FROM information_schema\.PROCESSLIST WHERE ID = (\d+) AND INFO LIKE '(.*)%'\)"
)
_KILL = re.compile(rb"KILL QUERY @(\w+)")
_SET = re.compile(rb"SET @(\w+) = (.*)", re.DOTALL)
_INTO = re.compile(rb" INTO ((?:@\w+(?:, )?)+) FROM ")
_UPSERT = re.compile(rb"INSERT INTO (\w+) \(([^)]*)\) VALUES \((.*)\) ON DUPLICATE KEY UPDATE (.*)", re.DOTALL)
_VALUES = re.compile(rb"VALUES\((\w+)\)")
_TEXT = re.compile(rb"(x?)'([^']*)'")
_VARIABLE = re.compile(rb"@(\w+)")
_DIALECT = (
    (b"GREATEST(", b"max("),
    (b"LEAST(", b"min("),
    (b"IF(", b"iif("),
    (b" FROM DUAL", b""),
    (b"(owner, fence) IN (", b"(owner, fence) IN (VALUES "),
)


class Session:
    """What the server keeps for one connection."""

    def __init__(self, number: int, hang_up: Callable[[], None]) -> None:
        self.number = number
        self.hang_up = hang_up
        self.variables: dict[str, Any] = {}
        self.row_count = 0
        self.insert_id = 0
        self.listening = b""  # the statement of a listener, while it runs
        self.reply: Reply | None = None  # to that statement


class SimMysql:
    """One server, with the tables of the store."""

    def __init__(self, world: World, *, rate: float = 1.0) -> None:
        self.world = world
        self.sessions: dict[int, Session] = {}
        self.is_down = False
        self.stalled_until = 0.0
        self.life = 1  # rises with every restart
        self.deadlocks = 0  # how many of the next transactions are rolled back
        self.on_change: Callable[[bytes], None] = lambda _: None
        self._rate = rate
        self._numbers = 0
        self._locked_by: int | None = None  # the session that has the user lock of the listeners
        self._lock_waiters: deque[int] = deque()
        self._changed: dict[bytes, None] = {}
        self._affected = 0
        self._session = Session(0, lambda: None)
        self._insert_id = 0  # of the statement
        self._database = _database(self)

    def now(self) -> float:
        """What its clock shows, in seconds since 1970."""
        return EPOCH + self.world.now * self._rate

    # --- sessions

    def connect(self, hang_up: Callable[[], None]) -> Session:
        """A new connection; `hang_up` is called when the server ends it."""
        self._numbers += 1
        session = self.sessions[self._numbers] = Session(self._numbers, hang_up)
        return session

    def end_session(self, number: int) -> None:
        """Its connection was closed; what it waited for has no answer any more."""
        if self.sessions.pop(number, None) is None:
            return
        if number in self._lock_waiters:
            self._lock_waiters.remove(number)
        if self._locked_by == number:
            self._locked_by = None
            self._pass_lock_on()

    def end_sessions(self) -> None:
        """Close all connections."""
        for session in list(self.sessions.values()):
            self.end_session(session.number)
            session.hang_up()

    def restart(self) -> None:
        """Everything committed is there."""
        self.life += 1
        self.is_down = False
        self.end_sessions()

    # --- queries

    def execute(self, session: Session, text: bytes, reply: Reply) -> None:
        """Take all statements of a query; `reply` is called at once, or when a listener's statement is over."""
        if _LISTENER.match(text) is not None:
            self._listen(session, text, reply)
            return
        reply(self.answer(session, text))

    def answer(self, session: Session, text: bytes) -> Answer:
        """The same for every query but a listener's."""
        results: list[Result] = []
        for statement in text.split(b";"):
            done = self._done(session, statement.strip())
            if isinstance(done, ServerError):
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                self._changed.clear()
                return Answer(results, done)
            results.append(done)
        assert not self._database.in_transaction, f"left open: {text!r}"
        changed, self._changed = self._changed, {}
        for name in changed:
            self.on_change(name)
        return Answer(results)

    def _done(self, session: Session, text: bytes) -> Result | ServerError:
        if self.deadlocks and self._database.in_transaction:
            self.deadlocks -= 1
            return ServerError(DEADLOCK, "40001", "Deadlock found when trying to get lock")
        try:
            return self._statement(session, text)
        except sqlite3.IntegrityError as error:
            return ServerError(DUPLICATE, "23000", str(error))

    def _statement(self, session: Session, text: bytes) -> Result | ServerError:
        if text in (b"BEGIN", b"COMMIT", b"ROLLBACK"):
            if text == b"BEGIN" or self._database.in_transaction:
                self._database.execute(text.decode())
            session.row_count = 0
            return OK
        if found := _FIND_LISTENER.fullmatch(text):
            name, number, start = found.groups()
            running = self.sessions.get(int(number))
            listens = running is not None and running.listening.startswith(start)
            session.variables[name.decode()] = int(number) if listens else None
            return OK
        if found := _KILL.fullmatch(text):
            return self._kill_query(session.variables.get(found[1].decode()))
        if found := _SET.fullmatch(text):
            ((value,),) = self._rows(session, b"SELECT " + found[2])
            session.variables[found[1].decode()] = value
            session.row_count = 0
            return OK
        if found := _INTO.search(text):
            (row,) = self._rows(session, text[: found.start()] + b" FROM " + text[found.end() :])
            names = [each.strip(b"@ ").decode() for each in found[1].split(b",")]
            session.variables |= dict(zip(names, row, strict=True))
            session.row_count = 1
            return Result([], 1)
        if text.startswith(b"SELECT "):
            rows = self._rows(session, text)
            session.row_count = -1
            return Result([tuple(_as_text(value) for value in row) for row in rows])
        return self._write(session, text)

    def _write(self, session: Session, text: bytes) -> Result:
        self._affected = self._insert_id = 0
        if found := _UPSERT.fullmatch(text):
            self._upsert(session, *found.groups())
        else:
            self._rows(session, text)
        session.row_count = self._affected
        return Result([], self._affected, self._insert_id)

    def _upsert(self, session: Session, table: bytes, columns: bytes, values: bytes, changes: bytes) -> None:
        names = columns.split(b", ")
        (given,) = self._rows(session, b"SELECT " + values)
        new = dict(zip(names, given, strict=True))
        where = b" FROM %b WHERE name = %b" % (table, _literal(new[b"name"]))
        before = self._rows(session, b"SELECT *" + where)
        if not before:
            literals = b", ".join(_literal(value) for value in given)
            self._rows(session, b"INSERT INTO %b (%b) VALUES (%b)" % (table, columns, literals))
            return
        for change in _split(_VALUES.sub(lambda found: _literal(new[found[1]]), changes)):
            self._rows(session, b"UPDATE %b SET %b WHERE name = %b" % (table, change, _literal(new[b"name"])))
        self._affected = 2 if self._rows(session, b"SELECT *" + where) != before else 0

    def _rows(self, session: Session, text: bytes) -> list[tuple[Any, ...]]:
        self._session = session
        now = b"%d" % round(self.now() * MICRO)
        text = text.replace(NOW, now)
        for theirs, ours in _DIALECT:
            text = text.replace(theirs, ours)
        text = _TEXT.sub(lambda found: found[0] if found[1] else _literal(found[2]), text)
        variables = {name.decode(): session.variables.get(name.decode()) for name in _VARIABLE.findall(text)}
        return self._database.execute(text.decode(), variables).fetchall()

    # --- what the statements call

    def touched(self, name: bytes) -> None:
        """A row of this name has changed."""
        self._affected += 1
        self._changed[name] = None

    def last_insert_id(self, *value: int) -> int:
        """With a value: remember it."""
        if value:
            self._insert_id = self._session.insert_id = value[0]
        return self._session.insert_id

    def row_count(self) -> int:
        """How many rows the statement before has changed."""
        return self._session.row_count

    # --- listeners

    def _listen(self, session: Session, text: bytes, reply: Reply) -> None:
        if session.number not in self.sessions:  # the statement comes late: its connection is closed by now
            return
        wants_lock = b"GET_LOCK" in text
        if wants_lock and self._locked_by in (None, session.number):
            self._locked_by = session.number
            reply(Answer([Result([(b"1",)])]))
            return
        session.listening, session.reply = text, reply
        if wants_lock:
            self._lock_waiters.append(session.number)
        found = _LISTENER.match(text)
        assert found is not None
        self.world.after(float(found[1]), lambda: self._end_listening(session, reply, Answer([Result([(b"0",)])])))

    def _end_listening(self, session: Session, reply: Reply, answer: Answer) -> None:
        if session.reply is not reply or session.number not in self.sessions:
            return
        session.listening, session.reply = b"", None
        if session.number in self._lock_waiters:
            self._lock_waiters.remove(session.number)
        reply(answer)

    def _kill_query(self, number: int | None) -> Result | ServerError:
        session = self.sessions.get(number or 0)
        if session is None:
            return ServerError(SYNTAX, "42000", "no such session")
        if session.reply is not None:
            error = ServerError(INTERRUPTED, "70100", "Query execution was interrupted")
            self._end_listening(session, session.reply, Answer([], error))
        return OK

    def _pass_lock_on(self) -> None:
        if self._lock_waiters:
            session = self.sessions[self._lock_waiters.popleft()]
            self._locked_by = session.number
            assert session.reply is not None
            self._end_listening(session, session.reply, Answer([Result([(b"1",)])]))


def _database(server: SimMysql) -> sqlite3.Connection:
    """The shipped tables, and triggers for rows that change."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    for count in (0, 1):
        database.create_function("LAST_INSERT_ID", count, server.last_insert_id)
    database.create_function("ROW_COUNT", 0, server.row_count)
    database.create_function("IS_FREE_LOCK", 1, lambda name: None if name is None else 1)
    database.create_function("touched", 1, server.touched)
    for statement in statements():
        table = re.match(r"CREATE TABLE IF NOT EXISTS (\w+)", statement)
        if table is None or table[1] not in TABLES:
            continue
        database.execute(re.sub(r"\) ENGINE=.*", ")", statement))
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table[1]})")]
        differs = " OR ".join(f"OLD.{column} IS NOT NEW.{column}" for column in columns)
        for event, row, condition in (("INSERT", "NEW", "1"), ("DELETE", "OLD", "1"), ("UPDATE", "NEW", differs)):
            database.execute(
                f"CREATE TRIGGER {table[1]}_{event} AFTER {event} ON {table[1]} WHEN {condition} "
                f"BEGIN SELECT touched({row}.name); END"
            )
    return database


def _literal(value: Any) -> bytes:
    if value is None:
        return b"NULL"
    return b"x'%b'" % value.hex().encode() if isinstance(value, bytes) else b"%d" % value


def _as_text(value: Any) -> bytes | None:
    """As the text protocol has it."""
    return value if value is None or isinstance(value, bytes) else b"%d" % value


def _split(assignments: bytes) -> list[bytes]:
    """At the commas that are in no parentheses."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(assignments):
        depth += (letter == ord("(")) - (letter == ord(")"))
        if letter == ord(",") and not depth:
            parts.append(assignments[start:place].strip())
            start = place + 1
    return [*parts, assignments[start:].strip()]
