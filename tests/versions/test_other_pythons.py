"""The contract on every other supported Python that is installed here, over memory and SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.versions.contract_program import passes
from tests.versions.other_pythons import others

OTHERS = others()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", OTHERS)
def test_the_contract_over_memory(version: str) -> None:
    passes(OTHERS[version], "memory", "--turns")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", OTHERS)
def test_the_contract_over_sqlite(version: str, tmp_path: Path) -> None:
    passes(OTHERS[version], f"sqlite:///{tmp_path}/locks.db", "--cases", "store", "--turns", "--ttl", "0.5")
