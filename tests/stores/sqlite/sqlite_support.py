"""A SQLite backend for tests: verbs that can be called one by one, on a host whose clocks are turned by hand."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, TypeVar

from leasehold._backends.sqlite import SqliteBackend
from leasehold._backends.sqlite.host import ThisHost
from leasehold._backends.sqlite.options import Location
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, Mode, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from leasehold._backends.sqlite.host import Host
    from leasehold.errors import BackendError
    from leasehold.values import LockState, Loss, Record

__all__ = ["FakeHost", "Verbs", "claim", "granted", "placed", "refused"]

T = TypeVar("T")
_OWNERS = itertools.count(1)


class FakeHost:
    """A host that boots and ages on request."""

    def __init__(self, boot: str = "first boot", now: float = 1_000.0, wall: float = 1_700_000_000.0) -> None:
        self.boot = boot
        self.instant = now
        self.wall_time = wall

    def now(self) -> float:
        return self.instant

    def wall(self) -> float:
        return self.wall_time

    def pass_time(self, seconds: float) -> None:
        self.instant += seconds
        self.wall_time += seconds

    def reboot(self) -> FakeHost:
        return FakeHost(boot=f"after {self.boot}", now=5.0, wall=self.wall_time + 60)


class Verbs:
    """A backend whose verbs block."""

    def __init__(self, path: Path, host: Host | None = None, *, fence_floor: int = 0) -> None:
        location = Location(str(path), private=False, label="sqlite: test")
        self.backend = SqliteBackend(location, host or ThisHost(), ThreadRuntime(), "normal", fence_floor)

    def try_acquire(self, wanted: Claim, until: float = math.inf) -> Grant | Refusal:
        return run(self.backend.try_acquire(wanted, until))

    def join(self, wanted: Claim, until: float = math.inf) -> Grant | Place | Refusal:
        return run(self.backend.join(wanted, until))

    def turn(self, place: Place, until: float = math.inf) -> Grant | Place | Refusal:
        return run(self.backend.turn(place, until))

    def renew(self, *grants: Grant, until: float = math.inf) -> Sequence[Grant | Loss | BackendError]:
        return run(self.backend.renew(grants, until))

    def release(self, grant: Grant, until: float = math.inf) -> bool | Loss:
        return run(self.backend.release(grant, until))

    def withdraw(self, wanted: Claim, until: float = math.inf, *, doubt: bool = True) -> None:
        run(self.backend.withdraw(wanted, until, doubt=doubt))

    def break_(self, key: str, fence: int, *, now: bool = False) -> bool:
        return run(self.backend.break_(key, fence, "by hand", now=now))

    def inspect(self, key: str = "ns:name") -> LockState | None:
        return run(self.backend.inspect(key))

    def list(self, prefix: str) -> Sequence[LockState]:
        return run(self.backend.list(prefix))

    def read(self, key: str) -> Record | None:
        return run(self.backend.read(key)).record

    def write(self, record: Record) -> bool:
        return run(self.backend.write(record))

    def rows(self, table: str) -> int:
        """How many rows a table has."""
        (number,) = self.backend._file.perform(
            lambda connection: connection.execute(f"SELECT count(*) FROM {table}")
        ).fetchone()
        return int(number)

    def clean(self) -> None:
        self.backend._file.perform(self.backend._cleaner.clean_all)

    def close(self) -> None:
        run(self.backend.close())


def claim(
    key: str = "ns:name", *, mode: Mode = Mode.EXCLUSIVE, capacity: int = 1, ttl: float = 30.0, min_hold: float = 0.0
) -> Claim:
    """A new claim with an owner of its own."""
    number = next(_OWNERS)
    return Claim(key, f"owner-{number}", ttl, mode, capacity, min_hold, Holder("host", number, "label", "reason"))


def granted(answer: object) -> Grant:
    assert isinstance(answer, Grant), answer
    return answer


def placed(answer: object) -> Place:
    assert isinstance(answer, Place), answer
    return answer


def refused(answer: object) -> Refusal:
    assert isinstance(answer, Refusal), answer
    return answer
