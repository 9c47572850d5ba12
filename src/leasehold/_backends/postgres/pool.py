"""Single requests over connections of our own, kept in the kit's pool. It knows nothing of locks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from leasehold._backends.postgres.connection import Connection, open_connection
from leasehold.errors import BackendError
from leasehold.kit.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from leasehold._backends.postgres.options import PostgresOptions
    from leasehold._backends.postgres.statements import Statement
    from leasehold._backends.postgres.wire import Wire
    from leasehold.spi import Runtime

__all__ = ["OwnPool"]


class OwnPool(Pool[Connection]):
    """A source that makes its connections itself."""

    product = "postgres"

    def __init__(
        self, options: PostgresOptions, parameters: Mapping[str, Any], wire: Wire, runtime: Runtime, greet: Statement
    ):
        super().__init__(runtime, options.label, options.connections, options.answer_timeout)
        self._options = options
        self._parameters = dict(parameters)
        self._wire = wire
        self._greet = greet

    async def dedicated(self) -> Connection:
        """A connection outside the limit, which its user keeps for longer, and closes."""
        return await self._open(math.inf)

    async def open_by(self, parameters: Mapping[str, Any]) -> Connection:
        """The same to another address."""
        return await self._open_by(dict(parameters), math.inf)

    async def _open(self, until: float) -> Connection:
        return await self._open_by(self._parameters, until)

    def _interrupt(self, connection: Connection) -> None:
        self._wire.interrupt(connection)

    async def _open_by(self, parameters: dict[str, Any], until: float) -> Connection:
        self._require_open()
        label, timeout = self._options.label, self._options.answer_timeout
        try:
            connection = await open_connection(
                self._wire, parameters, self._runtime, label, timeout, until=until, is_over=lambda: self.is_closed
            )
            await self._greeted(connection, until)
        except BackendError:
            self._require_open()
            raise
        return connection

    async def _greeted(self, connection: Connection, until: float) -> None:
        self._new.add(connection)
        try:
            await connection.greet(self._greet, own=True, until=until)
        except BaseException:
            connection.close()
            raise
        finally:
            self._new.discard(connection)
