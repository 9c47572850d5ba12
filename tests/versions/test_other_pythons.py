"""The contract on every other supported Python that is installed here, over memory and SQLite.

They are looked for when the first test runs, by starting them: every worker collects these tests, one runs them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.versions.contract_program import passes
from tests.versions.other_pythons import others


@pytest.fixture(scope="module")
def pythons() -> list[str]:
    return list(others().values())


@pytest.mark.timeout(600)
def test_the_contract_over_memory(pythons: list[str]) -> None:
    for python in pythons:
        passes(python, "memory", "--turns")


@pytest.mark.timeout(600)
def test_the_contract_over_sqlite(pythons: list[str], tmp_path: Path) -> None:
    for number, python in enumerate(pythons):
        url = f"sqlite:///{tmp_path}/locks-{number}.db"
        passes(python, url, "--cases", "store", "--turns", "--ttl", "0.5")
