"""How the command line looks on a terminal, and what its environment says."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold._face import this_process
from leasehold.cli import wait_line
from leasehold.cli.candidates import candidates
from leasehold.cli.help_text import fold_page
from leasehold.cli.parser import top_help, verb_help
from leasehold.cli.style import RED, fit, fold_line, paint, shorten
from leasehold.cli.verbs import VERBS
from leasehold.errors import ConfigurationError
from leasehold.events import StoreUnreachable

if TYPE_CHECKING:
    from pathlib import Path


class Screen(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_and_no_color_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert paint("text", RED, Screen()) == "\x1b[31mtext\x1b[0m"
    assert paint("text", RED, io.StringIO()) == "text"
    monkeypatch.setenv("NO_COLOR", "1")
    assert paint("text", RED, Screen()) == "text"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert paint("text", RED, Screen()) == "text"


def test_a_text_is_shortened_at_its_end_or_in_its_middle() -> None:
    assert shorten("short", 5) == "short"
    assert shorten("a long text", 8) == "a lon..."
    assert shorten("payment:2026:reconcile", 11, middle=True) == "paym...cile"


def test_a_table_shrinks_its_widest_columns_and_only_those_that_may() -> None:
    assert fit([30, 9, 20], [0, 2], None) == [30, 9, 20]
    assert fit([30, 9, 20], [0, 2], 43) == [15, 9, 15]
    assert fit([30, 90, 20], [0, 2], 40) == [8, 90, 8], "a column keeps room for a few letters"


def test_a_long_line_is_folded_below_its_text_and_words_stay_whole() -> None:
    assert fold_line("one two three four", None) == "one two three four"
    assert fold_line("one two three four", 10) == "one two\n  three\n  four"
    assert fold_line("  key    one two three", 16) == "  key    one two\n         three"
    assert fold_line("see https://example.org/a-long-path now", 12) == "see\n  https://example.org/a-long-path\n  now"


def test_a_page_is_folded_and_its_examples_are_not() -> None:
    page = "One two three\nfour.\n\ncodes:\n  75     one two\n         three four\n\nexamples:\n  leasehold run a b c"
    assert fold_page(page, 12) == (
        "One two\nthree four.\n\ncodes:\n  75     one\n         two\n         three\n         four\n\nexamples:\n"
        "  leasehold run a b c"
    )


def test_every_page_of_the_manual_fits_80_columns() -> None:
    pages = [top_help(80), *(verb_help(verb, 80) for verb in VERBS.values())]
    assert [line for page in pages for line in page.splitlines() if len(line) > 80] == []


def test_a_wait_is_announced_at_once_for_a_new_reason_and_ever_more_rarely_for_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("leasehold.cli.wait_line.time.monotonic", lambda: now)
    reminders, printed = wait_line._Reminders(), []
    for second in range(2 * 3600):
        now = float(second)
        if reminders.is_due("held"):
            printed.append(second)
    assert printed[:5] == [0, 10, 30, 70, 150]
    assert printed[5:] == [310, *range(630, 2 * 3600, 600)], "at least every ten minutes"
    assert reminders.is_due("away")
    now += 9.0
    assert not reminders.is_due("away")
    now += 1.0
    assert reminders.is_due("away"), "what is new is repeated as soon as the first reason was"
    now += 19.0
    assert not reminders.is_due("away")
    now += 1.0
    assert reminders.is_due("away")


def test_a_store_that_says_when_it_is_back_is_shown_with_the_time_that_is_left() -> None:
    line = wait_line.describe_time("x", 12.0, 60.0, short=False)
    away = StoreUnreachable("x", 60.0, "no route")
    sits_out = StoreUnreachable("x", 60.0, "nodes sit out", 34.0)
    assert wait_line.describe_outage(line, "redis://h", 48.0, away) == (
        "waiting for 'x' (12s so far, giving up after 1m00s): cannot reach redis://h, trying for 48s more: no route"
    )
    assert wait_line.describe_outage(line, "redlock://h", 48.0, sits_out) == (
        "waiting for 'x' (12s so far, giving up after 1m00s): redlock://h can grant no lock for another 22s "
        "(leasehold doctor shows why)"
    )


def test_completion_offers_what_can_stand_at_the_cursor() -> None:
    def words(*line: str) -> list[str]:
        return [word for word, _ in candidates(line)]

    assert words("on") == ["once"]
    assert words("run", "x", "--on-conflict", "") == ["fail", "skip"]
    assert words("run", "x", "--on-conflict=s") == ["--on-conflict=skip"]
    assert words("run", "x", "--report", "") == [":files"]
    assert words("run", "x", "--", "ec") == [":command"]
    assert words("completion", "") == ["bash", "fish", "zsh"]
    assert words("completion", "bash", "") == [], "it takes one"
    assert words("queue", "retry", "17", "") == []
    assert "sqlite:////" in words("ls", "--url", "")
    assert words("nonsense", "") == []


# --- the environment


def test_a_url_can_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "url"
    file.write_text("memory://from-a-file\n")
    monkeypatch.delenv("LEASEHOLD_URL", raising=False)
    monkeypatch.setenv("LEASEHOLD_URL_FILE", str(file))
    with leasehold.connect() as client:
        assert client.store == "memory://from-a-file"
    file.write_text("redis://user:secret@one redis://two")
    with pytest.raises(ConfigurationError, match="must hold one store URL and nothing else") as caught:
        leasehold.connect()
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("LEASEHOLD_URL", "memory://other")
    with pytest.raises(ConfigurationError, match="are both set"):
        leasehold.connect()
    monkeypatch.delenv("LEASEHOLD_URL")
    monkeypatch.setenv("LEASEHOLD_URL_FILE", str(tmp_path / "absent"))
    with pytest.raises(ConfigurationError, match="cannot read the store URL from"):
        leasehold.connect()


def test_a_namespace_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASEHOLD_NAMESPACE", "shop")
    with leasehold.connect("memory://of-the-environment") as one, one.lock("x").hold():
        with leasehold.connect("memory://of-the-environment", namespace="shop") as same:
            assert same.inspect("x") is not None
        with leasehold.connect("memory://of-the-environment", namespace="other") as other:
            assert other.inspect("x") is None


def test_a_holder_has_a_user_and_without_a_label_the_name_of_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/shop/nightly.py", "--password", "secret"])
    monkeypatch.setattr(this_process, "_program_name", this_process._program_name.__wrapped__)
    with leasehold.connect(f"sqlite:///{tmp_path}/locks.db") as client, client.lock("x").hold():
        state = client.inspect("x")
    assert state is not None
    holder = state.holdings[0].holder
    assert holder.user
    assert "@" not in holder.host
    assert holder.label == "nightly.py"
