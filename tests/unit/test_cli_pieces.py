"""The parts of the command line that decide without I/O."""

from __future__ import annotations

import argparse
import ast
import os
import shlex
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold import errors
from leasehold._backends.sqlite.doctor import _rights
from leasehold.cli import exit_codes
from leasehold.cli.candidates import _positional
from leasehold.cli.child import group_is_alive
from leasehold.cli.durations import duration, show_duration
from leasehold.cli.held import names_as_json
from leasehold.cli.inspect import _break_command
from leasehold.cli.manual import PAGES
from leasehold.cli.output import printable, shell_word, table
from leasehold.cli.parser import Usage, parser_for, read, verb_help
from leasehold.cli.reference import reference_page
from leasehold.cli.report import write_report
from leasehold.cli.run import held_names
from leasehold.cli.signals import Signals
from leasehold.cli.verbs import VERBS
from leasehold.cli.watch import changes
from leasehold.findings import Level

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("0.5", 0.5), (".5", 0.5), ("30s", 30), ("1h30m", 5400), ("500ms", 0.5), ("2D", 172800), ("0", 0)],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "-1", "1e3", "nan", "inf", "30 s", "s30", "1x", "400d", "1h30"])
def test_what_is_no_duration_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"time looks like|more than a year"):
        duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.44, "0.4s"), (12.3, "12s"), (75, "1m15s"), (3900, "1h05m"), (100_000, "1d03h"), (-1, "0.0s")],
)
def test_durations_are_spoken_in_two_units(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


@given(st.text())
def test_nothing_unprintable_is_ever_printed(text: str) -> None:
    assert printable(text).isprintable()


def test_terminal_commands_and_direction_marks_are_escaped() -> None:
    assert printable("a\x1b[31mb\u202ec\x9bd\nä") == "a\\x1b[31mb\\u202ec\\x9bd\\nä"


@pytest.mark.parametrize(
    "name", ["plain", "two words", "it's", "a\x1b[2J'b\\c", "ä ö", "", "$HOME `x` !", "line\nbreak"]
)
def test_a_shell_reads_back_the_word_that_was_written_for_it(name: str) -> None:
    word = shell_word(name)
    assert word.isprintable()
    echoed = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert echoed.stdout.decode() == name
    if name.isprintable():
        assert shlex.split(word) == [name]


def test_a_table_pads_and_escapes() -> None:
    assert table(("A", "B"), [("long one", 1), ("x\x1b", "y")]) == ["A         B", "long one  1", "x\\x1b     y"]


def test_the_held_list_is_json_with_and_without_the_short_cut() -> None:
    assert names_as_json(["a"]) == '["a"]'
    assert names_as_json(['quo"te']) == '["quo\\"te"]'
    assert names_as_json(["a", "b"]) == '["a", "b"]'


def test_the_command_line_uses_only_the_public_interface() -> None:
    for file in (ROOT / "src" / "leasehold" / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            hidden = tuple(f"leasehold.{part}" for part in ("_core", "_runtimes", "_backends", "_face", "_urls", "spi"))
            assert not [name for name in names if name.startswith(hidden)], file.name


def test_every_verb_has_a_page_with_examples_and_its_options() -> None:
    assert set(VERBS) == set(PAGES)
    for name, verb in VERBS.items():
        page = verb_help(verb)
        assert page.startswith(f"usage: leasehold {name}")
        assert name == "demo" or "examples:" in page
        options = [option for action in parser_for(verb)._actions for option in action.option_strings]
        assert all(option in page for option in options)


def test_the_reference_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert written == reference_page(), "run: python -m leasehold.cli.reference > docs/reference/cli.md"


def test_everything_after_the_dashes_belongs_to_the_command() -> None:
    arguments = read(["run", "job", "-n", "--", "cmd", "--help", "--", "-n", "--url", "x"])
    assert arguments is not None
    assert arguments.command == ["cmd", "--help", "--", "-n", "--url", "x"]
    assert arguments.url is None


def test_a_misspelt_verb_is_answered_with_the_right_one() -> None:
    with pytest.raises(Usage, match="did you mean watch"):
        read(["wach"])


def test_a_misspelt_option_is_answered_with_the_right_one() -> None:
    with pytest.raises(Usage, match=r"unknown option --wiat; did you mean --wait\?"):
        read(["run", "job", "--wiat", "3", "--", "true"])


def test_abbreviated_options_are_refused_because_they_change_meaning_later() -> None:
    with pytest.raises(Usage, match="--no-wai"):
        read(["run", "job", "--no-wai", "--", "true"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.AcquireTimeout("x"), 75),
        (errors.LeaseLost("x"), 79),
        (errors.BackendUnavailable("x"), 69),
        (errors.OutcomeUnknown("x"), 69),
        (errors.BackendRejected("x"), 77),
        (errors.ConfigurationError("x"), 78),
        (errors.UnsupportedCapability("x"), 78),
        (errors.ModeConflict("x"), 78),
        (RuntimeError("x"), 70),
    ],
)
def test_every_error_has_its_code(error: Exception, code: int) -> None:
    assert exit_codes.for_error(error) == code


def test_watch_tells_ends_before_beginnings() -> None:
    held = {"change": "held", "name": "a", "fence": 1, "who": "x"}
    waiting = {"change": "waiting", "name": "a", "who": "y"}
    after = {"change": "held", "name": "a", "fence": 2, "who": "y"}
    told = changes({("a", 1): held, ("a", "y"): waiting}, {("a", 2): after})
    assert [(change["change"], change["who"]) for change in told] == [("free", "x"), ("left", "y"), ("held", "y")]
    assert changes({("a", 2): after}, {("a", 2): after}) == []


def test_a_command_to_break_a_lock_never_shows_a_password() -> None:
    named = argparse.Namespace(url="redis://host", namespace="team a")
    assert _break_command("job", 5, named).endswith("--url redis://host --namespace 'team a'")
    secret = argparse.Namespace(url="redis://user:secret@host", namespace=None)
    assert _break_command("job", 5, secret) == "leasehold break job --fence 5 --reason WHY"


@pytest.mark.parametrize("text", ["5", "null", '{"a": 1}', '"job"', "[1, 2]", "not json", ""])
def test_a_held_list_that_makes_no_sense_is_empty(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEHOLD_HELD", text)
    assert held_names() == []


def test_a_folder_where_anybody_may_replace_the_file_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "locks.db").touch(mode=0o600)
    for rights, level in ((0o700, Level.OK), (0o777, Level.WARNING), (0o1777, Level.OK)):
        tmp_path.chmod(rights)
        assert _rights(tmp_path / "locks.db").level is level


def test_a_report_has_the_rights_of_an_ordinary_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_report(str(tmp_path / "report"), {"name": "job"})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "report").stat().st_mode) == 0o640


def test_a_dead_member_that_nobody_has_buried_does_not_keep_a_group_alive() -> None:
    process = subprocess.Popen(["true"], process_group=0)
    while Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z":
        time.sleep(0.005)
    assert not group_is_alive(process.pid)
    process.wait()


def test_a_signal_that_came_with_the_lock_is_kept_for_the_command() -> None:
    signals = Signals()
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        signals.wait_ended()
        assert signals.collect(0.0) == [signal.SIGTERM]
        assert signals.collect(0.0) == []
    finally:
        signals.restore()


@pytest.mark.parametrize(
    ("verb", "line", "expected"),
    [
        ("break", "", "name"),
        ("break", "job", None),
        ("break", "--url local:", "name"),
        ("break", "--url=local:", "name"),
        ("break", "--url local: job", None),
        ("break", "--json", "name"),
        ("break", "--json job", None),
        ("watch", "--every 1s", "prefix"),
        ("watch", "--every 1s job", None),
        ("hold", "one two", "names"),
        ("hold", "--ttl 5s one", "names"),
    ],
)
def test_the_shell_completes_the_argument_that_comes_next(verb: str, line: str, expected: str | None) -> None:
    found = _positional(parser_for(VERBS[verb])._actions, line.split())
    assert (found and found.dest) == expected
