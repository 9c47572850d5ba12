"""The verbs that look and tell: ls, info, watch, break, doctor, choose, completion, demo."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.processes.command_line import PYTHON, CommandLine, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def program(tmp_path: Path) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path)
    yield line
    line.close()


def fence_of(program: CommandLine, name: str) -> int:
    with program.client() as client:
        state = client.inspect(name)
    assert state is not None
    return state.holdings[0].fence


def test_ls_shows_holders_and_waiters_on_stdout_and_the_store_on_stderr(program: CommandLine) -> None:
    process = program.hold("pay:1", "--reason", "month end")
    waiter = program.start("run", "pay:1", "--", "true")
    wait_for(lambda: program.queue("pay:1") == 1, "it stands in the queue")
    result = program.finish("ls", "pay:", "--waiters")
    head, holder, waits = result.stdout.splitlines()
    assert head.split() == ["NAME", "KIND", "HOLDER", "SINCE", "LEFT", "QUEUE", "REASON"]
    assert str(fence_of(program, "pay:1")) in program.finish("ls", "-v").stdout
    assert program.finish("ls", "--names").stdout == "pay:1\n"
    assert holder.startswith("pay:1  exclusive  sh on")
    assert f"pid {process.pid}" in holder
    assert "month end" in holder
    assert f"pid {waiter.pid}" in waits
    assert result.stderr == f"leasehold: store: {program.url}\n"
    assert len(program.finish("ls", "other").stdout.splitlines()) == 1


def test_ls_as_json_is_one_object_per_line(program: CommandLine) -> None:
    program.hold("a")
    program.hold("b\x1b")
    result = program.finish("ls", "--json")
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["schema"], first["name"], first["mode"]) == (1, "a", "exclusive")
    assert first["holdings"][0]["fence"] == fence_of(program, "a")
    assert second["name"] == "b\x1b"
    assert "\x1b" not in result.stdout


def test_a_namespace_keeps_applications_apart(program: CommandLine) -> None:
    program.hold("job", "--namespace", "shop")
    assert program.finish("info", "job").returncode == 1
    assert program.finish("info", "job", "--namespace", "shop").returncode == 0


def test_info_of_a_free_lock_gives_1(program: CommandLine) -> None:
    result = program.finish("info", "job")
    assert (result.returncode, result.stdout) == (1, "'job' is free\n")
    assert json.loads(program.finish("info", "job", "--json").stdout) == {
        "schema": 1,
        "held": False,
        "name": "job",
        "last_run": None,
    }


def test_info_prints_a_break_command_that_works_when_pasted(program: CommandLine) -> None:
    name = "odd 'name\x1b"
    process = program.hold(name, "--ttl", "1s")
    result = program.finish("info", name)
    assert result.returncode == 0
    assert "its holder may still be running" in result.stdout
    assert "\x1b" not in result.stdout
    command = result.stdout.splitlines()[-1].strip().replace("leasehold ", f"'{PYTHON}' -m leasehold ", 1)
    pasted = subprocess.run(
        ["bash", "-c", f"{command} --yes"], env=program.environment, capture_output=True, check=False
    )
    assert pasted.returncode == 0, pasted
    assert process.wait(30) == 79


def test_break_with_another_fence_breaks_nothing(program: CommandLine) -> None:
    process = program.hold("job", "--ttl", "1s")
    result = program.finish("break", "job", "--fence", "12", "--reason", "x", "--yes")
    assert result.returncode == 1
    assert "not held with fence 12" in result.stdout
    assert process.poll() is None


def test_break_names_the_operator_to_the_holder_and_now_lets_the_next_in(program: CommandLine) -> None:
    process = program.hold("job", "--ttl", "60s")
    fence = str(fence_of(program, "job"))
    result = program.finish("break", "job", "--fence", fence, "--reason", "host is gone", "--yes", "--now", "--json")
    facts = json.loads(result.stdout)
    assert (result.returncode, facts["broken"], facts["reason"]) == (0, True, "host is gone")
    assert os.uname().nodename in facts["by"]
    assert program.finish("run", "job", "-n", "--", "true").returncode == 0
    process.kill()


def test_break_without_now_keeps_the_next_one_out_and_info_says_so(program: CommandLine) -> None:
    process = program.hold("job", "--ttl", "60s")
    process.send_signal(signal.SIGSTOP)  # it does not learn of it
    program.finish("break", "job", "--fence", str(fence_of(program, "job")), "--reason", "host is gone", "--yes")
    assert program.finish("run", "job", "-n", "--", "true").returncode == 75
    assert "host is gone" in program.finish("info", "job").stdout
    process.kill()


def test_break_asks_a_person_and_refuses_without_one(program: CommandLine) -> None:
    program.hold("job", "--ttl", "60s")
    words = ["break", "job", "--fence", str(fence_of(program, "job")), "--reason", "x", "--now"]
    assert program.finish(*words).returncode == 64
    for answer, code in (("no\n", 1), ("yes\n", 0)):
        outside, inside = pty.openpty()
        process = program.start(*words, stdin=inside)
        os.close(inside)
        os.write(outside, answer.encode())
        _, console = process.communicate(timeout=30)
        os.close(outside)
        assert process.returncode == code, console
        assert "may still be running" in console


def test_fence_raise_lifts_the_next_grant(program: CommandLine) -> None:
    high = 2**52
    program.finish("run", "job", "--", "true")  # a store that does not exist is refused
    words = ["fence", "raise", "job", str(high), "--reason", "restored from a backup"]
    assert program.finish(*words).returncode == 64  # no terminal for the confirmation
    result = program.finish(*words, "--yes", "--json")
    assert (result.returncode, json.loads(result.stdout)["fence"]) == (0, high)
    program.hold("job")
    assert fence_of(program, "job") == high + 1
    assert program.finish("fence", "raise", "job", "0", "--reason", "x", "--yes").returncode == 64
    assert program.finish("fence", "lower", "job", "7", "--reason", "x", "--yes").returncode == 64


def test_watch_without_a_terminal_prints_a_line_per_change(program: CommandLine) -> None:
    program.finish("run", "job", "--", "true")
    watch = program.start("watch", "--every", "50ms", "--json")
    assert watch.stdout is not None
    assert watch.stderr is not None
    assert "store:" in watch.stderr.readline()
    holder = program.hold("job")
    held = json.loads(watch.stdout.readline())
    assert (held["change"], held["name"]) == ("held", "job")
    holder.terminate()
    freed = json.loads(watch.stdout.readline())
    assert (freed["change"], freed["fence"]) == ("free", held["fence"])
    watch.send_signal(signal.SIGINT)
    _, console = watch.communicate(timeout=30)
    assert watch.returncode == 130
    assert console == ""


def test_watch_of_a_store_that_does_not_open_ends(program: CommandLine) -> None:
    (program.folder / "locks.db").write_bytes(b"this is no database, " * 300)
    assert program.finish("watch").returncode == 77


def test_watch_draws_a_table_on_a_terminal_without_colour_if_no_color_is_set(program: CommandLine) -> None:
    program.hold("job")
    for extra, animated, coloured in (
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, False, False),
    ):
        outside, inside = pty.openpty()
        watch = program.start("watch", stdout=inside, env=extra)
        os.close(inside)
        seen = ""
        while "job" not in seen:
            seen += os.read(outside, 4096).decode()
        assert ("\x1b[H" in seen) is animated
        assert ("\x1b[1mNAME" in seen) is coloured
        watch.send_signal(signal.SIGINT)
        watch.communicate(timeout=30)
        os.close(outside)


def test_a_reader_that_goes_away_ends_ls_quietly(program: CommandLine) -> None:
    with program.client() as client:
        leases = [client.lock(f"{number:03}{'x' * 400}").acquire() for number in range(200)]
        command = f"'{PYTHON}' -m leasehold ls --json 2>console | head -n 1"
        result = subprocess.run(
            ["bash", "-c", command], env=program.environment, cwd=program.folder, capture_output=True, check=False
        )
        assert result.stdout.count(b"\n") == 1
        assert result.stderr == b""
        assert (program.folder / "console").read_text() == f"leasehold: store: {program.url}\n"
        for lease in leases:
            lease.release()


@pytest.mark.parametrize("url", ["sqlite:///{folder}/locks.db", "local:"])
def test_doctor_is_content_with_a_good_store_and_leaves_nothing_behind(program: CommandLine, url: str) -> None:
    program.environment |= {"LEASEHOLD_URL": "", "XDG_STATE_HOME": str(program.folder)}
    url = url.format(folder=program.folder)
    result = program.finish("doctor", url, "--try", "--json")
    findings = {finding["check"]: finding for finding in map(json.loads, result.stdout.splitlines())}
    assert result.returncode == 0, result.stdout
    assert set(findings) == {"version", "clock", "file", "file system", "room", "opens", "fences", "latency", "rights",
                             "one name", "journal"}  # fmt: skip
    assert all(finding["why"] for finding in findings.values())
    assert findings["opens"]["level"] == "ok"
    assert len(program.finish("ls", "--url", url).stdout.splitlines()) == 1


def test_doctor_prints_what_is_wrong_and_counts_the_rest(program: CommandLine) -> None:
    program.finish("run", "job", "--", "true")
    before = (program.folder / "locks.db").read_bytes()
    result = program.finish("doctor")
    assert (result.returncode, result.stdout) == (0, "9 ok (-v shows all; --try tries a lock, too)\n")
    assert program.finish("doctor", "-v").stdout.count("ok       ") == 9
    assert (program.folder / "locks.db").read_bytes() == before


def test_doctor_finds_a_store_that_does_not_open(program: CommandLine) -> None:
    (program.folder / "locks.db").write_bytes(b"this is no database, " * 300)
    result = program.finish("doctor")
    assert result.returncode == 1
    assert "problem  opens" in result.stdout
    assert "do:" in result.stdout


def test_doctor_warns_of_rights_that_are_too_wide(program: CommandLine) -> None:
    program.finish("run", "job", "--", "true")
    (program.folder / "locks.db").chmod(0o666)
    result = program.finish("doctor")
    assert result.returncode == 0
    assert "warning  rights" in result.stdout


def test_doctor_says_that_a_memory_store_locks_nothing_between_processes(program: CommandLine) -> None:
    result = program.finish("doctor", "memory://x")
    assert result.returncode == 1
    assert "problem  scope" in result.stdout


def test_the_demo_shows_the_damage_and_the_cure(program: CommandLine) -> None:
    result = program.finish("demo")
    assert result.returncode == 0, result
    assert "DAMAGE" in result.stdout
    assert "REFUSED" in result.stdout
    table = {
        line[:19].strip(): line[19:].split() for line in result.stdout.splitlines() if line.startswith(("a", "b", "l"))
    }
    assert table["additions confirmed"] == ["40", "40"]
    assert table["late writes refused"] == ["0", "1"]
    assert table["balance at the end"][1] == "40"
    assert int(table["additions lost"][0]) > 0
    assert program.survivors() == []


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], ["help"], ["help", "run"], ["run", "--help"], ["--version"], ["choose"]]
)
def test_help_needs_no_store_and_goes_to_stdout(program: CommandLine, words: list[str]) -> None:
    result = program.finish(*words, env={"LEASEHOLD_URL": ""})
    assert (result.returncode, result.stderr) == (0, "")
    assert "leasehold" in result.stdout


def test_a_password_in_the_url_is_never_shown(program: CommandLine) -> None:
    url = "memory://user:secret@shared"
    for words in (["ls"], ["info", "job"], ["doctor"], ["run", "job", "-v", "--", "true"]):
        result = (
            program.finish(*words, "--url", url)
            if words[0] != "run"
            else program.finish(*words[:2], "--url", url, *words[2:])
        )
        assert "secret" not in result.stdout + result.stderr


def test_importing_the_command_line_loads_no_store_and_nothing_heavy() -> None:
    script = "import sys; from leasehold.cli.main import main; from leasehold.cli import run; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"asyncio", "json", "sqlite3", "subprocess", "tempfile", "logging", "dataclasses", "leasehold._face.client"}
    assert heavy & set(loaded) == set()


def test_looking_at_a_misspelt_file_makes_none_and_says_so(program: CommandLine) -> None:
    for words in (["ls"], ["info", "job"], ["wait", "job"], ["doctor"]):
        result = program.finish(*words, "--url", f"sqlite:///{program.folder}/typo.db")
        assert "does not exist" in result.stderr + result.stdout
    assert list(program.folder.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["break", "job", "--fence", "5", "--reason", "x", "--yes"],
        ["fence", "raise", "job", "5", "--reason", "x", "--yes"],
    ],
)
def test_a_change_to_a_misspelt_file_is_refused_and_makes_none(program: CommandLine, words: list[str]) -> None:
    result = program.finish(*words, "--url", f"sqlite:///{program.folder}/typo.db")
    assert result.returncode == 78
    assert "typo.db does not exist; nothing was changed" in result.stderr
    assert list(program.folder.iterdir()) == []


def test_watch_goes_on_while_the_store_is_away_and_mentions_it_once(program: CommandLine) -> None:
    program.finish("run", "first", "--min-hold", "1h", "--", "true")
    watch = program.start("watch", "--every", "50ms", "--json")
    assert watch.stdout is not None
    assert watch.stderr is not None
    assert "store:" in watch.stderr.readline()
    assert json.loads(watch.stdout.readline())["change"] == "cooling"  # the first look must succeed
    for path in program.folder.glob("locks.db*"):
        if path.is_file():
            path.rename(program.folder / f"old-{path.name}")
    (program.folder / "locks.db").mkdir()  # there may be a look before this, which sees no file and no lock
    assert "is not a regular file" in watch.stderr.readline()
    (program.folder / "locks.db").rmdir()
    program.hold("job")
    changes = [json.loads(watch.stdout.readline())["change"] for _ in range(2)]
    assert changes == ["free", "held"]
    watch.send_signal(signal.SIGINT)
    assert watch.communicate(timeout=30)[1] == ""


def test_namespaces_keep_the_same_name_apart(program: CommandLine) -> None:
    program.hold("job", "--namespace", "other")
    assert program.finish("info", "job").returncode == 1
    assert program.finish("info", "job", "--namespace", "other").returncode == 0
