"""One connection of asyncpg, with answers as the store reads them: see `driver`.

asyncpg takes and gives values of Python, in the types that the server finds for a statement. So each parameter is
declared to be a text, or bytes, and the server makes the right type of it; values of an answer are written as the
server would have written them. asyncpg prepares every statement, and keeps it if `statement_cache_size` is not 0: then
a request is one round trip, else two, and works behind a pooler that changes servers.
"""

from __future__ import annotations

import asyncio
import functools
import math
import re
from collections import deque
from typing import TYPE_CHECKING, Any

import asyncpg

from leasehold._backends.postgres import errors, statements
from leasehold._backends.postgres.driver import GOOD, SessionFacts, greet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leasehold._backends.postgres.driver import Rows
    from leasehold._backends.postgres.statements import Statement
    from leasehold.spi import Runtime

__all__ = ["AsyncpgConnection"]

_TYPES = {
    statements.BOOL: "boolean",
    statements.INT4: "integer",
    statements.INT8: "bigint",
    statements.FLOAT8: "double precision",
    statements.BYTEA_ARRAY: "pg_catalog.bytea[]",
    statements.TEXT_ARRAY: "pg_catalog.text[]",
    statements.INT8_ARRAY: "bigint[]",
    statements.FLOAT8_ARRAY: "double precision[]",
}
_PLACE = re.compile(r"\$(\d+)")


class AsyncpgConnection:
    """An `asyncpg.Connection`, used by one call at a time."""

    def __init__(self, driver_connection: Any, runtime: Runtime, label: str, timeout: float) -> None:
        self.driver_connection = driver_connection
        self.facts = SessionFacts()
        self.slot: Any = None  # belongs to the pool that it came from
        self._runtime = runtime
        self._label = label
        self._timeout = timeout
        self._arrived: deque[str] = deque()
        self._news = runtime.signal()

    @property
    def is_direct(self) -> bool:
        return self.facts.is_direct

    async def execute(self, statement: Statement, values: Sequence[bytes | None], until: float = math.inf) -> Rows:
        given = [
            value if value is None or kind == statements.BYTEA else value.decode()
            for value, kind in zip(values, statement.types, strict=True)
        ]
        fetch = self.driver_connection.fetch
        return await self._exchange(lambda seconds: fetch(_with_casts(statement), *given, timeout=seconds), until)

    async def run_script(self, script: bytes, until: float = math.inf) -> Rows:
        execute = self.driver_connection.execute
        return await self._exchange(lambda seconds: execute(script.decode(), timeout=seconds), until)

    async def greet(self, statement: Statement, *, own: bool, until: float = math.inf) -> None:
        await greet(self, statement, self.driver_connection.get_server_pid(), self._label, own=own, until=until)

    def is_usable(self) -> bool:
        return not self.driver_connection.is_closed() and not self.driver_connection.is_in_transaction()

    def is_broken(self) -> bool:
        return bool(self.driver_connection.is_closed())

    def forget_prepared(self) -> None:
        """Nothing to do: what is prepared is asyncpg's own, and set with the pool."""

    async def listen(self, channel: bytes) -> None:
        connection = self.driver_connection
        connection.add_termination_listener(lambda _: self._news.set())

        async def begin(seconds: float) -> None:
            async with asyncio.timeout(seconds):
                await connection.add_listener(channel.decode(), self._receive)

        answer = await self._exchange(begin, math.inf)
        if answer.status not in GOOD:
            raise errors.translated(answer, self._label)

    async def notified(self, seconds: float) -> bool:
        if self.driver_connection.is_closed():
            return True
        return await self._runtime.wait(self._news, self._runtime.now() + seconds)

    def notifications(self) -> list[str]:
        self._news.clear()
        contents = [self._arrived.popleft() for _ in range(len(self._arrived))]
        if not contents and self.driver_connection.is_closed():
            raise errors.not_listening(None, self._label)
        return contents

    def interrupt(self) -> None:
        self.close()

    def close(self) -> None:
        self.driver_connection.terminate()
        self._news.set()

    def _receive(self, connection: object, process: int, channel: str, content: str) -> None:  # noqa: ARG002 - asyncpg's
        self._arrived.append(content)
        self._news.set()

    async def _exchange(self, ask: Callable[[float], Awaitable[Any]], until: float) -> Rows:
        seconds = max(min(self._timeout, until - self._runtime.now()), 0.0)
        try:
            return _Fetched(await ask(seconds))
        except asyncpg.PostgresError as error:
            if error.severity_en is None and error.severity is None:  # not from the server: it has ended
                raise errors.lost(error, self._label) from None
            return _Refused(error)
        except TimeoutError:
            raise errors.lost(None, self._label) from None
        except (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            raise errors.lost(error, self._label) from None


class _Fetched:
    """Rows, or what a script says, which has none."""

    status = 2
    error_message = b""

    def __init__(self, records: Any) -> None:
        self._records = records if isinstance(records, list) else []
        self.ntuples = len(self._records)
        self.nfields = len(self._records[0]) if self._records else 0

    def fname(self, column_number: int) -> bytes | None:
        return str(list(self._records[0].keys())[column_number]).encode()

    def get_value(self, row_number: int, column_number: int) -> bytes | None:
        value = self._records[row_number][column_number]
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, bool):
            return b"t" if value else b"f"
        return str(value).encode()

    def error_field(self, fieldcode: Any) -> bytes | None:  # noqa: ARG002 - it is none
        return None


class _Refused:
    """An error of the server."""

    status = 7
    ntuples = 0
    nfields = 0

    def __init__(self, error: Any) -> None:
        self.error_message = str(error.message or error).encode()
        self._fields = {
            errors.SQLSTATE: error.sqlstate,
            errors.SEVERITY: error.severity_en or error.severity,
            errors.MESSAGE: error.message,
        }

    def fname(self, column_number: int) -> bytes | None:  # noqa: ARG002 - there are no columns
        return None

    def get_value(self, row_number: int, column_number: int) -> bytes | None:  # noqa: ARG002
        return None

    def error_field(self, fieldcode: Any) -> bytes | None:
        text = self._fields.get(int(fieldcode))
        return None if text is None else str(text).encode()


@functools.lru_cache(256)
def _with_casts(statement: Statement) -> str:
    """The statement with texts and bytes for parameters, of which the server makes what is declared."""

    def place(found: re.Match[str]) -> str:
        kind = statement.types[int(found[1]) - 1]
        if kind == statements.BYTEA:
            return f"CAST({found[0]} AS pg_catalog.bytea)"
        text = f"CAST({found[0]} AS pg_catalog.text)"
        return text if kind == statements.TEXT else f"CAST({text} AS {_TYPES[kind]})"

    return _PLACE.sub(place, statement.text.decode())
