"""Names of any kind are distinct locks, and nothing in them is taken for SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

import leasehold

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [
    "plain",
    "Plain",
    "plain ",
    "a",
    "a/b",
    "a\0b",
    "a\0",
    "'; DROP TABLE lock; --",
    '"quoted"',
    "100%_\\",
    "../../etc/passwd",
    "{}*?[]",
    "line\nbreak",
    "caf\u00e9",
    "cafe\u0301",
    "\U0001f512",
    "\U0010ffff",
    "x" * 512,
    "x" * 511 + "y",
]


def test_hostile_names_are_distinct_locks(tmp_path: Path) -> None:
    client = leasehold.connect(f"sqlite:///{tmp_path}/locks.db")
    leases = [client.lock(name).try_acquire() for name in NAMES]
    assert all(lease is not None for lease in leases)
    assert sorted(state.name for state in client.locks()) == sorted(NAMES)
    for name, lease in zip(NAMES, leases, strict=True):
        assert lease is not None
        assert client.lock(name).try_acquire() is None
        state = client.inspect(name)
        assert state is not None
        assert state.holdings[0].fence == lease.fence
        assert lease.release()
    assert client.locks() == []
    client.close()


@pytest.mark.parametrize("path", ["a b.db", "what?.db", "100%.db", "ha#sh.db", "\u00fcml\u00e4ut.db"])
def test_hostile_paths_are_taken_as_they_are(tmp_path: Path, path: str) -> None:
    client = leasehold.connect(f"sqlite:///{quote(str(tmp_path / path))}")
    with client.lock("name").hold():
        assert (tmp_path / path).exists()
    client.close()


def test_namespaces_keep_applications_apart(tmp_path: Path) -> None:
    first, second = (leasehold.connect(f"sqlite:///{tmp_path}/locks.db", namespace=name) for name in ("a", "a:b"))
    with first.lock("b:c").hold(), second.lock("c").hold():
        assert [state.name for state in first.locks()] == ["b:c"]
        assert [state.name for state in second.locks()] == ["c"]
    first.close()
    second.close()
