"""Completion in real shells: verbs, options, values, and the names of locks, which may be hostile."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.processes.command_line import PYTHON, CommandLine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def program(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "leasehold"
    command.write_text(f"#!/bin/sh\nexec '{PYTHON}' -m leasehold \"$@\"\n")
    command.chmod(0o755)
    line.environment["PATH"] = f"{tmp_path}/bin:{line.environment['PATH']}"
    yield line
    line.close()


# What a shell runs to complete a line up to its end; `{line}` has no quotes. It prints a candidate per line.
SHELLS = {
    "bash": (
        'source ./script; compopt() {{ :; }}; COMP_LINE="{line}"; COMP_POINT=${{#COMP_LINE}}; '
        'read -ra COMP_WORDS <<< "$COMP_LINE"; COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _leasehold; '
        'printf "%s\\n" "${{COMPREPLY[@]}}"'
    ),
    "fish": 'source script; complete -C "{line}"',
    "zsh": (
        "compdef() {{ : }}; _describe() {{ print -rl -- \"${{(P@)3}}\" }}; source ./script; "
        'words=("${{(@s: :)${{:-{line}}}}}"); CURRENT=${{#words}}; _leasehold'
    ),
}  # fmt: skip


def completed(program: CommandLine, shell: str, line: str) -> list[str]:
    (program.folder / "script").write_text(program.finish("completion", shell).stdout)
    options = {"bash": ["--norc"], "fish": ["--no-config"], "zsh": ["-f"]}[shell]
    answer = subprocess.run(
        [shell, *options, "-c", SHELLS[shell].format(line=line)],
        env={**program.environment, "HOME": str(program.folder)},
        cwd=program.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stderr == ""
    return [re.split("[\t:]", line)[0] for line in answer.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_completes_verbs_options_values_and_locks(program: CommandLine, shell: str) -> None:
    with program.client() as client, client.lock("nightly").hold():
        assert completed(program, shell, "leasehold ela") == []
        assert completed(program, shell, "leasehold el") == ["elect"]
        assert completed(program, shell, "leasehold run --no") == ["--no-wait"]
        assert completed(program, shell, "leasehold once x --on-conflict st") == ["standby"]
        assert completed(program, shell, "leasehold info ni") == ["nightly"]


def test_the_name_of_a_lock_is_never_executed(program: CommandLine) -> None:
    with program.client() as client, client.lock("x$(touch${IFS}pwned)`touch pwned`").hold():
        assert len(completed(program, "bash", "leasehold break x")) > 0
    assert not (program.folder / "pwned").exists()
