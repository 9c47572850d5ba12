"""`leasehold run` on nodes that were just started: they have no vote until what they may have forgotten is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.processes.command_line import CommandLine
from verification.lab.redlock import RedlockNodes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_TTL = 8.0  # they sit out for 12 s: a run without -w gives up after ten if the store says nothing


@pytest.fixture
def program(tmp_path: Path) -> Iterator[CommandLine]:
    """With a store on nodes of its own."""
    nodes = RedlockNodes(3, max_ttl=MAX_TTL, answer_timeout=0.5)
    made = CommandLine(tmp_path)
    made.url = made.environment["LEASEHOLD_URL"] = nodes.url()
    try:
        for server in nodes.servers:
            server.launch()
        for server in nodes.servers:
            server.wait_ready()
        yield made
    finally:
        made.close()
        nodes.remove()


def test_run_waits_for_nodes_that_sit_out_with_a_limit_and_without(program: CommandLine) -> None:
    limited = program.start("run", "limited", "--ttl", "2s", "-w", "30s", "--", "true")
    endless = program.start("run", "endless", "--ttl", "2s", "--", "true")
    too_short = program.start("run", "short", "--ttl", "2s", "-w", "3s", "--", "touch", "ran")
    _, console = too_short.communicate(timeout=60)
    assert too_short.returncode == 69, console
    assert "may have forgotten what it granted before, and sits out for" in console
    for process in (limited, endless):
        _, console = process.communicate(timeout=60)
        assert process.returncode == 0, console
        assert "can grant no lock for another" in console, "it did not have to wait; the test shows nothing"
    assert not (program.folder / "ran").exists()
