"""`choose`: whether to lock at all, with which pattern, and on which store.

On a terminal it asks what the options leave open. Elsewhere the options decide; without any it prints one page.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.choose_decide import recommend
from leasehold.cli.choose_pages import advice_as_data, advice_lines, page_lines
from leasehold.cli.choose_table import HAVES, NEEDS, TWICE
from leasehold.cli.output import print_json, print_lines
from leasehold.cli.parser import Usage

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from leasehold.cli.output import Console

__all__ = ["choose"]


def choose(arguments: Namespace, console: Console) -> int:
    """The verb: find out what is needed and what is there, and recommend."""
    is_asking = sys.stdin.isatty() and sys.stdout.isatty() and not arguments.json
    if arguments.need is None and not is_asking:
        if arguments.have or arguments.twice or arguments.json:
            raise Usage("--need is missing: it says what has to be done", "see leasehold choose --help")
        print_lines(page_lines())
        return exit_codes.OK
    try:
        need, have, twice = _asked(arguments) if is_asking else _given(arguments)
    except EOFError:
        console.interrupted("nothing was chosen")
        return exit_codes.PROBLEM
    advice = recommend(need, have, costly=twice == "costly")
    if arguments.json:
        print_json({"have": list(have), "twice": twice, **advice_as_data(advice)})
    else:
        print_lines(advice_lines(advice, have, twice))
    return exit_codes.OK


def _given(arguments: Namespace) -> tuple[str, Sequence[str], str]:
    """What the options say; nothing is assumed to be there, and the worst of a second run."""
    return arguments.need, _haves(arguments.have), arguments.twice or "costly"


def _asked(arguments: Namespace) -> tuple[str, Sequence[str], str]:
    """What the options say, and what the user says about the rest."""
    needs = {key: need.words for key, need in NEEDS.items()}
    need = arguments.need or _ask("What has to be done?", needs, most=1)[0]
    if arguments.have is None:
        have: Sequence[str] = _ask("What is there already? (several numbers, or Enter for nothing)", HAVES, least=0)
    else:
        have = _haves(arguments.have)
    return need, have, arguments.twice or _ask("And if it happens twice?", TWICE, most=1)[0]


def _haves(given: Sequence[str] | None) -> list[str]:
    words = [word for text in given or () for word in text.split(",")]
    for word in words:
        if word not in HAVES:
            raise Usage(f"--have knows {', '.join(HAVES)}; not {word!r}", "see leasehold choose --help")
    return words


def _ask(question: str, choices: Mapping[str, str], *, least: int = 1, most: int = len(HAVES)) -> list[str]:
    """Ask until the answer is usable: numbers of the menu, or their words. EOFError at the end of the input."""
    keys = list(choices)
    print_lines([question, *(f"{number:>4}  {choices[key]}" for number, key in enumerate(keys, 1))])
    while True:
        words = input("number: " if most == 1 else "numbers: ").replace(",", " ").split()
        chosen = [_chosen(word, keys) for word in words]
        if None not in chosen and least <= len(chosen) <= most:
            return [key for key in chosen if key is not None]
        print_lines([f"please type {'one number' if most == 1 else 'numbers'} from 1 to {len(keys)}"])


def _chosen(word: str, keys: Sequence[str]) -> str | None:
    if word.isascii() and word.isdigit():
        return keys[int(word) - 1] if 1 <= int(word) <= len(keys) else None
    return word if word in keys else None
