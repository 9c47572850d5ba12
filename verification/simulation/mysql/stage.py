"""The MySQL store of a run: the shipped statements and rules, and what befalls the server.

In every seed the server may stand still, be restarted, end all its sessions, or roll a transaction back for a deadlock.
It forgets nothing that it has committed, so every check holds in every seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._backends.mysql import statements as sql
from leasehold._backends.mysql.backend import RowsBackend
from leasehold._backends.mysql.maintenance import Cleaning
from leasehold._backends.mysql.rows import NameRows
from leasehold.errors import BackendError
from leasehold.kit.rows import State
from verification.simulation.mysql.server import TABLES, Session, SimMysql
from verification.simulation.mysql.wire import LABEL, open_plain
from verification.simulation.network import Link
from verification.simulation.server_stage import ServerStage
from verification.simulation.watched import Held, ServerModel

if TYPE_CHECKING:
    from leasehold._backends.mysql.packets import Values
    from verification.simulation.history import History
    from verification.simulation.runtime import SimRuntime
    from verification.simulation.schedule import Schedule
    from verification.simulation.world import World

__all__ = ["MysqlStage"]


class MysqlStage(ServerStage):
    """One server for one run."""

    model: ServerModel
    keeps_records = True
    capabilities = RowsBackend.capabilities

    def __init__(self, world: World, history: History, schedule: Schedule) -> None:
        super().__init__(world, history, schedule)
        self._server = SimMysql(world, rate=1.0 + 0.001 * (2 * world.random.random() - 1))
        self._tables = TablesOfMysql(self._server)
        self.model = ServerModel(world, history, self._tables)
        self._server.on_change = lambda name: self.model.changed(name.decode())
        self.records = self._tables

    def prepare(self, ttl: float, *, queueing: bool, forgetful: bool = False) -> None:  # noqa: ARG002 - it never does
        """See `Stage`."""
        self._ttl, self._queueing = ttl, queueing
        self._faults = [self._stall, self._restart, self._end_sessions, self._deadlock, self._deadlock]

    def open_plain(self, link: Link, runtime: Any) -> RowsBackend:
        """See `ServerStage`."""
        return open_plain(self._server, link, runtime)

    # --- faults

    def heal(self) -> None:
        """See `Stage`."""
        super().heal()
        self._server.deadlocks = 0
        if self._server.is_down:
            self._server.restart()

    def can_be_disturbed(self) -> bool:
        """See `ServerStage`."""
        return super().can_be_disturbed() and not self._server.is_down

    def _stall(self) -> None:
        seconds = self._ttl * self._world.random.random() ** 2
        self._note("stall", seconds)
        self._server.stalled_until = self._world.now + seconds

    def _restart(self) -> None:
        seconds = 0.05 + self._ttl * self._world.random.random() ** 3
        self._note("restart", seconds)
        self._server.is_down = True

        def back() -> None:
            if self._server.is_down:
                self._server.restart()

        self._world.after(seconds, back)

    def _end_sessions(self) -> None:
        self._note("end all sessions")
        self._server.end_sessions()

    def _deadlock(self) -> None:
        self._note("roll back for a deadlock")
        self._server.deadlocks += 1

    # --- the end

    async def look_for_leaks(self, runtime: SimRuntime) -> None:
        """See `Stage`. The rows of idle names are deleted a day after their fences' own time."""
        backend = self.open_plain(Link(runtime.process, timeout=1.0), runtime)
        pool = backend._executor.source
        try:
            locks = [name.decode() for name in self._tables.names(b"leasehold_lock")]
            used = [name for name in locks if await backend.inspect(name) is not None]
            if used:
                self._history.violate("left in the store", f"{used}")
            for _ in range(2):  # a holder that vanished is remembered for a day from when that was noticed
                self._world.now += 2 * 86_400.0
                connection = await pool.take()
                await Cleaning(LABEL, runtime).run(connection)
                pool.give(connection)
        except BackendError as error:
            self._history.violate("the server does not answer although all is healed", repr(error))
        finally:
            await backend.close()
        left = [name for table in TABLES for name in self._tables.names(table.encode())]
        if left:
            self._history.violate("remembered for ever", f"{left}")


class TablesOfMysql:
    """The rows, read by the store's own statements and reader, at no time."""

    error = 0.0

    def __init__(self, server: SimMysql) -> None:
        self._server = server
        self._session = Session(0, lambda: None)

    def _rows(self, text: bytes) -> list[Values]:
        return self._server.answer(self._session, text).results[-1].rows

    def _name(self, key: str) -> NameRows:
        return NameRows(key, LABEL, self._rows(sql.read_name(key.encode())))

    def held(self, key: str) -> dict[str, Held]:
        """See `Servers`."""
        rows, ahead = self._name(key), self._server.now() - self._server.world.now
        return {
            row.claim.owner: Held(
                row.fence,
                row.expires - ahead,
                row.state is State.COOLING,
                broken=row.broken is not None,
                spare=row.spare,
            )
            for row in rows.held()
        }

    def waiting(self, key: str) -> set[str]:
        """See `Servers`."""
        rows = self._name(key)
        return {row.claim.owner for row in rows.waiting() if row.expires > rows.now}

    def names(self, table: bytes) -> list[bytes]:
        """Of all rows of a table."""
        return [name or b"" for (name,) in self._rows(b"SELECT name FROM %b" % table)]

    def time(self) -> float:
        """See `StoredRecords`."""
        return self._server.now()

    def value(self, key: str) -> bytes:
        """See `StoredRecords`."""
        ((value, *_),) = self._rows(sql.read_record(key.encode(), 0))
        return value or b""
