"""P16, with others: MariaDB, one name in several processes; how soon a waiter is woken, and what waiting costs.

Statements are counted by the server (`Questions`), which counts each one of a query that has several.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import leasehold
from benchmarks.contender import Contender, contended
from benchmarks.harness import Candidate, Role, Sample, measure, percentile
from benchmarks.library import PATIENCE, Ours
from benchmarks.mysql_contender import NAME
from benchmarks.mysql_locks import DLOCK, MARIADB, OURS, USER_LOCK
from verification.lab.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Settings, Table
    from benchmarks.library import Connections, Lock

__all__ = ["run"]

MODULE = "benchmarks.mysql_contender"
PROCESSES, THREADS = 4, 4
HOLD = (0.05, 0.35)  # well before the waiter looks by itself, a second after it joined: so a lost wake-up shows
QUESTIONS_OF_A_STATUS = 3  # each has a connection of its own, which is set up by PyMySQL
OWN_CONNECTIONS = 2  # of the holder, and of the question itself
MOST_ROUNDS = 3  # of what lasts for seconds by its nature; the whole scenario is to take two minutes
MOST_IDLE_ROUNDS = 2
LONG = 300  # the holder's ttl while others are counted: it does not renew in that time
CROWDS = ((1, 1), (1, 10), (1, 100), (10, 1))  # processes, and waiters in each
TARGETS = "p99 at most 2 x p50, least/most at least 0.95"


def run(settings: Settings) -> Iterator[Table]:
    """Contention, wake-ups, idle waiters."""
    settings = replace(settings, rounds=min(settings.rounds, MOST_ROUNDS))
    if missing := MARIADB.why_no_server():
        yield measure("MariaDB, one name", [Candidate(OURS, Role.OURS, None, missing)], settings)
        return
    with MARIADB.serve() as server:
        url = MARIADB.connect(server, MARIADB.addresses(server)).url
        for held in (0.0, 0.005):
            what = f"{held * 1000:g} ms held" if held else "nothing held"
            title = f"MariaDB, {PROCESSES} processes x {THREADS} threads on one name, {what}"
            together = [_together(settings, kind, url, held) for kind in (OURS, DLOCK)]
            table = measure(title, together, settings, unit="grants a second", higher_is_better=True, by="median")
            table.targets.append(TARGETS)
            yield table
        passed = [_passed(settings, server, kind, url) for kind in (USER_LOCK, OURS, DLOCK)]
        table = measure("MariaDB, hand-over between two processes, p50", passed, settings, unit="ms", by="median")
        table.targets.append(f"p50 below 100 ms for {OURS}")
        yield table
        crowds = settings.pick(CROWDS, ((1, 1), (2, 2)))
        idle = [_idle(settings, server, url, OURS, *crowd) for crowd in crowds]
        idle.append(_idle(settings, server, url, DLOCK, *crowds[1]))
        title, unit = "MariaDB, idle waiters", "statements a second for each waiter"
        few = replace(settings, rounds=min(settings.rounds, MOST_IDLE_ROUNDS))
        table = measure(title, idle, few, unit=unit, by="median")
        table.notes.append("a waiter of sqlalchemy-dlock has one statement and a connection for itself")
        table.targets.append("at most 2")
        yield table


def _candidate(kind: str, name: str, **more: Any) -> Candidate:
    missing = MARIADB.why_missing(kind)
    if missing:
        return Candidate(name, MARIADB.kinds[kind].role, None, missing)
    return Candidate(name, MARIADB.kinds[kind].role, **more)


def _together(settings: Settings, kind: str, url: str, held: float) -> Candidate:
    processes, threads = settings.pick((PROCESSES, THREADS), (2, 2))
    seconds: float = settings.pick(3.0 if held else 2.0, 0.1)

    def sample() -> Sample:
        contenders = [Contender("contend", kind, url, threads, held, module=MODULE) for _ in range(processes)]
        for contender in contenders:
            contender.started()
        start = time.monotonic() + 0.2
        for contender in contenders:
            contender.tell(f"{start} {start + seconds}")
        answers = [thread for contender in contenders for thread in contender.answer()]
        for contender in contenders:
            contender.close()
        return contended(answers, seconds)

    return _candidate(kind, kind, sample=sample)


def _passed(settings: Settings, server: Any, kind: str, url: str) -> Candidate:
    """From a release in this process to the grant in another."""
    if MARIADB.why_missing(kind):
        return _candidate(kind, kind)
    connections = MARIADB.connect(server, MARIADB.addresses(server))
    lock = MARIADB.make(kind, connections, NAME)
    other = Contender("wait on order", kind, url, 1, module=MODULE).started()
    count, hold = settings.pick((20, HOLD), (2, HOLD))
    chance = random.Random(1)  # the same times for every candidate

    def sample() -> Sample:
        delays: list[float] = []
        for _ in range(count):
            lock.take()
            other.tell("wait")
            time.sleep(chance.uniform(*hold))
            released = time.monotonic()
            lock.give()
            delays.append(1000 * (other.answer() - released))
        return Sample(percentile(delays, 0.5), {"longest ms": max(delays)})

    def close() -> None:
        other.close()
        lock.close()
        connections.close()

    return _candidate(kind, kind, sample=sample, close=close)


def _idle(settings: Settings, server: Any, url: str, kind: str, processes: int, each: int) -> Candidate:
    """All of them wait for a lock that stays held, and are served one by one in the end."""
    seconds: float = settings.pick(4.0, 0.5)
    waiters = processes * each
    places = "process" if processes == 1 else "processes"

    def sample() -> Sample:
        connections = MARIADB.connect(server, MARIADB.addresses(server))
        watch = leasehold.connect(f"{url}?answer_timeout={PATIENCE:g}", ttl=LONG)
        holder = _holder(kind, connections, watch)
        holder.take()
        wait_until(lambda: _status(server)["Threads_connected"] <= OWN_CONNECTIONS, "connections of others are gone")
        crowd = [Contender("wait", kind, url, each, module=MODULE).started() for _ in range(processes)]
        for contender in crowd:
            contender.tell("wait")
        wait_until(lambda: _waiting(server, watch, kind) == waiters, f"{waiters} waiters are in the queue")
        time.sleep(settings.pick(1.0, 0.2))  # what is done once is done
        first, begun = _status(server), time.monotonic()
        time.sleep(seconds)
        last, took = _status(server), time.monotonic() - begun
        released = time.monotonic()
        holder.give()
        for contender in crowd:
            contender.answer()
        served = time.monotonic() - released
        for contender in crowd:
            contender.close()
        for each_one in (holder, watch, connections):
            each_one.close()
        sent = last["Questions"] - first["Questions"] - QUESTIONS_OF_A_STATUS
        facts = {"connections": last["Threads_connected"] - OWN_CONNECTIONS, "all served in s": served}
        return Sample(sent / took / waiters, facts)

    return _candidate(kind, f"{kind}, {waiters} in {processes} {places}", sample=sample)


def _holder(kind: str, connections: Connections, watch: leasehold.Client) -> Lock:
    return Ours(watch, NAME) if kind == OURS else MARIADB.make(kind, connections, NAME)


def _waiting(server: Any, watch: leasehold.Client, kind: str) -> int:
    if kind == OURS:
        return len(getattr(watch.inspect(NAME), "waiting", ()))
    ((count,),) = server.run("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User lock'")
    return int(count)


def _status(server: Any) -> dict[str, int]:
    """Of all sessions together; this question counts as well."""
    rows = server.run("SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Threads_connected')")
    return {name: int(value) for name, value in rows}
