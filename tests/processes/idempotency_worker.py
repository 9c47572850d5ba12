"""Processes that charge under an idempotency key, in the transaction of a database; started by the tests.

Words: `kill URL [fresh]`: for every statement, fork a process that ends itself with SIGKILL just before or after it,
then ask again with the same key; one line of JSON for each. `fresh` begins each time without a table of keys.
`race URL THREADS KEY`: after a line on stdin, so many threads ask at once; the results as JSON.
`stay URL KEY`: charges, says `working` inside the transaction, and commits after a line on stdin.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pymysql
import sqlalchemy

from leasehold.errors import InFlight
from leasehold.sql import IdempotencyKeys, idempotency_schema, is_retryable
from leasehold.sql.wires.mysql import MysqlWire
from leasehold.sql.wires.psycopg import PsycopgWire
from leasehold.sql.wires.sqlite3 import Sqlite3Wire

for dialect in ("mysql", "postgresql", "sqlite"):
    idempotency_schema(dialect)  # all is loaded before the forks
KEYS = IdempotencyKeys("charges", retry_after=0.02)


class Steps:
    """Counts the moments before and after every statement, and ends the process at one of them."""

    def __init__(self, end_at: int | None) -> None:
        self.names: list[str] = []
        self._end_at = end_at

    def __call__(self, name: str) -> None:
        if len(self.names) == self._end_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.names.append(name)

    def watch(self, wire: Any) -> None:
        """Count the statements of the library, too."""
        plain = wire.query

        async def query(self_: Any, statement: str, values: Any) -> Any:
            name = " ".join(statement.split())[:40]
            self(f"before {name}")
            answer = await plain(self_, statement, values)
            self(f"after {name}")
            return answer

        wire.query = query


class MariadbConnection(pymysql.Connection):  # type: ignore[misc]  # PyMySQL has no types
    """With the method that the others have, too."""

    def execute(self, statement: str) -> Any:
        cursor = self.cursor()
        cursor.execute(statement)
        return cursor


def connect(url: str) -> Any:
    if url.startswith("mariadb"):
        at = sqlalchemy.make_url(url)
        return MariadbConnection(host=at.host, port=at.port, user=at.username, database=at.database)
    if url.startswith("postgresql"):
        return psycopg.connect(url)
    return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60, isolation_level=None)


def charge(connection: Any, key: str, label: str, steps: Steps, inside: Any = None) -> Any:
    """The work of one request, each statement of it counted; the result."""

    def execute(statement: str) -> None:
        steps(f"before {statement[:20]}")
        connection.execute(statement)
        steps(f"after {statement[:20]}")

    if isinstance(connection, sqlite3.Connection):
        execute("BEGIN")
    with KEYS.attempt(connection, key, fingerprint=key) as attempt:
        if not attempt.replayed:
            execute(f"INSERT INTO effect VALUES ('{key}', '{label}')")
            if inside is not None:
                inside()
            attempt.complete(label)
    execute("COMMIT")
    return attempt.result


def ask(url: str, key: str, label: str) -> Any:
    """Ask until there is an answer, as a client does."""
    while True:
        try:
            with closing(connect(url)) as connection:
                return charge(connection, key, label, Steps(None))
        except InFlight as error:
            time.sleep(error.retry_after)
        except Exception as error:
            if not is_retryable(error):
                raise


def forked(task: Any) -> tuple[int, Any]:
    """Run it in a process of its own: the signal that ended it, or 0, and what it gave."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writer, json.dumps(task()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a process failed")
    return (os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0), json.loads(text or "null")


def end_at(url: str, key: str, step: int | None) -> list[str]:
    steps = Steps(step)
    for wire in (MysqlWire, PsycopgWire, Sqlite3Wire):
        steps.watch(wire)
    steps("before connecting")
    with closing(connect(url)) as connection:
        charge(connection, key, "first", steps)
    steps("before the end")
    return steps.names


def effects(url: str, key: str) -> list[str]:
    with closing(connect(url)) as connection:
        return [
            label for (label,) in connection.execute(f"SELECT label FROM effect WHERE request = '{key}'").fetchall()
        ]


def prepare(url: str, fresh: bool) -> None:
    with closing(connect(url)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS effect (request TEXT, label TEXT)")
        if fresh:
            connection.execute("DROP TABLE IF EXISTS leasehold_idempotency")
        connection.commit()


def kill(url: str, fresh: bool) -> None:
    prepare(url, fresh)
    if not fresh:
        ask(url, "the table is made", "x")
    _, names = forked(lambda: end_at(url, "uninterrupted", None))
    for step, name in enumerate(names):
        if fresh:
            prepare(url, fresh)
        key = f"{int(fresh)} {step}"
        ended_by, _ = forked(lambda step=step, key=key: end_at(url, key, step))
        results = [forked(lambda key=key, label=label: ask(url, key, label))[1] for label in ("second", "third")]
        say({"step": name, "ended_by": ended_by, "results": results, "effects": effects(url, key)})


def race(url: str, threads: int, key: str) -> None:
    say("ready")
    sys.stdin.readline()
    with ThreadPoolExecutor(threads) as pool:
        labels = [f"{os.getpid()}-{number}" for number in range(threads)]
        say(list(pool.map(lambda label: ask(url, key, label), labels)))


def stay(url: str, key: str) -> None:
    def inside() -> None:
        say("working")
        sys.stdin.readline()

    with closing(connect(url)) as connection:
        say(charge(connection, key, "stayed", Steps(None), inside))


def say(value: object) -> None:
    sys.stdout.write(f"{json.dumps(value)}\n")
    sys.stdout.flush()


def main(what: str, url: str, *words: str) -> None:
    if what == "kill":
        kill(url, "fresh" in words)
    elif what == "race":
        race(url, int(words[0]), words[1])
    else:
        stay(url, words[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
