"""The example that sells the last tickets, on real databases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sql.desks import fresh_schema

if TYPE_CHECKING:
    from verification.lab.postgres import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "last_ticket" / "last_ticket.py"


def check(*words: str) -> None:
    for _ in range(5):
        plain, _, reserved = told(*words).partition("\nWITH RESERVATIONS")
        assert "sold 10 of 10, as it must be" in reserved
        if "OVERSOLD" in plain:
            return
    pytest.fail("the control never sold a ticket twice")


def told(*words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(EXAMPLE), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(300)
def test_the_last_ticket_is_sold_once_in_sqlite_with_reservations() -> None:
    check()


@pytest.mark.timeout(300)
def test_the_last_ticket_is_sold_once_in_postgresql_with_reservations(postgres: PostgresServer) -> None:
    check(fresh_schema(postgres))
