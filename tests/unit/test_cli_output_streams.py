"""What is printed and how: messages, data, tables, folded lines and pages, advice and explanations."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from leasehold.cli import choose as choose_module
from leasehold.cli import help_text, output, style
from leasehold.cli.choose_decide import Advice, recommend
from leasehold.cli.choose_pages import advice_as_data, advice_lines, fence_of, page_lines
from leasehold.cli.choose_table import FENCES, NEEDS, PATTERNS, STORES
from leasehold.cli.explain_table import EXPLANATIONS
from leasehold.cli.help_text import fold_page, help_width, hung
from leasehold.cli.main import main
from leasehold.cli.output import Console, end_line, print_json, print_text, shell_word, table, who
from leasehold.cli.parser import Usage, verb_help
from leasehold.cli.style import fit, fold_line, paint, shorten
from leasehold.cli.verbs import VERBS
from leasehold.values import Holder

LONG = "leasehold run nightly -- ./nightly.sh --all --verbose"


class Screen(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int | None = None) -> Screen:
    """From now on both streams are one, with colours and so many columns."""
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(output, "terminal_width", lambda _: width)
    return screen


# --- messages


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, ["error", "note", "interrupted"]),
        ({"quiet": True}, ["error"]),
        ({"verbose": True}, ["error", "note", "detail", "interrupted"]),
        ({"quiet": True, "verbose": True}, ["error", "detail"]),
    ],
)
def test_quiet_and_verbose_decide_what_is_said(
    options: dict[str, bool], said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(**options)
    for kind in ("error", "note", "detail", "interrupted"):
        getattr(console, kind)(kind)
    assert capsys.readouterr() == ("", "".join(f"leasehold: {kind}\n" for kind in said))


def test_each_line_of_a_message_is_escaped_and_folded_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_a_terminal(monkeypatch, 30)
    Console().error("one two three four five six\n  key  a\x1b b\ttwo three four five six")
    assert screen.getvalue() == (
        "\x1b[31mleasehold: \x1b[0mone two three four\n  five six\n  key  a\\x1b b\\ttwo three four\n       five six\n"
    )
    screen.truncate(0)
    screen.seek(0)
    Console().note("plain")
    assert screen.getvalue() == "leasehold: plain\n"


def test_an_interruption_begins_a_new_line_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    end_line()
    assert capsys.readouterr().err == ""
    screen = on_a_terminal(monkeypatch)
    Console().interrupted("over")
    assert screen.getvalue() == "\nleasehold: over\n"


@pytest.mark.parametrize("stream", [None, "closed"])
def test_a_stderr_that_is_gone_changes_nothing(stream: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = None
    if stream == "closed":
        gone = Screen()
        gone.close()
    monkeypatch.setattr(sys, "stderr", gone)
    Console(verbose=True).error("nobody hears")
    end_line()


def test_data_are_one_object_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "a\nb\x1b"})
    assert capsys.readouterr().out == '{"schema": 1, "name": "a\\nb\\u001b"}\n'


def test_text_is_folded_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_a_terminal(monkeypatch, 10)
    print_text(["one two three"])
    assert screen.getvalue() == "one two\n  three\n"


def test_an_unknown_holder_has_words() -> None:
    assert who(None) == "an unknown holder"
    assert who(Holder("db-3", 7, "nightly")) == "nightly on db-3, pid 7"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a%+,-./:=@_Z9", "a%+,-./:=@_Z9"),
        ("", "''"),
        ("ä", "'ä'"),
        ("a b", "'a b'"),
        ("it's", "'it'\"'\"'s'"),
        ("~", "'~'"),
        ("a\n'\\", "$'a\\x0a\\'\\\\'"),
    ],
)
def test_a_word_for_a_shell_is_quoted_where_it_must_be(text: str, word: str) -> None:
    assert shell_word(text) == word


# --- tables and folding


def test_a_table_that_is_too_wide_shrinks_names_in_the_middle_and_texts_at_their_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_a_terminal(monkeypatch, 34)
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [("payment:2026:reconcile", 7, "a long reason that does not fit")]
    lines = table(("NAME", "N", "REASON"), rows, names=(0,), texts=(2,))
    assert lines[1] == "paymen...ncile  7  a long reaso..."
    assert all(len(line) <= 34 for line in lines)
    assert table(("A",), [("x" * 50,)]) == ["A", "x" * 50], "a table that may not shrink stays whole"
    tight = table(("NAME", "N"), [("n" * 60, "1" * 60)], names=(0,))
    assert tight[1] == "nnn...nn  " + "1" * 24


@pytest.mark.parametrize(
    ("widths", "shrinkable", "width", "fitted"),
    [
        ([10, 10], [0, 1], 22, [10, 10]),
        ([10, 10], [0, 1], 21, [9, 10]),
        ([10, 10], [1], 20, [10, 8]),
        ([10, 10], [1], 5, [10, 8]),
        ([40, 10], [0, 1], 32, [20, 10]),
    ],
)
def test_columns_fit_with_the_gaps_between_them(
    widths: list[int], shrinkable: list[int], width: int, fitted: list[int]
) -> None:
    assert fit(widths, shrinkable, width) == fitted


@pytest.mark.parametrize(
    ("text", "width", "middle", "short"),
    [
        ("abcdefgh", 8, False, "abcdefgh"),
        ("abcdefgh", 7, False, "abcd..."),
        ("abcdefgh", 7, True, "ab...gh"),
        ("abcdefgh", 6, True, "ab...h"),
    ],
)
def test_a_shortened_text_has_exactly_its_width(text: str, width: int, middle: bool, short: str) -> None:
    assert shorten(text, width, middle=middle) == short
    assert len(short) <= width


@pytest.mark.parametrize(
    ("line", "width", "folded"),
    [
        ("exactly ten", 11, "exactly ten"),
        ("exactly ten", 10, "exactly\n  ten"),
        ("  one two three", 10, "  one two\n  three"),
        ("  -x  does this or that", 16, "  -x  does this\n      or that"),
        ("not-cut-at-hyphens here", 12, "not-cut-at-hyphens\n  here"),
    ],
)
def test_a_line_is_folded_where_its_text_begins(line: str, width: int, folded: str) -> None:
    assert fold_line(line, width) == folded


def test_no_color_that_is_empty_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "")
    assert paint("x", style.RED, Screen()) == "\x1b[31mx\x1b[0m"
    monkeypatch.setattr(sys, "stdout", Screen())
    assert paint("x", style.RED) == "\x1b[31mx\x1b[0m", "stdout, unless another stream is named"


# --- pages


@pytest.mark.parametrize(
    ("columns", "terminal", "width"),
    [("", None, 80), ("", 90, 90), ("", 200, 100), ("70", 90, 70), ("30", None, 40), ("500", None, 100), ("x", 85, 85)],
)
def test_help_is_as_wide_as_the_terminal_within_reason(
    columns: str, terminal: int | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(help_text, "terminal_width", lambda _: terminal)
    assert help_width() == width


@pytest.mark.parametrize(
    ("page", "folded"),
    [
        ("a b\nc d\n\ne", "a b c d\n\ne"),
        ("head:\n  75  one two\n      three", "head:\n  75  one two three"),
        ("head:\n  75  one\n  76  two", "head:\n  75  one\n  76  two"),
        ("a\n    $ keep   this\nb", "a\n    $ keep   this\nb"),
        (f"a\n    {LONG}\nb", f"a\n    {LONG}\nb"),
        ("text\nhead:\n  a b c d e f", "text\nhead:\n  a b c d\n  e f"),
        (
            "examples:\n  leasehold run a b c d e\n\ntext\n  a b c d e f",
            "examples:\n  leasehold run a b c d e\n\ntext\n  a b c d\n  e f",
        ),
    ],
)  # fmt: skip
def test_paragraphs_and_lists_are_folded_and_examples_are_not(page: str, folded: str) -> None:
    assert fold_page(page, 10 if "a b c d e f" in page else 40) == folded


def test_hung_text_begins_behind_its_start() -> None:
    assert hung("-x   ", "one two three", 12, 5) == "-x   one two\n     three"
    assert hung("", "one two three", 8, 0) == "one two\nthree"


def test_a_page_has_its_usage_folded_to_its_width() -> None:
    lines = verb_help(VERBS["run"], 60).splitlines()
    usage = lines[: lines.index("")]
    assert usage[0].startswith("usage: leasehold run NAME")
    assert all(len(line) <= 60 for line in usage)
    assert all(line.startswith("       ") for line in usage[1:])
    assert "  -n, --no-wait " in "\n".join(lines)
    assert "--on-conflict {fail,skip}" in "\n".join(lines)


# --- advice


def advice(pattern: str, store: str | None = "redis", *, is_missing: bool = False) -> Advice:
    return Advice("work", pattern, "because", store, "it is there", is_missing)


@pytest.mark.parametrize(
    ("pattern", "twice", "begins"),
    [
        ("semaphore", "costly", "None: the holders of a semaphore have no order."),
        ("cache", "costly", "Used inside: a late builder cannot overwrite a newer value."),
        ("lock", "costly", "Needed. A holder that is paused beyond its lease is a late writer"),
        ("lock", "cheap", "Worth one line, guard(tx, lease)"),
    ],
)
def test_the_fence_is_needed_as_far_as_a_second_run_costs(pattern: str, twice: str, begins: str) -> None:
    assert fence_of(advice(pattern), twice).startswith(begins)


def test_an_advice_has_its_facts_for_people_and_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lines = advice_lines(advice("lock", is_missing=True), ["redis", "nats"], "cheap")
    heads = [line[:9].strip() for line in lines if line[:9].strip()]
    assert heads == ["you", "PATTERN", "STORE", "TTL", "FENCE", "LATER", "READ"]
    text = "\n".join(lines)
    assert " (to be added)" in text
    assert STORES["redis"].trap.split()[0] in text
    assert FENCES[STORES["redis"].fences].split()[0] in text
    assert f"docs/{STORES['redis'].page}" in text
    assert "there is: nothing yet" in "\n".join(advice_lines(advice("lock"), [], "cheap"))
    none = advice_lines(recommend("stock", ["postgresql"], costly=True), ["postgresql"], "costly")
    assert "STORE    none" in "\n".join(none)
    assert not [line for line in none if line.startswith(("TTL", "FENCE", "LATER"))]
    data = advice_as_data(advice("lock", is_missing=True))
    assert (data["need"], data["pattern"], data["locks"], data["store_is_there"]) == ("work", "lock", True, False)
    assert data["store"]["name"] == "redis"
    assert data["store"]["url"] == STORES["redis"].url
    assert (data["python"], data["shell"], data["ttl"]) == (
        PATTERNS["lock"].python, PATTERNS["lock"].shell, PATTERNS["lock"].ttl,
    )  # fmt: skip
    assert data["pages"] == [
        f"docs/{PATTERNS['lock'].page}", f"docs/{STORES['redis'].page}", "docs/how-to/change-the-store.md",
    ]  # fmt: skip
    assert advice_as_data(advice("reservation", None))["store"] is None


def test_the_page_has_every_need_and_every_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = "\n".join(page_lines())
    for key in NEEDS:
        assert f"(--need {key})" in text
    for store in STORES.values():
        assert f"  {store.title}   {store.url}" in text
    for kind in ("clock", "writes"):
        assert FENCES[kind][:40] in text.replace("\n  ", " ")


@pytest.mark.parametrize(
    ("need", "have", "costly", "words"),
    [
        ("work", [], True, ("sqlite", "needs no server", False)),
        ("limit", ["zookeeper"], True, ("zookeeper", "", False)),
        ("job", ["zookeeper"], True, ("postgresql", "no records, which this needs; PostgreSQL does", True)),
        ("job", ["zookeeper"], False, ("redis", "no records, which this needs; Redis does", True)),
        ("limit", ["redis-nodes"], True, ("redis", "Redlock has no semaphores: one of your Redis nodes", False)),
        ("stock", ["host"], True, (None, "your SQLite file decides", False)),
        ("stock", ["mysql", "postgresql"], True, (None, "your PostgreSQL decides", False)),
        ("request", ["mysql"], True, (None, "decides, where the data is", False)),
    ],
)
def test_the_store_that_is_recommended_has_its_reason(
    need: str, have: list[str], costly: bool, words: tuple[str | None, str, bool]
) -> None:
    found = recommend(need, have, costly=costly)
    assert (found.store, found.is_missing) == (words[0], words[2])
    assert words[1] in found.why_store


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Answers at the keyboard."""
    answers = list(lines)
    monkeypatch.setattr("builtins.input", lambda _: answers.pop(0))


@pytest.mark.parametrize(
    ("answers", "least", "most", "chosen"),
    [
        (["2"], 1, 1, ["b"]),
        (["0", "4", "x", "1 2", "", "3"], 1, 1, ["c"]),
        (["b"], 1, 1, ["b"]),
        (["1, 3"], 0, 3, ["a", "c"]),
        ([""], 0, 3, []),
        (["²", "c,a"], 0, 3, ["c", "a"]),
    ],
)
def test_a_question_is_asked_until_its_answer_is_usable(
    answers: list[str], least: int, most: int, chosen: list[str],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    typed(monkeypatch, *answers)
    assert choose_module._ask("Which?", {"a": "A", "b": "B", "c": "C"}, least=least, most=most) == chosen
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["Which?", "   1  A", "   2  B", "   3  C"]
    what = "one number" if most == 1 else "numbers"
    assert lines[4:] == [f"please type {what} from 1 to 3"] * (len(answers) - 1)


def test_only_what_the_options_leave_open_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from leasehold.cli.parser import read

    typed(monkeypatch, "7", "4", "2")
    assert choose_module._asked(read(["choose"])) == ("job", ["redis"], "cheap")  # type: ignore[arg-type]
    typed(monkeypatch)
    words = ["choose", "--need", "job", "--have", "redis,nats", "--twice", "cheap"]
    assert choose_module._asked(read(words)) == ("job", ["redis", "nats"], "cheap")  # type: ignore[arg-type]
    assert choose_module._given(read(words[:3])) == ("job", [], "costly")  # type: ignore[arg-type]
    with pytest.raises(Usage, match="--have knows host, postgresql"):
        choose_module._haves(["redis", "mongo"])
    assert "What has to be done?" in capsys.readouterr().out


def test_the_words_of_advice_name_what_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["choose", "--need", "job", "--have", "redis", "--twice", "cheap", "--json"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (facts["have"], facts["twice"], facts["need"]) == (["redis"], "cheap", "job")


@pytest.mark.parametrize("words", [["--have", "redis"], ["--twice", "cheap"], ["--json"]])
def test_options_without_a_need_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["choose", *words]) == 64
    assert "--need is missing" in capsys.readouterr().err


# --- explanations


@pytest.mark.parametrize("width", ["60", "100", "300"])
def test_an_explanation_is_folded_and_has_its_page(
    width: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    assert main(["explain", "AcquireTimeout"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = EXPLANATIONS["AcquireTimeout"]
    assert lines[0] == "AcquireTimeout"
    assert lines[-2:] == ["", f"more: docs/{found.page}"]
    assert max(map(len, lines)) <= min(int(width), 100)
    place = lines.index("what to do:")
    assert " ".join(line.strip() for line in lines[1 : place - 1]) == found.when
    assert len([line for line in lines if line.startswith("  - ")]) == len(found.do)
    assert all(line.startswith(("  - ", "    ")) for line in lines[place + 1 : -2])


def test_an_explanation_without_a_page_ends_with_its_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "LEASEHOLDERROR"]) == 0
    assert "more:" not in capsys.readouterr().out
    assert main(["explain", "leaseholderror", "--json"]) == 0
    found = EXPLANATIONS["LeaseholdError"]
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1, "error": "LeaseholdError", "when": found.when, "do": list(found.do), "page": None,
    }  # fmt: skip
    assert main(["explain", "Zebra"]) == 64
    assert "leasehold has no error 'Zebra'\n" in capsys.readouterr().err
