"""One cell: start a store and its clients, disturb them, heal, wait until all are well, end, judge."""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from verification.lab import counter_databases, watcher
from verification.lab.adapters import OURS, PEERS
from verification.lab.checkers.lost_update import count_lost
from verification.lab.checkers.starvation import times_to_recover
from verification.lab.clients import Clients
from verification.lab.faults import NETWORK, disturb
from verification.lab.history import Kind
from verification.lab.matrix import why_unfair
from verification.lab.postgres import PostgresServer
from verification.lab.recorder import Recorder
from verification.lab.shifted_clock import ShiftedClock
from verification.lab.stages import make_stage
from verification.lab.verdict import Result, judge, needs_control, recovery_limit
from verification.lab.wiring import FilterWiring, NoWiring, ProxyWiring
from verification.lab.workloads import Order, queue, update

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.lab.history import Event
    from verification.lab.matrix import Plan
    from verification.lab.wiring import Wiring

__all__ = ["Cell"]

STOP_RATE = 0.03  # how often a client stops itself in the middle of an update, where clients are paused
STOP_RATE_OF_MANY = 0.004  # where a number of updates is asked for: a stop costs a ttl
BRISK = (0.004, 16)  # there: seconds of thinking, and updates in a turn
LONG_RATE = 0.15  # how often a hold is long, where a fault has to hit one that lives on renewals
CONTROL = 5.0  # times the seconds of a cell, at most
RENEWED = (*NETWORK, "clock", "restart empty", "failover")
FEW = 0.02
START_LIMIT = 60.0
SETTLE = 2.0  # ttls after the end, for what a killed client left
ON_POSTGRESQL = (
    "postgresql",
    "redis",
    "etcd",
)  # stores whose data is in a PostgreSQL of its own; else in a SQLite file


TABLES = {"update": update.make_tables, "queue": queue.make_tables}


class Cell:
    """Everything that one plan needs; `run` does it. `progress` is called with a word and the events so far."""

    def __init__(self, plan: Plan, history: Path, progress: Callable[[str, Recorder], None]) -> None:
        self.plan = plan
        self._progress = progress
        self.random = random.Random(f"{plan.name} {plan.seed}")
        self._stack = ExitStack()
        self.recorder = Recorder(history)
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="leasehold-lab-")))
        watcher.watch_folder(self._folder)
        self._stack.callback(watcher.forget_folder, self._folder)
        self._log = history.with_suffix(".log")
        self._log.unlink(missing_ok=True)
        self.stage = make_stage(plan.store, plan.fault, self._folder)
        self.ttl = self.stage.ttl
        self.wiring: Wiring = NoWiring()
        self.client_clock: ShiftedClock | None = None
        self._data = ""

    def run(self) -> Result:
        """From the start of the servers to the verdict."""
        started = time.monotonic()
        with self._stack:
            self._stack.callback(self.stage.remove)
            self._progress("starting", self.recorder)
            self.stage.start()
            self._prepare()
            self.recorder.start()
            events = self._with_clients()
        result = judge(self.plan, events, self.ttl, self.stage.clients)
        result.seconds = round(time.monotonic() - started, 1)
        return result

    def _prepare(self) -> None:
        """The database, the network, the clock."""
        if self.plan.workload in TABLES:
            self._data = self._database()
            TABLES[self.plan.workload](self._data)
        if self.plan.fault in NETWORK:
            ports = [port for _, port in self.stage.addresses]
            self.wiring = FilterWiring(ports) if self.stage.discovers else ProxyWiring(self.stage.addresses)
            self._stack.callback(self.wiring.remove)
        if self.plan.fault == "clock":
            self.client_clock = ShiftedClock(self._folder)

    def _database(self) -> str:
        if self.plan.workload == "queue" and self.stage.servers:
            return self.stage.url(self.stage.addresses)  # the store itself
        if self.plan.store not in ON_POSTGRESQL:
            return f"sqlite://{self._folder / 'data.db'}"
        server = PostgresServer(settings={"synchronous_commit": "off"})
        self._stack.callback(server.remove)
        server.start()
        return server.make_database("lab")

    def _order(self, number: int) -> Order:
        plan = self.plan
        addresses = self.wiring.addresses(number) or self.stage.addresses
        return Order(
            number,
            plan.workload,
            plan.library,
            plan.store,
            self.stage.url(addresses),
            self._data,
            self.ttl,
            plan.seed,
            self.recorder.pipe,
            self._stop_rate(),
            self._long_rate(),
            self.stage.threads,
            *(BRISK if self.plan.updates else ()),
        )

    def _stop_rate(self) -> float:
        if self.plan.fault != "pause clients":
            return 0.0
        return STOP_RATE_OF_MANY if self.plan.updates else STOP_RATE

    def _long_rate(self) -> float:
        if self.plan.library != OURS and not PEERS[self.plan.library].renews:
            return 0.0
        if self.plan.updates:
            return FEW / 20
        return LONG_RATE if self.plan.fault in RENEWED else FEW

    def _with_clients(self) -> list[Event]:
        environment = {} if self.client_clock is None else self.client_clock.environment()
        self.clients = Clients(self.recorder.pen, self._log, self._order, environment)
        self.clients.group_of = self.wiring.group
        stuck = 0
        try:
            for _ in range(self.stage.clients // self.stage.threads):
                self.clients.add()
            self._progress("waiting for clients", self.recorder)
            if not self.recorder.wait_for(self._all_work, START_LIMIT):
                raise TimeoutError(f"not every client got to work: {self._log.read_text()[-500:]}")
            self._disturb()
            self._heal()
        finally:
            stuck = self.clients.end()
        self._look_at_what_is_left(stuck)
        return self.recorder.close()

    def _all_work(self, events: list[Event]) -> bool:
        """Each has done something; where not everyone gets a turn, all run and one has got it."""
        worked = {event.process for event in events if event.kind in (Kind.GRANTED, Kind.BUSY, Kind.DONE)}
        if why_unfair(self.plan) or self.plan.workload == "election":
            started = {event.process for event in events if event.kind is Kind.STARTED}
            return bool(worked) and len(started) >= self.stage.clients
        return len(worked) >= self.stage.clients

    def _disturb(self) -> None:
        started = time.monotonic()
        generator = disturb(self.plan.fault, self)
        try:
            for pause in generator:
                until = time.monotonic() + pause
                while (left := until - time.monotonic()) > 0 and not self._is_over(started):
                    time.sleep(min(left, 0.2))
                    self._progress("disturbed" if self.plan.fault != "none" else "running", self.recorder)
                self._check_clients()
                if self._is_over(started):
                    return
        finally:
            generator.close()  # type: ignore[attr-defined] # a generator, which undoes what it has done

    def _is_over(self, started: float) -> bool:
        """After so many seconds, or so many updates; a control that has shown nothing yet gets more time for it."""
        if self.plan.updates:
            return self.recorder.count(Kind.WROTE) >= self.plan.updates
        lasted = time.monotonic() - started
        if needs_control(self.plan) and lasted < CONTROL * self.plan.seconds:
            shown = self.recorder.count(Kind.REFUSED) and count_lost(list(self.recorder.events), Kind.UNFENCED)
            return lasted >= self.plan.seconds and bool(shown)
        return lasted >= self.plan.seconds

    def _check_clients(self) -> None:
        if failed := self.clients.failed():
            raise RuntimeError(f"clients {failed} ended with an error: {self._log.read_text()[-500:]}")

    def _heal(self) -> None:
        """Wait until every client was granted once more, or has had its time."""
        self.stage.revive()
        self.recorder.pen.note(Kind.HEALED)
        self._progress("healing", self.recorder)
        if self.plan.workload not in ("update", "lock"):
            time.sleep(self.ttl)
            return

        def well(events: list[Event]) -> bool:
            waits = times_to_recover(sorted(events, key=lambda event: event.t))
            alive = {client for process in self.clients.running for client in self.clients.numbers(process)}
            granted = {client for client, took in waits.items() if took is not None}
            return bool(granted) if why_unfair(self.plan) else granted >= alive

        limit = recovery_limit(self.ttl, self.stage.clients)
        deadline = time.monotonic() + limit + 1.0
        while time.monotonic() < deadline and not well(list(self.recorder.events)):
            self.clients.wake_all()  # one that stopped itself after the last look
            time.sleep(0.1)

    def _look_at_what_is_left(self, stuck: int) -> None:
        pen = self.recorder.pen
        if self._data and self.plan.workload == "update":
            with closing(counter_databases.connect(self._data)) as database:
                for table, kind in (("fenced", Kind.WROTE), ("unfenced", Kind.UNFENCED)):
                    pen.note(Kind.FINAL, value=database.number(f"SELECT n FROM {table}"), detail=str(kind))
        if self.plan.workload == "queue":
            with closing(counter_databases.connect(self._data)) as database:
                twice = database.number("SELECT count(*) - count(DISTINCT job) FROM work")
                pen.note(Kind.LEFT, value=twice, detail="jobs whose work was committed twice")
        pen.note(Kind.LEFT, value=stuck, detail="clients that did not end")
        pen.note(Kind.LEFT, value=self._settled(self.stage.connections), detail="connections")
        if self.plan.library == OURS and self.plan.workload != "queue":
            pen.note(Kind.LEFT, value=self._settled(self.stage.held), detail="locks held or waited for")

    def _settled(self, count: Callable[[], int]) -> int:
        """What is left after a moment; a client that was killed leaves its lease to the ttl."""
        deadline = time.monotonic() + SETTLE * self.ttl + 5.0
        while (left := count()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left
