"""The commands and files of the documentation can be used: `leasehold` takes the words, YAML and units can be read."""

from __future__ import annotations

import configparser
import re
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]  # it comes with the site generator, without types

from leasehold.cli.parser import read
from leasehold.cli.verbs import VERBS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
DEPLOY = ROOT / "deploy"
PROMPT = re.compile(r"^ *\$ (?=leasehold )", re.MULTILINE)


def blocks(text: str, language: str) -> list[str]:
    return [
        re.sub(rf"^{block['indent']}", "", block["code"], flags=re.MULTILINE)
        for block in re.finditer(rf"^(?P<indent> *)```{language}\n(?P<code>.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    ]


def words_of(line: str) -> list[str]:
    """The words after `leasehold`, up to a pipe or redirection; `...` and `…` stand for what a reader fills in."""
    words = shlex.split(line.replace("\\\n", " "), comments=True)[1:]
    for end in ("|", ">", "&", "&&", ";"):
        words = words[: words.index(end)] if end in words else words
    return words


def command_at(text: str) -> str:
    """The command that the text begins with: as many lines as its quotes and backslashes need."""
    lines = text.splitlines()
    for count in range(1, len(lines) + 1):
        command = "\n".join(lines[:count])
        with suppress(ValueError):
            shlex.split(command)
            return command
    raise AssertionError(f"this command does not end: {text}")


def commands(text: str) -> Iterator[list[str]]:
    for block in blocks(text, "console"):
        yield from (words_of(command_at(part)) for part in PROMPT.split(block)[1:])
    for block in blocks(text, "yaml"):
        yield from lists_that_begin_with_leasehold(yaml.safe_load(block))


def lists_that_begin_with_leasehold(value: Any) -> Iterator[list[str]]:
    if isinstance(value, dict):
        for each in value.values():
            yield from lists_that_begin_with_leasehold(each)
    elif isinstance(value, list):
        if value and value[0] == "leasehold":
            yield value[1:]
        for each in value:
            yield from lists_that_begin_with_leasehold(each)


def test_leasehold_takes_the_words_of_every_command_that_is_shown() -> None:
    shown = [(page.name, words) for page in PAGES for words in commands(page.read_text())]
    assert len(shown) > 20
    for page, words in shown:
        if words and words[0] in VERBS:
            assert read([word for word in words if word not in ("...", "…")]) is not None, (page, words)


@pytest.mark.parametrize("file", sorted(DEPLOY.rglob("*.yaml")), ids=lambda file: file.name)
def test_manifest_runs_commands_that_leasehold_takes(file: Path) -> None:
    found = list(lists_that_begin_with_leasehold(yaml.safe_load(file.read_text())))
    assert found
    for words in found:
        assert read(words) is not None


@pytest.mark.parametrize("file", sorted(DEPLOY.glob("systemd/*")), ids=lambda file: file.name)
def test_unit_is_the_one_on_the_page_and_its_command_is_taken(file: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "systemd.md").read_text()
    assert file.read_text() in blocks(page, "ini")
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.read_string(file.read_text())
    if "Service" in unit:
        assert read(words_of(unit["Service"]["ExecStart"])) is not None
        assert unit["Service"]["KillMode"] == "mixed"


def test_wrong_option_is_noticed() -> None:
    page = "```console\n$ leasehold run job --untill 5 -- true\n```\n"
    (words,) = commands(page)
    with pytest.raises(Exception, match="untill"):
        read(words)
