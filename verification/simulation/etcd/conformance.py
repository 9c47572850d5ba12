"""The simulated cluster against a real etcd: transactions, reads and leases drawn at random, compared byte by byte.

Headers are compared by their revision; which member answered, and in which term, differs by nature. Leases live long,
so that none ends meanwhile; that they end is the leader's clock, which no test can turn.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from leasehold._backends.etcd import rpc as requests
from leasehold._backends.etcd.blocking_wire import BlockingWire
from leasehold._backends.etcd.errors import CallFailed
from leasehold._backends.etcd.protobuf import block, fields
from leasehold._backends.etcd.rpc import Method, Sort
from leasehold._backends.etcd.wire import Target
from leasehold._runtimes.threads import ThreadRuntime, run
from verification.lab.etcd import EtcdServer
from verification.simulation.etcd.server import SimEtcd
from verification.simulation.world import World

__all__ = ["Twins", "against", "real_server"]

KEYS = [b"conformance/%d" % number for number in range(6)]
WHOLE = (b"conformance/", b"conformance0")
LEASES = (71, 72, 73)
LONG = 100_000

if TYPE_CHECKING:
    from collections.abc import Callable


def real_server() -> EtcdServer:
    """One of its own."""
    return EtcdServer("conformance")


class Twins:
    """A real server, a simulated one, and what was written to both."""

    def __init__(self, server: EtcdServer, seed: int) -> None:
        self._random = random.Random(seed)
        self._wire = BlockingWire(Target("127.0.0.1", server.port, server.port), ThreadRuntime(), 5.0)
        self._twin = SimEtcd(World(0))
        self._ask_real(Method.TXN, requests.then(requests.op_delete(block(1, WHOLE[0]) + block(2, WHOLE[1]))))
        for lease in LEASES:
            self._ask_real(Method.LEASE_REVOKE, requests.lease_id(lease))
        header = dict(fields(dict(fields(self._wire_call(Method.RANGE, requests.range_(*WHOLE))))[1]))
        self._twin.revision = header[3]
        self._draws: list[Callable[[], tuple[str, bytes]]] = [
            self._txn,
            self._txn,
            self._txn,
            self._range,
            self._range,
            self._lease,
        ]

    def one(self) -> tuple[Any, Any, Any]:
        """See `Comparison`."""
        method, request = self._random.choice(self._draws)()
        return (method, request), self._ask_real(method, request), self._ask_twin(method, request)

    def close(self) -> None:
        """See `Comparison`."""
        run(self._wire.close())

    def _wire_call(self, method: str, request: bytes) -> bytes:
        return run(self._wire.call(method, request, 5.0, ()))

    def _ask_real(self, method: str, request: bytes) -> Any:
        try:
            return _plain(method, self._wire_call(method, request))
        except CallFailed as failure:
            return failure.code, failure.details

    def _ask_twin(self, method: str, request: bytes) -> Any:
        try:
            return _plain(method, self._twin.call(0, method, request))
        except CallFailed as failure:
            return failure.code, failure.details

    # --- requests

    def _key(self) -> bytes:
        return self._random.choice(KEYS)

    def _revision(self) -> int:
        return max(0, self._twin.revision - self._random.randrange(12))

    def _lease_of_ours(self) -> int:
        return self._random.choice((0, 0, *LEASES))

    def _read(self) -> bytes:
        draw, number = self._random, self._random.randrange
        if draw.random() < 0.5:
            return requests.read(self._key())
        return requests.range_(
            *WHOLE,
            limit=number(4),
            sort=draw.choice([None, Sort.OLDEST, Sort.NEWEST]),
            keys_only=draw.random() < 0.3,
            count_only=draw.random() < 0.1,
            newest=draw.choice([0, 0, self._revision()]),
        )

    def _range(self) -> tuple[str, bytes]:
        return Method.RANGE, self._read()

    def _condition(self) -> bytes:
        draw, key = self._random, self._key()
        return requests.condition(
            draw.choice(
                [
                    requests.is_absent(key),
                    requests.is_absent(*WHOLE),
                    requests.is_present(key),
                    requests.created_at(key, self._revision()),
                    requests.written_at(key, self._revision()),
                    requests.none_created_before(*WHOLE, max(1, self._revision())),
                    requests.none_created_after(*WHOLE, self._revision()),
                    requests.lives_on(key, self._lease_of_ours()),
                    requests.value_is(key, b"%d" % draw.randrange(3)),
                ]
            )
        )

    def _operations(self) -> list[bytes]:
        draw = self._random
        keys = draw.sample(KEYS, 2)  # etcd refuses to write one key twice in a transaction
        some = []
        for key in keys[: draw.randrange(3)]:
            value = b"%d" % draw.randrange(3)
            put = requests.put(key, value, self._lease_of_ours())
            if draw.random() < 0.2 and key in self._twin.keys:
                put = requests.put(key, value, same_lease=True)
            some.append(
                draw.choice([requests.op_put(put), requests.op_put(put), requests.op_delete(requests.delete(key))])
            )
        if draw.random() < 0.6:
            some.append(requests.op_range(self._read()))
        return some

    def _txn(self) -> tuple[str, bytes]:
        conditions = [self._condition() for _ in range(self._random.randrange(3))]
        done = [requests.then(each) for each in self._operations()]
        otherwise = [requests.otherwise(each) for each in self._operations()]
        return Method.TXN, b"".join([*conditions, *done, *otherwise])

    def _lease(self) -> tuple[str, bytes]:
        lease = self._random.choice(LEASES)
        if self._random.random() < 0.4:
            return Method.LEASE_GRANT, requests.lease_grant(lease, LONG)
        method = self._random.choice([Method.LEASE_REVOKE, Method.LEASE_KEEP_ALIVE, Method.LEASE_TIME_TO_LIVE])
        return method, requests.lease_id(lease)


def against(server: EtcdServer, seed: int) -> Twins:
    """The comparison with this server."""
    return Twins(server, seed)


def _plain(method: str, message: bytes) -> Any:
    """A response as numbers and bytes; of its header only the revision, of the time left to a lease only whether."""
    plain: list[Any] = []
    for place, content in fields(message):
        if place == 1 and isinstance(content, bytes):
            plain.append((1, dict(fields(content)).get(3)))
        elif method == Method.LEASE_TIME_TO_LIVE and place == 3:
            plain.append((3, content >> 63))
        elif method == Method.TXN and place == 3:
            ((kind, result),) = fields(content)
            plain.append((3, kind, [part for part in fields(result) if part[0] != 1]))
        else:
            plain.append((place, content))
    return sorted(plain, key=repr)
