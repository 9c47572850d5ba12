"""The servers that tests ask for by name; each is started once per test session, when the first test needs it."""

from __future__ import annotations

import signal
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# How long an example takes says something about the machine, not about the code.
settings.register_profile("leasehold", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("leasehold")

pytest_plugins: list[str] = [
    "tests.servers.etcd",
    "tests.servers.postgres",
    "tests.servers.redis",
    "tests.servers.redlock",
    "tests.servers.zookeeper",
]

BUSY_AFTER_EACH_WAITING = 3
WAITING = ("contract", "versions")


def pytest_configure() -> None:
    """A run in the background or under nohup ignores signals, and every program it starts would inherit that.

    A handler that does nothing keeps the run itself immune; a program that is executed starts without it.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mix files that wait with files that compute, so that the workers do not all do the same at a time.

    A contract waits minutes for ttls to pass and hardly computes; the other files are shorter, and keep a core busy.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = sorted((path for path in files if path.parent.name in WAITING), reverse=True)
    busy = sorted(path for path in files if path.parent.name not in WAITING)
    items[:] = [item for path in _mixed(waiting, busy) for item in files[path]]


def _mixed(waiting: Sequence[Path], busy: Sequence[Path]) -> Iterator[Path]:
    """Each of the first, followed by a few of the second; the rest of these comes last."""
    rest = iter(busy)
    for path in waiting:
        yield path
        yield from islice(rest, BUSY_AFTER_EACH_WAITING)
    yield from rest
