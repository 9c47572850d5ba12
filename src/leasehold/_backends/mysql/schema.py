"""Making the tables on first use, and refusing those of a newer version."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leasehold._backends.mysql import errors
from leasehold._backends.mysql.ddl import VERSION, statements
from leasehold.errors import BackendRejected

if TYPE_CHECKING:
    from leasehold._backends.mysql.connection import Connection

__all__ = ["Schema"]

READ_VERSION = b"SELECT version FROM leasehold_about"


class Schema:
    """The tables of one client's database."""

    def __init__(self, label: str) -> None:
        self._label = label
        self.is_known = False  # whether they were seen in the right version

    async def check(self, connection: Connection, until: float = math.inf) -> None:
        """See that the tables are there, or make them."""
        present = await self._version(connection, until)
        if present > VERSION:
            raise BackendRejected(
                f"{self._label}: its tables were made by a newer leasehold (version {present}, this one knows "
                f"{VERSION}); upgrade leasehold here too",
                backend=self._label,
            )
        if present < VERSION:
            await self._make(connection, until)
        self.is_known = True

    async def _version(self, connection: Connection, until: float) -> int:
        answer = await connection.query(READ_VERSION, until)
        if answer.error is not None:
            if answer.error.code in errors.MISSING:
                return 0
            raise errors.translated(answer.error, self._label)
        rows = answer.results[0].rows
        return int(rows[0][0] or 0) if rows else 0

    async def _make(self, connection: Connection, until: float) -> None:
        """Each statement does nothing if another client was faster. A table is there at once, so nothing commits."""
        for statement in statements():
            answer = await connection.query(statement.encode(), until)
            if answer.error is not None:
                raise errors.translated(answer.error, self._label)
