"""Making the tables on first use, and upgrading them: needed when a function of this version is missing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leasehold._backends.postgres import errors
from leasehold._backends.postgres.ddl import VERSION, guarded_ddl
from leasehold._backends.postgres.driver import GOOD
from leasehold.errors import BackendRejected

if TYPE_CHECKING:
    from leasehold._backends.postgres.driver import AnyConnection
    from leasehold._backends.postgres.statements import Statements

__all__ = ["Schema"]


class Schema:
    """The tables of one client's schema."""

    def __init__(self, statements: Statements, label: str) -> None:
        self._statements = statements
        self._label = label

    async def make(self, connection: AnyConnection, until: float = math.inf) -> bool:
        """Make what is missing; True when it is there now, also if another client was faster."""
        present = await self._version(connection, until)
        if present > VERSION:
            raise BackendRejected(
                f"{self._label}: its tables were made by a newer leasehold (version {present}, this one knows "
                f"{VERSION}); upgrade leasehold here too",
                backend=self._label,
            )
        if present == VERSION:
            return True
        answer = await connection.run_script(guarded_ddl(self._statements.schema, present).encode(), until)
        if answer.status not in GOOD:
            raise errors.translated(answer, self._label)
        return True

    async def _version(self, connection: AnyConnection, until: float) -> int:
        answer = await connection.execute(self._statements.version, (), until)
        if answer.status in GOOD:
            return int(answer.get_value(0, 0) or 0) if answer.ntuples else 0
        if errors.sqlstate(answer) in errors.MISSING:
            return 0
        raise errors.translated(answer, self._label)
