"""What can stand at the cursor of a command line, for the completion scripts: `leasehold __complete WORDS... WORD`.

Each candidate is a line: the whole word, a tab, and a few words about it. `:files` and `:command` leave it to
the shell.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from leasehold.cli.parser import parser_for
from leasehold.cli.verbs import VERBS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

__all__ = ["candidates", "complete"]

PATIENCE = 5  # seconds: a store that is away must not hold up the keyboard
FILES, COMMAND = ":files", ":command"
URLS = ("local:", "sqlite:////", "redis://", "redlock://", "postgresql://", "mysql://", "etcd://", "zk://", "nats://")
TIMES = ("10s", "30s", "1m", "5m", "1h", "1d")
LOCKS = {"name", "names", "prefix"}  # arguments that are names of locks


def complete(words: list[str]) -> list[str]:
    """The lines for the shell; the last word is the one at the cursor, and may be empty."""
    return [f"{word}\t{text}" for word, text in candidates(words or [""])]


def candidates(words: Sequence[str]) -> list[tuple[str, str]]:
    """Each candidate that begins with the last word, and what it is."""
    *before, word = words
    option, equals, value = word.partition("=")
    if equals and option.startswith("--"):
        return [(f"{option}={found}", text) for found, text in candidates([*before, option, value])]
    return [
        (found, text)
        for found, text in _all(before, word)
        if found in (FILES, COMMAND) or (found.startswith(word) and found.isprintable())
    ]


def _all(before: list[str], word: str) -> Iterator[tuple[str, str]]:
    if not before:
        from leasehold.cli.manual import PAGES  # noqa: PLC0415 - only here

        yield from ((name, PAGES[name].summary) for name in VERBS)
        return
    verb, *rest = before
    if verb not in VERBS:
        return
    if VERBS[verb].takes_command and "--" in rest:
        yield COMMAND, ""
        return
    actions = parser_for(VERBS[verb])._actions  # noqa: SLF001 - argparse has no other way to ask
    asked = _awaiting(actions, rest)
    if asked is not None:
        yield from _values(asked, before, word)
    elif word.startswith("-"):
        for action in actions:
            yield from ((option, action.help or "") for option in action.option_strings if option not in rest)
        if VERBS[verb].takes_command:
            yield "--", "the command comes next"
    elif (positional := _positional(actions, rest)) is not None:
        yield from _values(positional, before, word)


def _awaiting(actions: Sequence[argparse.Action], rest: Sequence[str]) -> argparse.Action | None:
    """The option whose value comes next, if the last word was one."""
    last = rest[-1] if rest else ""
    return next((action for action in actions if last in action.option_strings and action.nargs != 0), None)


def _positional(actions: Sequence[argparse.Action], rest: Sequence[str]) -> argparse.Action | None:
    """The argument without a name that comes next."""
    given, skip = 0, False
    for place, word in enumerate(rest, 1):
        if not skip and not word.startswith("-"):
            given += 1
        skip = _awaiting(actions, rest[:place]) is not None
    places = [action for action in actions if not action.option_strings]
    if given < len(places):
        return places[given]
    return places[-1] if places and places[-1].nargs == "+" else None


def _values(action: argparse.Action, before: list[str], word: str) -> Iterator[tuple[str, str]]:
    if action.choices:
        yield from ((str(choice), "") for choice in action.choices)
    elif action.metavar == "FILE":
        yield FILES, ""
    elif action.metavar == "TIME":
        yield from ((time, "") for time in TIMES)
    elif action.metavar == "URL":
        yield from ((url, "") for url in URLS)
    elif action.dest in LOCKS:
        yield from _locks(before, word)


def _locks(before: list[str], prefix: str) -> Iterator[tuple[str, str]]:
    """The locks in use, of the store that the line names; none if it cannot be asked."""
    from argparse import Namespace  # noqa: PLC0415 - loaded already

    from leasehold.cli.connection import open_client  # noqa: PLC0415 - only here
    from leasehold.cli.output import who  # noqa: PLC0415

    store = Namespace(url=_given(before, "--url"), namespace=_given(before, "--namespace"))
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.alarm(PATIENCE)
    with suppress(Exception), open_client(store) as client:
        for state in client.locks(prefix):
            yield state.name, who(state.holdings[0].holder) if state.holdings else "free"


def _given(words: list[str], option: str) -> str | None:
    """What the line gives for an option, as `--url X` or `--url=X`."""
    for place, word in enumerate(words):
        if word == option and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None
