"""P11: what it costs to import leasehold, and to run a command under a lock."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.harness import Role, measure, timed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.harness import Candidate, Settings, Table

__all__ = ["run"]


def run(settings: Settings) -> Iterator[Table]:
    """Import, then run."""
    python = sys.executable
    # An installed package has its bytecode; where writing it is switched off, we would measure the compiler.
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(settings.directory / "bytecode")}
    environment = {**os.environ, **bytecode, "XDG_STATE_HOME": str(settings.directory)}

    def command(name: str, role: Role, *programs: Sequence[str]) -> Candidate:
        def start(count: int) -> None:
            for _ in range(count):
                for program in programs:
                    subprocess.run(program, check=True, env=environment, stdout=subprocess.DEVNULL)

        start(1)  # writes the bytecode
        return timed(name, role, start, settings)

    imports = [
        command("python -c 'import json'", Role.FLOOR, [python, "-c", "import json"]),
        command("python -c 'import leasehold'", Role.OURS, [python, "-c", "import leasehold"]),
        command("python -c pass", Role.PART, [python, "-c", "pass"]),
    ]
    yield measure("Import", imports, settings, unit="µs per process")
    tool = [python, "-m", "leasehold", "run", "bench"]
    url = f"sqlite:///{settings.directory / 'locks.db'}"
    runs = [
        command("python -c pass, then true", Role.FLOOR, [python, "-c", "pass"], ["true"]),
        command("leasehold run --url local:", Role.OURS, [*tool, "--url", "local:", "--", "true"]),
        command("leasehold run --url sqlite:", Role.OURS, [*tool, "--url", url, "--", "true"]),
        command("leasehold --version", Role.PART, [python, "-m", "leasehold", "--version"]),
    ]
    yield measure("Run a command under a lock", runs, settings, unit="µs per command")
