"""What the tests of ZooKeeper's faults share: contending processes, and what must hold of what they saw."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.values import Claim, Holder, Mode
from verification.lab.process import wait_until
from verification.lab.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leasehold import Client
    from leasehold.spi import Place
    from verification.lab.zookeeper import Ensemble, ZooKeeperServer

WORKER = Path(__file__).with_name("zookeeper_worker.py")
LIMIT = 90.0  # for what has to happen; generous, because a loaded machine is slow
OWN_LIMIT = 2.0  # the shortest time that the store itself gives one answer


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Contender:
    """One process; `grants` are the lines that it has written so far."""

    def __init__(self, url: str, name: str, ttl: float, hold: float, prefix: Sequence[str] = ()) -> None:
        command = [*prefix, sys.executable, str(WORKER), url, name, str(ttl), str(hold)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.grants: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.grants.append(json.loads(line))

    def wait_for_grants(self, number: int) -> None:
        """Wait for so many grants from now on."""
        wanted = len(self.grants) + number
        wait_until(lambda: len(self.grants) >= wanted, f"a contender gets the lock {number} times", LIMIT)

    def wait_until_it_had(self, number: int) -> None:
        """Wait for so many grants in all."""
        wait_until(lambda: len(self.grants) >= number, f"a contender had the lock {number} times", LIMIT)

    def finish(self) -> None:
        """Let it end in good order."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(LIMIT) == 0
        self._reader.join(LIMIT)
        self._process.stdout.close()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Contest:
    """Some contenders for one lock; use it as a context manager."""

    def __init__(self, number: int, url: str, ttl: float, hold: float = 0.05) -> None:
        self._terms = (url, "contest", ttl, hold)
        self._number = number
        self.contenders: list[Contender] = []

    def __enter__(self) -> Contest:
        self.contenders = [Contender(*self._terms) for _ in range(self._number)]
        self.all_are_served()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for contender in self.contenders:
            if kind is None:
                contender.finish()
            else:
                contender.kill()
        if kind is None:
            check_history(self.grants())

    def all_are_served(self, times: int = 3) -> None:
        """Wait until each contender had so many grants from now on."""
        for contender in self.contenders:
            contender.wait_for_grants(times)

    def grants(self) -> list[dict[str, Any]]:
        """What all of them saw, in order of time."""
        return sorted((grant for one in self.contenders for grant in one.grants), key=lambda grant: grant["first"])


def check_history(grants: list[dict[str, Any]]) -> None:
    """No two believed at the same time, and fences rise."""
    believed = [grant for grant in grants if grant["first"]]
    for before, after in itertools.pairwise(believed):
        assert before["last"] < after["first"], f"two holders at the same time: {before} and {after}"
        assert before["fence"] < after["fence"], f"fences do not rise: {before} and {after}"
    fences = [grant["fence"] for grant in grants]
    assert len(set(fences)) == len(fences), "a fence was given twice"


@contextmanager
def looking_at(server: ZooKeeperServer | Ensemble, **more: Any) -> Iterator[KazooClient]:
    """A plain kazoo client, which sees the nodes as they are."""
    servers = getattr(server, "servers", [server])
    client = KazooClient(hosts=",".join(one.address for one in servers), **more)
    client.start(timeout=30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def claims_in(client: KazooClient, root: str) -> Iterator[str]:
    """Every claim below a root."""
    if client.exists(f"{root}/locks") is None:
        return
    for lock in client.get_children(f"{root}/locks"):
        try:
            nodes = client.get_children(f"{root}/locks/{lock}")
        except NoNodeError:  # an empty one, which was just cleaned away
            continue
        yield from (f"{root}/locks/{lock}/{node}" for node in nodes)


class OneWayProxy(FaultProxy):
    """A proxy whose answers can vanish, on connections that exist and on new ones, while requests still arrive."""

    answers_vanish = False

    def url(self, root: str) -> str:
        """The URL of a store behind this proxy."""
        return f"zk://127.0.0.1:{self.port}{root}"

    def _on_answer(self, link: Any, chunk: bytes) -> bool:
        if self.answers_vanish:
            link.passes_answers = False
        return super()._on_answer(link, chunk)


RUNTIME = ThreadRuntime()


def opened(url: str) -> Any:
    """A store, used by its port."""
    return find_store(url).open_backend(RUNTIME)


def shut(*backends: Any) -> None:
    """Close stores, and at once also the sessions that their grants would keep open for a ttl, with their threads."""
    for backend in backends:
        run(backend.close())
        for session in list(backend._pool._sessions.values()):
            session.close()


def session_of(client: Client) -> Any:
    """The one session of a client."""
    backend: Any = client._twin._opened and client._twin._opened.backend
    (session,) = backend._pool._sessions.values()
    return session


def claim(key: str = "ns:x", ttl: float = 60.0, mode: Mode = Mode.EXCLUSIVE) -> Claim:
    return Claim(key, RUNTIME.owner(), ttl, mode, 1, 0.0, Holder("host", 1))


async def woken(place: Place) -> None:
    """Wait until this waiter is to look again."""
    assert await RUNTIME.wait(place.signal, RUNTIME.now() + LIMIT)
