"""What the doctor of etcd makes of what it has read; no server."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold._backends.etcd.doctor import Doctor, _clock, _Facts, _leader, _members, _space, _speed
from leasehold._backends.etcd.options import read_url
from leasehold._backends.etcd.rpc import Status
from leasehold.findings import Level
from leasehold.store_url import StoreURL

OK, WARNING, PROBLEM = Level.OK, Level.WARNING, Level.PROBLEM
MIB = 1024**2


@pytest.mark.parametrize(
    ("facts", "named", "level", "word"),
    [
        ({"voters": 1}, 1, WARNING, "three members"),
        ({"voters": 2}, 2, WARNING, "three members"),
        ({"voters": 3}, 3, OK, ""),
        ({"voters": 3, "learners": 1}, 3, OK, "1 learning"),
        ({"voters": 4}, 4, WARNING, "even number"),
        ({"voters": 3}, 2, WARNING, "name all members"),
        ({"voters": 5}, 3, OK, ""),
        ({"voters": 3, "silent": {1: "no"}}, 3, PROBLEM, "1 of 3 in the URL did not answer"),
        ({"refused": {"members": "denied"}}, 3, WARNING, "root role"),
    ],
)
def test_doctor_judges_the_members(facts: dict[str, Any], named: int, level: Level, word: str) -> None:
    finding = _members(_Facts(**facts), named)
    assert finding.level is level
    assert word in finding.found + finding.advice


@pytest.mark.parametrize(
    ("statuses", "level"),
    [
        ({}, WARNING),
        ({0: Status("3.6.0", 0, 7, 2), 1: Status("3.6.0", 0, 7, 2)}, OK),
        ({0: Status("3.6.0", 0, 7, 2), 1: Status("3.6.0", 0, 8, 2)}, PROBLEM),
        ({0: Status("3.6.0", 0, 7, 2), 1: Status("3.6.0", 0, 7, 3)}, PROBLEM),
        ({0: Status("3.6.0", 0, 0, 2)}, PROBLEM),
    ],
)
def test_doctor_wants_one_leader_that_all_members_name(statuses: dict[int, Status], level: Level) -> None:
    assert _leader(_Facts(statuses=statuses)).level is level


@pytest.mark.parametrize(
    ("sizes", "alarms", "level", "found"),
    [
        ((100 * MIB, 1600 * MIB), [], OK, "1600 MiB"),
        ((1700 * MIB, 100 * MIB), [], WARNING, "1700 MiB"),
        ((1 * MIB,), ["NOSPACE"], PROBLEM, "1 MiB, alarm NOSPACE"),
    ],
)
def test_doctor_warns_before_the_space_is_used_up(
    sizes: tuple[int, ...], alarms: list[str], level: Level, found: str
) -> None:
    statuses = {place: Status("3.6.0", size, 1, 1) for place, size in enumerate(sizes)}
    finding = _space(_Facts(statuses=statuses, alarms=alarms))
    assert (finding.level, finding.found) == (level, found)


@pytest.mark.parametrize(
    ("times", "level"),
    [([], PROBLEM), ([0.01, 0.02, 9.0], OK), ([0.05], WARNING), ([0.99], WARNING), ([1.0], PROBLEM)],
)
def test_doctor_judges_the_median_of_its_reads(times: list[float], level: Level) -> None:
    assert _speed(_Facts(times=times)).level is level


@pytest.mark.parametrize(
    ("clocks", "level"), [([], WARNING), ([1.0, -2.0], OK), ([0.0, -3.0], WARNING), ([2.5], WARNING)]
)
def test_doctor_compares_clocks_in_both_directions(clocks: list[float], level: Level) -> None:
    assert _clock(_Facts(clocks=clocks)).level is level


@pytest.mark.parametrize(
    ("url", "level", "found"),
    [
        ("etcd://127.0.0.1,localhost,[::1]", OK, "no TLS, no user"),
        ("etcd://127.0.0.1,h2", WARNING, "no TLS, no user"),
        ("etcd://user:word@h2", OK, "no TLS, as user 'user'"),
        ("etcds://h2", OK, "TLS, no user"),
    ],
)
def test_doctor_warns_of_a_port_that_is_open_to_everyone(url: str, level: Level, found: str) -> None:
    claims: Any = type("Claims", (), {"connection": None, "keys": None, "runtime": type("R", (), {"now": None})})
    finding = Doctor(claims, read_url(StoreURL.parse(url)))._access()
    assert (finding.level, finding.found) == (level, found)
