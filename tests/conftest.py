"""The servers that tests ask for by name; each is started once per test session, when the first test needs it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Sequence
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

WAITING = ("contract", "faults", "versions")  # the rest keeps a core busy


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

    A contract waits minutes for ttls to pass and hardly computes, and so do fault tests; the longest come first.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [path for path in files if path.parent.name in WAITING]
    waiting.sort(key=lambda path: (path.parent.name == "faults", path))
    busy = sorted(path for path in files if path.parent.name not in WAITING)
    items[:] = [item for path in _mixed(waiting, busy) for item in files[path]]


def _mixed(waiting: Sequence[Path], busy: Sequence[Path]) -> list[Path]:
    """Both in their own order, each spread over the whole."""
    places = {path: (number + 0.5) / len(group) for group in (waiting, busy) for number, path in enumerate(group)}
    return sorted(places, key=lambda path: places[path])
