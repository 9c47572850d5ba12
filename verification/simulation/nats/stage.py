"""The NATS store of a run: a bucket of documents that are replaced on condition, and what befalls its server.

In every seed the server may stand still, or be restarted and forget what it had not acknowledged. In some its bucket is
deleted: then holders may believe in grants that are gone, until their next renewal, and fences rise all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._backends.nats.documents import NatsDocuments
from leasehold._backends.nats.options import Options
from leasehold.errors import BackendError
from leasehold.kit.document_format import Name, read_name, read_record
from leasehold.kit.documents import LOCK, RECORD, DocumentBackend
from leasehold.kit.rows import State
from leasehold.values import Capability
from verification.simulation.nats.server import SimNats
from verification.simulation.nats.wire import LABEL, SimNatsWire
from verification.simulation.network import Link
from verification.simulation.server_stage import ServerStage
from verification.simulation.watched import Held, ServerModel

if TYPE_CHECKING:
    from verification.simulation.history import History
    from verification.simulation.nats.server import Message
    from verification.simulation.runtime import SimRuntime
    from verification.simulation.schedule import Schedule
    from verification.simulation.world import World

__all__ = ["NatsStage", "open_plain"]

OPTIONS = Options((("simulated", 4222),), LABEL)


def open_plain(server: SimNats, link: Link, runtime: Any) -> DocumentBackend:
    """The shipped documents and the kit's backend over the simulated wire, and nothing in front of them."""
    return DocumentBackend(NatsDocuments(OPTIONS, SimNatsWire(link, runtime, server)), runtime, LABEL)


class NatsStage(ServerStage):
    """One server for one run."""

    model: ServerModel
    capabilities = frozenset(Capability) - {Capability.SESSION}

    def __init__(self, world: World, history: History, schedule: Schedule) -> None:
        super().__init__(world, history, schedule)
        self._server = SimNats(world, rate=1.0 + 0.001 * (2 * world.random.random() - 1))
        self._documents = DocumentsOfNats(self._server)
        self.model = ServerModel(world, history, self._documents)
        self._server.on_change = self._changed
        self.records = self._documents
        self.keeps_records = True

    def prepare(self, ttl: float, *, queueing: bool, forgetful: bool = False) -> None:
        """See `Stage`."""
        self._ttl, self._queueing = ttl, queueing
        deletes = self._world.random.random() < 0.25 or forgetful
        faults = [self._stall, self._restart, self._restart]
        self._faults = faults + [self._delete] * 3 if deletes else faults
        self.keeps_records = not deletes
        self.forgets = deletes
        self.model.excuses = deletes

    def open_plain(self, link: Link, runtime: Any) -> DocumentBackend:
        """See `ServerStage`."""
        return open_plain(self._server, link, runtime)

    def _changed(self, subject: str) -> None:
        key = self._documents.key_of(subject)
        if key is not None:
            self.model.changed(key)

    # --- faults

    def heal(self) -> None:
        """See `Stage`."""
        super().heal()
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
        lost = self._world.random.randrange(4)
        self._note("restart", seconds)
        self._server.is_down = True

        def back() -> None:
            if self._server.is_down:
                self._server.restart(lost)

        self._world.after(seconds, back)

    def _delete(self) -> None:
        self._note("delete the bucket")
        self._history.counts["empty restarts"] += 1
        self._server.delete_bucket()

    # --- the end

    async def look_for_leaks(self, runtime: SimRuntime) -> None:
        """See `Stage`. The documents of idle names are deleted a day after their fences' own time."""
        backend = self.open_plain(Link(runtime.process, timeout=1.0), runtime)
        try:
            states = await backend.list("")
            if states:
                self._history.violate("left in the store", f"{[(each.name, len(each.holdings)) for each in states]}")
            for _ in range(2):  # a holder that vanished is remembered for a day from when that was noticed
                self._world.now += 2 * 86_400.0
                await backend._clean()
        except BackendError as error:
            self._history.violate("the server does not answer although all is healed", repr(error))
        finally:
            await backend.close()
        if self._server.messages:
            self._history.violate("remembered for ever", f"{sorted(self._server.messages)}")


class DocumentsOfNats:
    """The documents of the bucket, read with the kit's own reader."""

    error = 0.0

    def __init__(self, server: SimNats) -> None:
        self._server = server
        self._names = NatsDocuments(OPTIONS, SimNatsWire.__new__(SimNatsWire))  # for its names only
        self._keys: dict[str, str] = {}
        self._subjects: dict[str, str] = {}  # by the key of a record
        self._values: dict[str, tuple[Message, bytes]] = {}  # of records that were read before

    def key_of(self, subject: str) -> str | None:
        """The key of a lock that was looked at before, by the subject of its document."""
        return self._keys.get(subject)

    def _name(self, key: str) -> Name | None:
        subject = self._names._subject(LOCK + key)
        self._keys[subject] = key
        message = self._server.messages.get(subject)
        if message is None or message.headers:
            return None
        return read_name(Name(key, LABEL, self._server.now(), 1), message.body, None)

    def held(self, key: str) -> dict[str, Held]:
        """See `Servers`."""
        name, ahead = self._name(key), self._world_ahead()
        if name is None:
            return {}
        return {
            row.claim.owner: Held(
                row.fence,
                row.expires - ahead,
                row.state is State.COOLING,
                broken=row.broken is not None,
                spare=row.spare,
            )
            for row in name.rows.held()
        }

    def waiting(self, key: str) -> set[str]:
        """See `Servers`."""
        name = self._name(key)
        return (
            set() if name is None else {row.claim.owner for row in name.rows.waiting() if row.expires > name.rows.now}
        )

    def time(self) -> float:
        """See `StoredRecords`."""
        return self._server.now()

    def value(self, key: str) -> bytes:
        """See `StoredRecords`."""
        subject = self._subjects.get(key) or self._subjects.setdefault(key, self._names._subject(RECORD + key))
        message = self._server.messages.get(subject)
        if message is None or message.headers:
            return b""
        read, value = self._values.get(key, (None, b""))
        if read is not message:
            value = read_record(message.body, LABEL).value
            self._values[key] = (message, value)
        return value

    def _world_ahead(self) -> float:
        return self._server.now() - self._server.world.now
