"""Making the tables on first use, and upgrading them. That it has to is found out when a function is missing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leasehold.backends.postgres import trouble
from leasehold.backends.postgres.ddl import VERSION, ddl
from leasehold.backends.postgres.line import GOOD
from leasehold.errors import BackendRejected

if TYPE_CHECKING:
    from leasehold.backends.postgres.line import Line
    from leasehold.backends.postgres.statements import Statements

__all__ = ["Schema"]

ONE_AT_A_TIME = 5_496_912_345_067_201  # an advisory lock: two that make the same tables get into each other's way


class Schema:
    """The tables of one client's schema."""

    def __init__(self, statements: Statements, label: str) -> None:
        self._statements = statements
        self._label = label

    async def make(self, line: Line, until: float = math.inf) -> bool:
        """Make what is missing; True when it is there now, also if another was quicker."""
        present = await self._version(line, until)
        if present > VERSION:
            raise BackendRejected(
                f"{self._label}: its tables were made by a newer leasehold (version {present}, this one knows "
                f"{VERSION}); upgrade leasehold here too",
                backend=self._label,
            )
        if present == VERSION:
            return True
        script = f"SELECT pg_catalog.pg_advisory_xact_lock({ONE_AT_A_TIME});\n{ddl(self._statements.schema, present)}"
        answer = await line.run_script(script.encode(), until)
        if answer.status not in GOOD:
            raise trouble.translated(answer, self._label)
        return True

    async def _version(self, line: Line, until: float) -> int:
        answer = await line.ask(self._statements.version, (), until)
        if answer.status in GOOD:
            return int(answer.get_value(0, 0) or 0) if answer.ntuples else 0
        if trouble.sqlstate(answer) in trouble.MISSING:
            return 0
        raise trouble.translated(answer, self._label)
