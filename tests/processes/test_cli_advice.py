"""`leasehold choose` and `leasehold explain`: in scripts, and asked on a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from leasehold import errors
from leasehold.cli.explain_table import EXPLANATIONS
from leasehold.cli.main import main
from tests.processes.asked import Asked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    asked = Asked(tmp_path, "choose")
    yield asked
    asked.close()


def test_three_answers_by_number_give_pattern_and_store_with_reasons(asked: Asked) -> None:
    asked.expect("What has to be done.*number: ")
    asked.type("7\n")
    asked.expect("What is there already.*numbers: ")
    asked.type("4, 7\n")
    asked.expect("twice.*number: ")
    asked.type("1\n")
    code, text = asked.end()
    assert code == 0
    assert "PATTERN  a job that runs once per slot" in text
    assert "STORE    Redis: redis://host" in text
    for head in ("TTL ", "FENCE ", "LATER ", "READ "):
        assert head in text


def test_wrong_answer_is_asked_again_and_words_are_answers_too(asked: Asked) -> None:
    asked.expect("number: ")
    asked.type("99\n")
    asked.expect("please type one number from 1 to 14.*number: ")
    asked.type("stock\n")
    asked.expect("numbers: ")
    asked.type("etcd elephants\n")
    asked.expect("please type numbers from 1 to 9.*numbers: ")
    asked.type("\n")
    asked.expect("number: ")
    asked.type("cheap\n")
    code, text = asked.end()
    assert (code, "STORE    SQLite: local:" in text) == (0, True)


def test_interrupt_while_it_asks_ends_it_without_a_traceback(asked: Asked) -> None:
    asked.expect("number: ")
    asked.press_until_it_ends("\x03")
    code, text = asked.end()
    assert code == 130
    assert "Traceback" not in text


def test_end_of_the_input_chooses_nothing(asked: Asked) -> None:
    asked.expect("number: ")
    asked.press_until_it_ends("\x04")
    code, text = asked.end()
    assert (code, "nothing was chosen" in text) == (1, True)


def test_options_are_not_asked_for(tmp_path: Path) -> None:
    asked = Asked(tmp_path, "choose", "--need", "leader", "--have", "etcd")
    try:
        asked.expect("twice.*number: ")
        asked.type("1\n")
        code, text = asked.end()
    finally:
        asked.close()
    assert (code, "STORE    etcd: etcd://" in text) == (0, True)


def test_options_decide_in_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["choose", "--need", "job", "--have", "redis,zookeeper", "--have", "nats", "--json"]) == 0
    advice = json.loads(capsys.readouterr().out)
    assert (advice["pattern"], advice["store"]["name"], advice["store_is_there"]) == ("once per slot", "nats", True)
    assert main(["choose", "--need", "job"]) == 0
    assert "there is: nothing yet" in capsys.readouterr().out
    assert main(["choose"]) == 0
    assert "FIRST: DO YOU NEED A LOCK?" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--need", "luck"], ["--have", "redis"], ["--need", "job", "--have", "luck"], ["--json"]]
)
def test_what_choose_does_not_know_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["choose", *words]) == 64
    assert "see leasehold choose --help" in capsys.readouterr().err


def test_every_error_has_an_explanation_with_something_to_do() -> None:
    assert set(EXPLANATIONS) == set(errors.__all__)
    assert all(found.when and found.do for found in EXPLANATIONS.values())


def test_error_is_explained_by_the_name_that_a_traceback_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "leasehold.errors.LeaseLost"]) == 0
    assert "what to do:\n  - Stop: " in capsys.readouterr().out
    assert main(["explain", "fenceahead", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["error"] == "FenceAhead"
    assert main(["explain"]) == 0
    assert capsys.readouterr().out.split() == list(EXPLANATIONS)
    assert main(["explain", "LeaseLst"]) == 64
    assert "did you mean LeaseLost?" in capsys.readouterr().err


def test_verbose_error_names_its_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "--url", "nonsense://", "-v"]) == 78
    assert "see: leasehold explain ConfigurationError" in capsys.readouterr().err
