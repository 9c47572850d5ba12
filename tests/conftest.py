"""The servers that tests ask for by name; each is started once per test session, when the first test needs it."""

from __future__ import annotations

import gc
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.lateness import Lateness
from tests.second_look import Failures
from verification.lab.watcher import watch_descendants

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

TESTS = Path(__file__).parent

# How long an example takes says something about the machine, not about the code.
settings.register_profile("leasehold", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("leasehold")

pytest_plugins: list[str] = [
    "tests.servers.browser",
    "tests.servers.etcd",
    "tests.servers.mariadb",
    "tests.servers.nats",
    "tests.servers.postgres",
    "tests.servers.redis",
    "tests.servers.redlock",
    "tests.servers.zookeeper",
]

ROOMS_THAT_WAIT = ("versions", "contract", "stores")  # the longest first
LONG = frozenset({
    "test_celery_locks", "test_cli_watchdog", "test_counters", "test_counters_mariadb", "test_election_processes",
    "test_etcd_answers", "test_fault_lab",
    "test_idempotency_mysql", "test_idempotency_processes", "test_job_operators_processes",
    "test_leaving_processes", "test_models", "test_mutants", "test_once_processes", "test_optimistic_processes",
    "test_oversell_scenario", "test_partition_processes", "test_queue_processes", "test_redis_failover",
    "test_redis_network", "test_redis_processes", "test_redis_scenarios", "test_redis_slots", "test_redlock_nodes",
    "test_reservation_processes", "test_site", "test_sqlite_processes", "test_zookeeper_client",
    "test_seeds", "test_shrinking", "test_store_seeds", "test_zookeeper_leader", "test_zookeeper_silence",
})  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Set up the process: signals, its share of the cores, and what is measured."""
    _let_programs_have_signals()
    _leave_greenwich()
    watch_descendants()
    if hasattr(config, "workerinput"):
        _become_a_session()
    else:
        config.pluginmanager.register(Failures())
    config.pluginmanager.register(Lateness())


def _let_programs_have_signals() -> None:
    """A run in the background or under nohup ignores signals, and every program it starts would inherit that.

    A handler that does nothing keeps the run itself immune; a program that is executed starts without it.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def _leave_greenwich() -> None:
    """Run here, in every server and in every program as in a place whose local time is not UTC.

    Most machines that run tests have UTC, where a time that is shown, read or compared in the wrong zone is right.
    """
    os.environ["TZ"] = "Asia/Kathmandu"  # no whole hour, and no summer time
    time.tzset()


def _become_a_session() -> None:
    """Give each worker a session of its own.

    Linux shares out the cores between sessions first. Every process of a PostgreSQL server is a session, and the
    workers together were one: a few busy connections took the cores from all tests, and short leases ran out.
    """
    with suppress(PermissionError):  # it is the first of its group already
        os.setsid()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what was collected out of the garbage collector.

    Ten thousand tests and the modules of a hundred libraries live as long as the run. Each full collection would look
    at all of them again, and the tests of interruptions alone ask for some hundred.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread files that wait over the whole run, among files that compute, and the files of one store as well.

    A contract waits minutes for ttls to pass and hardly computes; others keep a core busy. If the files of one store
    ran at the same time, so would all its servers.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [path for room in ROOMS_THAT_WAIT for path in _spread(_of_room(files, room))]
    busy = sorted((path for path in files if path not in waiting), key=_longest_first)
    items[:] = [item for path in _mixed(waiting, busy) for item in files[path]]


def _of_room(files: Iterable[Path], room: str) -> list[Path]:
    return sorted(path for path in files if path.relative_to(TESTS).parts[0] == room)


def _spread(paths: Sequence[Path]) -> list[Path]:
    """The files of each store over the whole run. The store is the folder, or what follows `test_` in the name."""
    of_store: dict[str, list[Path]] = {}
    for path in paths:
        store = path.parent.name if path.parent.parent.name == "stores" else path.stem.split("_")[1]
        of_store.setdefault(store, []).append(path)
    return _mixed(*(sorted(of_one, key=_longest_first) for of_one in of_store.values()))


def _longest_first(path: Path) -> tuple[bool, Path]:
    """A file of a minute or more that begins last keeps one worker busy while the others have nothing to do."""
    return path.stem not in LONG, path


def _mixed(*lists: Sequence[Path]) -> list[Path]:
    """All lists in their order, spread evenly."""
    places = [((index + 0.5) / len(paths), path) for paths in lists for index, path in enumerate(paths)]
    return [path for _, path in sorted(places)]
