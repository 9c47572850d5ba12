"""A lock file on a host whose clocks are turned by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.sqlite.sqlite_support import FakeHost, Verbs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def store(tmp_path: Path, host: FakeHost) -> Iterator[Verbs]:
    verbs = Verbs(tmp_path / "locks.db", host)
    yield verbs
    verbs.close()
