"""The fixtures of `leasehold.testing.plugin`, in a run of pytest as a user has it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
import leasehold
import pytest

KEPT = []
CLIENTS = []


def take(client, name):
    KEPT.append(client.lock(name).acquire())


def test_busy(leasehold_store, no_leaked_leases):
    client = leasehold_store.connect()
    with client.lock("x").hold(), pytest.raises(leasehold.AcquireTimeout):
        client.lock("x").acquire(timeout=60)


def test_lost(lose_lease):
    with leasehold.connect("memory://plugin") as client, pytest.raises(leasehold.LeaseLost):
        with client.lock("x").hold() as lease:
            lose_lease(lease)
            lease.check()


def test_leaked(no_leaked_leases, leasehold_store):
    for name in ("kept", "also kept"):
        take(leasehold_store.connect(), name)


def test_dropped(leasehold_store, no_leaked_leases):
    leasehold_store.connect().lock("dropped").acquire()


def test_leaked_elsewhere(no_leaked_leases):
    take(leasehold.connect("memory://plugin"), "elsewhere")


def test_not_asked(leasehold_store):
    CLIENTS.append(leasehold_store.connect())
    take(CLIENTS[0], "free to leave")


def test_closed():
    with pytest.raises(leasehold.ClientClosed):
        CLIENTS[0].lock("of an earlier test").acquire(timeout=0)


def test_of_an_earlier_test(no_leaked_leases):
    assert leasehold.connect("memory://plugin").inspect("elsewhere")
"""


def test_the_fixtures_give_a_store_lose_leases_and_find_leaked_ones(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(TESTS)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rA",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore::ResourceWarning",
            tmp_path,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    outcomes = {line.split("::")[1].split()[0]: line.split()[0] for line in done.stdout.splitlines() if "::" in line}
    assert outcomes == {
        "test_busy": "PASSED",
        "test_lost": "PASSED",
        "test_leaked": "ERROR",
        "test_dropped": "ERROR",
        "test_leaked_elsewhere": "ERROR",
        "test_not_asked": "PASSED",
        "test_closed": "PASSED",
        "test_of_an_earlier_test": "PASSED",
    }, done.stdout
    assert "the test has left 'also kept', 'kept' held; release every lease" in done.stdout
    assert "the test has left 'dropped' held" in done.stdout
    assert "pytest.fail(" not in done.stdout, "the code of the fixture is of no use to its user"
