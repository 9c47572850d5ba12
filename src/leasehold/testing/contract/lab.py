"""What a case works with: backends, clients, claims, time, tasks and other processes."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from leasehold._face.client import AsyncClient
from leasehold.testing.clock import ManualClock
from leasehold.testing.contract.pace import Pulse
from leasehold.testing.faults import Faults, FaultyBackend
from leasehold.values import Claim, Holder, Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager

    from leasehold.spi import Backend, Queueing, Runtime, Store, Task
    from leasehold.testing.contract.drivers import Driver
    from leasehold.testing.contract.harness import Harness
    from leasehold.testing.contract.pace import Pace
    from leasehold.values import Capability

__all__ = ["Child", "Lab"]

PATIENCE = 5_000  # breaths of about a millisecond: generous, because a loaded machine is slow


class Lab:
    """The bench of one case."""

    def __init__(self, harness: Harness, driver: Driver, scale: float, pace: Pace) -> None:
        self.harness = harness
        self.driver = driver
        self.ttl: float = harness.ttl * scale
        self._pace = pace
        self._clients: list[AsyncClient] = []
        self._children: list[Child] = []
        self._backends: list[Backend] = []
        self._faults: list[Faults] = []
        self._runtime: Runtime | None = None

    @property
    def runtime(self) -> Runtime:
        """The runtime of this process."""
        if self._runtime is None:
            self._runtime = self.driver.runtime(self.harness.clock)
        return self._runtime

    @functools.cached_property
    def namespace(self) -> str:
        """A namespace of this case alone, so that cases that share a server do not meet."""
        return f"contract {self.runtime.owner()}"

    @functools.cached_property
    def capabilities(self) -> frozenset[Capability]:
        """What the store declares; if the harness says what it must declare, exactly that."""
        declared, required = self.backend().capabilities, self.harness.capabilities
        if required is not None and declared != required:
            raise AssertionError(
                f"the store declares {_listed(declared)}, and must declare {_listed(required)}: "
                "correct its `capabilities`, or the row of the table that the harness was given"
            )
        return declared

    def prepare(self) -> None:
        """Make once what all tasks of a case share: two that made it at the same time would never meet in the store."""
        self.harness.open_store()
        assert self.namespace
        assert self.capabilities

    def backend(self, faults: Faults | None = None) -> Backend:
        """A connection of its own to the store."""
        backend = self._store().open_backend(self.runtime)
        self._backends.append(backend)
        return backend if faults is None else FaultyBackend(backend, self.runtime, faults)

    def queueing(self, faults: Faults | None = None) -> Queueing:
        """A connection to a store that has a queue."""
        backend: Any = self.backend(faults)
        return backend  # type: ignore[no-any-return]

    def client(self, faults: Faults | None = None, **options: Any) -> AsyncClient:
        """A client of its own, as another process would have."""
        runtime = self.runtime
        store = self._store()
        if faults is not None:
            self._faults.append(faults)
            store = _FaultyStore(store, faults)
        options.setdefault("namespace", self.namespace)
        options.setdefault("ttl", self.ttl)
        client = AsyncClient(store, runtime, **options)
        if isinstance(self.harness.clock, ManualClock):
            client._close_patience = 0.0
        self._clients.append(client)
        return client

    def claim(
        self,
        name: str = "x",
        *,
        owner: str | None = None,
        ttl: float | None = None,
        mode: Mode = Mode.EXCLUSIVE,
        capacity: int = 1,
        min_hold: float = 0.0,
        label: str | None = None,
    ) -> Claim:
        """One attempt, under a fresh owner."""
        return Claim(
            key=f"{self.namespace}:{name}",
            owner=owner or self.runtime.owner(),
            ttl=self.ttl if ttl is None else ttl,
            mode=mode,
            capacity=capacity,
            min_hold=min_hold,
            holder=Holder("host", 1, label),
        )

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> Spawned:
        """Run it beside the case."""
        return Spawned(self, coroutine)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass in one piece: a keeper may find that it slept too long.

        Where a ttl passes, a store that is late in ending things gets the time that it needs for it.
        """
        late = self.harness.lateness if seconds >= self.ttl else 0.0
        await self.harness.pass_time(self.runtime, seconds + late)

    async def live(self, seconds: float) -> None:
        """Let time pass as it does on a healthy host: keepers renew meanwhile."""
        if not isinstance(self.harness.clock, ManualClock):
            await self.harness.pass_time(self.runtime, seconds)
            return
        steps = max(1, round(seconds / (self.ttl / 20)))
        for _ in range(steps):
            await self.harness.pass_time(self.runtime, seconds / steps)
            await self.eventually(self._keepers_are_quiet, "the keepers do what is due")

    async def flowing(self, awaitable: Coroutine[Any, Any, Any]) -> Any:
        """Await something that needs time to go on meanwhile: where the clock is turned by hand, it is turned."""
        if not isinstance(self.harness.clock, ManualClock):
            return await awaitable
        task = self.spawn(awaitable)
        while not task.done:
            await self.live(self.ttl / 100)
            await self.driver.breathe()
        return await task.join()

    async def eventually(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something that others do."""
        for _ in range(PATIENCE):
            if condition():
                return
            await self.driver.breathe()
        raise AssertionError(f"did not happen: {what}")

    async def waiting(self, name: str, number: int) -> None:
        """Wait until so many wait in the queue of a name."""
        client = self.client()
        for _ in range(PATIENCE):
            state = await client.inspect(name)
            if (0 if state is None else len(state.waiting)) == number:
                return
            await self.driver.breathe()
        raise AssertionError(f"there were never {number} waiting for {name!r}")

    async def calls_waiting(self, client: AsyncClient, number: int) -> None:
        """Wait until so many calls of this client wait; they may share one place in the queue."""
        await self.eventually(
            lambda: client._opened is not None and client._opened.waiting_calls.number == number, f"{number} wait"
        )

    async def free(self, name: str) -> bool:
        """Whether the name has neither a holder nor a waiter."""
        return await self.client().inspect(name) is None

    def child(self, *words: str) -> Child:
        """Start another process; see `child.py` for what it can do."""
        child = Child(self.harness.url_for_children(), self.namespace, *words, pace=self._pace)
        self._children.append(child)
        return child

    async def close(self, client: AsyncClient) -> None:
        """Close a client before the case ends."""
        self._clients.remove(client)
        await client.close()

    def running_clock(self) -> AbstractContextManager[None]:
        """Let a clock that is turned by hand run by itself for a while."""
        clock = self.harness.clock
        return clock.running() if isinstance(clock, ManualClock) else nullcontext()

    async def clean_up(self) -> None:
        """Close what the case left open, all of it; then raise the first error that there was."""
        for child in self._children:
            child.stop()
        errors = []
        for close in (*(client.close for client in self._clients), *(backend.close for backend in self._backends)):
            try:
                await close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _store(self) -> Store:
        """The store, whose calls are measured where time is real."""
        store = self.harness.open_store()
        return store if isinstance(self.harness.clock, ManualClock) else _MeasuredStore(store, self._pace)

    def _keepers_are_quiet(self) -> bool:
        if any(faults.delayed for faults in self._faults):
            return True  # a renewal is under way and stays so until more time has passed
        opened = [opened for client in self._clients for opened in client._open_clients.all()]
        return all(s.keeper.is_quiet() and s.cleanup.is_quiet() for s in opened)


def _listed(capabilities: frozenset[Capability]) -> str:
    return ", ".join(sorted(capabilities))


class Spawned:
    """A coroutine that runs beside the case; its error is raised where it is joined."""

    def __init__(self, lab: Lab, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._lab = lab
        self._coroutine = coroutine
        self.error: BaseException | None = None
        self.result: Any = None
        self.done: bool = False
        self._task: Task = lab.runtime.spawn(self._perform(), "contract task")

    async def _perform(self) -> None:
        try:
            self.result = await self._coroutine
        except BaseException as error:
            self.error = error
        self.done = True

    async def join(self) -> Any:
        """Wait for its end."""
        await self._lab.eventually(lambda: self.done, "a spawned task ends")
        await self._task.join()
        if self.error is not None:
            raise self.error
        return self.result


class _MeasuredStore:
    def __init__(self, store: Store, pace: Pace) -> None:
        self._store = store
        self._pace = pace

    def open_backend(self, runtime: Runtime) -> Backend:
        backend = self._store.open_backend(runtime)
        self._pace.watch(backend)
        return backend


class _FaultyStore:
    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    def open_backend(self, runtime: Runtime) -> Backend:
        return FaultyBackend(self._store.open_backend(runtime), runtime, self._faults)


class Child:
    """Another process that uses the store; it answers each word on its input with a line."""

    def __init__(self, url: str, namespace: str, *words: str, pace: Pace | None = None) -> None:
        self._pulse = pulse = Pulse()
        command = [sys.executable, "-m", "leasehold.testing.contract.child", str(pulse.writing), url, namespace, *words]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[pulse.writing]
            )
        finally:
            os.close(pulse.writing)
        self.pid: int = self._process.pid
        if pace is not None:
            pace.follow(pulse)

    def line(self) -> str:
        """The next line that it prints."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def say(self, word: str) -> None:
        """Write a word to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        """Send it a signal. What it misses while it is stopped is not counted as a delay of the machine."""
        if number in (signal.SIGSTOP, signal.SIGKILL):
            self._pulse.pause()
        self._process.send_signal(number)
        if number == signal.SIGCONT:
            self._pulse.resume()

    def wait(self) -> int:
        """Wait for its end."""
        return self._process.wait()

    def stop(self) -> None:
        """End it, whatever it does."""
        self._pulse.close()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                with suppress(BrokenPipeError):
                    pipe.close()
