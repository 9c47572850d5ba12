"""An etcd cluster as its clients see it: one history of revisions, leases that run out, watches, three members.

Transactions are linearizable, whichever member they are sent to. A lease is ended by the leader, at its end or up to
half a second later, and begins anew when another member becomes the leader. A member that was the leader and does not
know better goes on answering keep-alives, which extend nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from leasehold._backends.etcd.errors import CallFailed
from leasehold._backends.etcd.protobuf import block, fields, number, signed
from leasehold._backends.etcd.rpc import Method

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.simulation.world import Timer, World

__all__ = ["EPOCH", "MEMBERS", "SimEtcd", "Stored"]

EPOCH = 1_600_000_000
MEMBERS = 3
SHORTEST_LEASE = 2  # seconds, with the election timeout that etcd has by default
LATEST_REVOCATION = 0.5
NO_LEASE = CallFailed("NOT_FOUND", "etcdserver: requested lease not found")


@dataclass(frozen=True, slots=True)
class Stored:
    """A key."""

    key: bytes
    created: int
    written: int
    version: int
    value: bytes
    lease: int

    def message(self, *, keys_only: bool = False) -> bytes:
        """As etcd sends it."""
        what = number(1, 0) + block(1, self.key) + number(2, self.created) + number(3, self.written)
        value = b"" if keys_only else block(5, self.value)
        return what + number(4, self.version) + value + number(6, self.lease)


@dataclass(slots=True)
class Lease:
    """A lease, and the timer that ends it."""

    ttl: int
    expires: float = 0.0
    keys: dict[bytes, None] = field(default_factory=dict)
    timer: Timer | None = None


@dataclass(slots=True)
class Watch:
    """One watch of one stream."""

    key: bytes
    end: bytes
    puts: bool
    send: Callable[[bytes], None]
    number: int


class SimEtcd:
    """The cluster. Times are those of the world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.revision = 1
        self.term = 2
        self.keys: dict[bytes, Stored] = {}
        self.leases: dict[int, Lease] = {}
        self.watches: dict[tuple[int, int], Watch] = {}  # by stream and number
        self.is_down = [False] * MEMBERS
        self.stalled_until = [0.0] * MEMBERS
        self.stale: dict[int, int] = {}  # members that believe to be leaders, and of which term
        self.latest_copy = 0.3  # seconds after which a late request may still arrive
        self.on_change: Callable[[bytes], None] | None = None
        self._changed: list[tuple[bytes, Stored | None]] = []

    # --- faults

    def elect(self) -> None:
        """Another member becomes the leader: every lease gets its whole time again."""
        self.term += 1
        for lease in list(self.leases):
            self._extend(lease)

    # --- requests

    def call(self, member: int, method: str, request: bytes) -> bytes:
        """One request to one member."""
        get = dict(fields(request)).get
        if method == Method.TXN:
            return self._txn(member, request)
        if method == Method.RANGE:
            return self._range(member, request)
        lease = signed(get(2 if method == Method.LEASE_GRANT else 1, 0))
        if method == Method.LEASE_GRANT:
            return self._grant(member, lease, max(SHORTEST_LEASE, signed(get(1, 0))))
        if method == Method.LEASE_REVOKE:
            if lease not in self.leases:
                raise NO_LEASE
            self.revoke(lease)
            return block(1, self._header(member))
        if method == Method.LEASE_KEEP_ALIVE:
            return self._keep_alive(member, lease)
        if method == Method.LEASE_TIME_TO_LIVE:
            return self._time_to_live(member, lease)
        raise AssertionError(f"the simulated cluster does not know {method}")

    def _header(self, member: int) -> bytes:
        term = self.stale.get(member, self.term)
        return number(1, 1) + number(2, member + 1) + number(3, self.revision) + number(4, term)

    # --- keys

    def _txn(self, member: int, request: bytes) -> bytes:
        parts = fields(request)
        holds = all(self._compare(content) for place, content in parts if place == 1)
        chosen = [content for place, content in parts if place == (2 if holds else 3)]
        for operation in chosen:
            ((kind, content),) = fields(operation)
            if kind == 2 and (lease := signed(dict(fields(content)).get(3, 0))) and lease not in self.leases:
                raise NO_LEASE
        self._changed = []
        results = [self._operation(member, operation) for operation in chosen]
        self._commit()
        answer = block(1, self._header(member)) + number(2, holds)
        return answer + b"".join(block(3, result) for result in results)

    def _compare(self, request: bytes) -> bool:
        """All keys of the range have to agree; without any, a key that never was has to."""
        get = dict(fields(request)).get
        result, target = get(1, 0), get(2, 0)
        found = self._matching(get(3, b""), get(64, b"")) or ([] if target == 3 else [NOTHING])
        wanted: Any = get(7, b"") if target == 3 else signed(get(TARGETS[target], 0))
        for each in found:
            present: Any = (each.version, each.created, each.written, each.value, each.lease)[target]
            if not (present == wanted if result == 0 else present > wanted if result == 1 else present < wanted):
                return False
        return bool(found)

    def _operation(self, member: int, request: bytes) -> bytes:
        ((kind, content),) = fields(request)
        if kind == 1:
            return block(1, self._range(member, content))
        get = dict(fields(content)).get
        key = get(1, b"")
        if kind == 2:
            present = self.keys.get(key)
            lease = signed(get(3, 0))
            if get(6, 0) and present is not None:
                lease = present.lease
            self._put(key, get(2, b""), lease)
            return block(2, b"")
        removed = self._matching(key, get(2, b""))
        for each in removed:
            self._delete(each.key)
        return block(3, number(2, len(removed)))

    def _range(self, member: int, request: bytes) -> bytes:
        get = dict(fields(request)).get
        found = self._matching(get(1, b""), get(2, b""))
        total = len(found)
        if get(13, 0):
            found = [each for each in found if each.created <= get(13, 0)]
        if get(5, 0):
            found.sort(key=lambda each: each.created, reverse=get(5, 0) == 2)
        limit = get(3, 0)
        more = bool(limit) and len(found) > limit
        shown = [] if get(9, 0) else found[: limit or None]
        keys = b"".join(block(2, each.message(keys_only=bool(get(8, 0)))) for each in shown)
        return block(1, self._header(member)) + keys + number(3, more and not get(9, 0)) + number(4, total)

    def _matching(self, key: bytes, end: bytes) -> list[Stored]:
        if not end:
            return [self.keys[key]] if key in self.keys else []
        return [self.keys[each] for each in sorted(self.keys) if key <= each < end]

    def _put(self, key: bytes, value: bytes, lease: int) -> None:
        present, revision = self.keys.get(key), self.revision + 1
        stored = Stored(key, revision, revision, 1, value, lease)
        if present is not None:
            stored = replace(stored, created=present.created, version=present.version + 1)
            if present.lease in self.leases:
                self.leases[present.lease].keys.pop(key, None)
        if lease:
            self.leases[lease].keys[key] = None
        self.keys[key] = stored
        self._changed.append((key, stored))

    def _delete(self, key: bytes) -> None:
        present = self.keys.pop(key)
        if present.lease in self.leases:
            self.leases[present.lease].keys.pop(key, None)
        self._changed.append((key, None))

    def _commit(self) -> None:
        """What was changed becomes the next revision, and watches are told."""
        if not self._changed:
            return
        self.revision += 1
        changed, self._changed = self._changed, []
        for watch in list(self.watches.values()):
            events = [
                block(11, number(1, stored is None) + block(2, block(1, key) + number(3, self.revision)))
                for key, stored in changed
                if _within(key, watch) and (watch.puts or stored is None)
            ]
            if events:
                watch.send(block(1, self._header(0)) + number(2, watch.number) + b"".join(events))
        if self.on_change is not None:
            for key, _ in changed:
                self.on_change(key)

    # --- leases

    def _grant(self, member: int, lease: int, ttl: int) -> bytes:
        if lease in self.leases:
            raise CallFailed("FAILED_PRECONDITION", "etcdserver: lease already exists")
        self.leases[lease] = Lease(ttl)
        self._extend(lease)
        return block(1, self._header(member)) + number(2, lease) + number(3, ttl)

    def _extend(self, lease: int) -> None:
        present = self.leases[lease]
        if present.timer is not None:
            present.timer.cancel()
        present.expires = self.world.now + present.ttl
        late = LATEST_REVOCATION * self.world.random.random()
        present.timer = self.world.at(present.expires + late, lambda: self.revoke(lease))

    def revoke(self, lease: int) -> None:
        """End it with all its keys, in one revision."""
        present = self.leases.pop(lease, None)
        if present is None:
            return
        if present.timer is not None:
            present.timer.cancel()
        self._changed = []
        for key in list(present.keys):
            self._delete(key)
        self._commit()

    def _keep_alive(self, member: int, lease: int) -> bytes:
        ttl = 0
        if lease in self.leases:
            ttl = self.leases[lease].ttl
            if member not in self.stale:
                self._extend(lease)
        return block(1, self._header(member)) + number(2, lease) + number(3, ttl)

    def _time_to_live(self, member: int, lease: int) -> bytes:
        present = self.leases.get(lease)
        left = -1 if present is None else int(max(0.0, present.expires - self.world.now))
        granted = 0 if present is None else present.ttl
        return block(1, self._header(member)) + number(2, lease) + number(3, left) + number(4, granted)

    # --- watches

    def watch(self, stream: int, request: bytes, send: Callable[[bytes], None]) -> None:
        """A message of a client on its stream of watches."""
        ((kind, content),) = fields(request)
        get = dict(fields(content)).get
        if kind == 1:
            name = signed(get(7, 0))
            self.watches[stream, name] = Watch(get(1, b""), get(2, b""), 5 not in dict(fields(content)), send, name)
            send(block(1, self._header(0)) + number(2, name) + number(3, 1))
        elif kind == 2:
            self.watches.pop((stream, signed(get(1, 0))), None)

    def end_stream(self, stream: int) -> None:
        """The connection is gone."""
        for name in [name for name in self.watches if name[0] == stream]:
            del self.watches[name]


NOTHING = Stored(b"", 0, 0, 0, b"", 0)
TARGETS = (4, 5, 6, 7, 8)  # where a condition has what it compares with, by what it is about


def _within(key: bytes, watch: Watch) -> bool:
    return key == watch.key or (bool(watch.end) and watch.key <= key < watch.end)
