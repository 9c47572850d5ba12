"""From words to arguments, with argparse. Only the parser of the verb in use is built, because each one costs time.

Everything after `--` belongs to the command and is never looked at.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

from leasehold.cli.verbs import VERBS

if TYPE_CHECKING:
    from leasehold.cli.verbs import Verb

__all__ = ["Usage", "parser_for", "read", "top_help", "verb_help"]

USAGE = "usage: "


class Usage(Exception):
    """The arguments cannot be understood; `advice` is where to read more."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """The same help on every Python, so that the reference page can be tested against it."""

    def __init__(self, prog: str, width: int = 80) -> None:
        # A width of its own: else argparse loads shutil, with all of its compressions, before there is any help.
        super().__init__(prog, max_help_position=30, width=width)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return str(action.metavar or action.dest)
        value = ""
        if action.nargs != 0:
            value = f" {action.metavar}" if action.metavar else f" {{{','.join(map(str, action.choices or ()))}}}"
        return ", ".join(action.option_strings) + value


class _Parser(argparse.ArgumentParser):
    """Raises instead of exiting with argparse's own code."""

    def error(self, message: str) -> NoReturn:
        from leasehold.cli.manual import PAGES  # noqa: PLC0415 - only for mistakes

        usage = PAGES[self.prog.removeprefix("leasehold ")].usage
        raise Usage(message, f"usage: {usage}\nsee {self.prog} --help")


def read(words: list[str]) -> argparse.Namespace | None:
    """The arguments, with the verb as `.verb`; None after --help or --version, which are printed here."""
    from leasehold.cli.output import print_lines  # noqa: PLC0415

    if not words:
        raise Usage("no command given", "see leasehold --help")
    first, *rest = words
    if first in ("-h", "--help", "help"):
        print_lines([verb_help(VERBS[rest[0]]) if rest and rest[0] in VERBS else top_help()])
        return None
    if first in ("-V", "--version"):
        from leasehold import __version__  # noqa: PLC0415

        print_lines([f"leasehold {__version__}"])
        return None
    if first == "__complete":
        from leasehold.cli.candidates import complete  # noqa: PLC0415 - only for the completion scripts

        if found := complete(rest):
            print_lines(found)
        return None
    verb = VERBS.get(first)
    if verb is None:
        raise Usage(_unknown(first), "see leasehold --help")
    return _read_verb(verb, rest)


def _read_verb(verb: Verb, words: list[str]) -> argparse.Namespace | None:
    from leasehold.cli.output import print_lines  # noqa: PLC0415

    command: list[str] | None = None
    if verb.takes_command and "--" in words:
        place = words.index("--")
        words, command = words[:place], words[place + 1 :]
    if "-h" in words or "--help" in words:
        print_lines([verb_help(verb)])
        return None
    parser = parser_for(verb)
    parse = parser.parse_known_intermixed_args if verb.mixes_words else parser.parse_known_args
    arguments, strangers = parse(words)
    if strangers:
        kind = "option" if strangers[0].startswith("-") else "argument"
        hint = "; put -- before the command" if verb.takes_command and command is None else ""
        parser.error(f"unknown {kind} {strangers[0]}{_meant(strangers[0], parser)}{hint}")
    observes = getattr(arguments, "observe", False)
    if observes and command:
        parser.error("--observe runs nothing: leave out the command, or --observe")
    if verb.takes_command and not command and not observes:
        parser.error(f"no command given: write it after --, as in: {parser.prog} NAME -- ./job.sh")
    arguments.verb, arguments.command = verb, command
    _check(parser, arguments)
    return arguments


def _check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """What no single option can check."""
    max_hold = getattr(arguments, "max_hold", None)
    if max_hold is not None and arguments.min_hold > max_hold:
        parser.error("--min-hold is longer than --max-hold: the lock would be kept after the command was stopped")
    names = getattr(arguments, "names", None)
    if isinstance(names, list) and len(names) > 1 and (arguments.permits is not None or arguments.shared):
        parser.error("--permits and --shared are for one name; several are taken as a whole, each for this run alone")
    if getattr(arguments, "again", False) and not arguments.reason:
        parser.error("--again needs --reason: it is logged, and shown by leasehold info")


def parser_for(verb: Verb) -> argparse.ArgumentParser:
    """The parser of one verb; without its manual page, which only `verb_help` needs."""
    parser = _Parser(prog=f"leasehold {verb.name}", formatter_class=_Formatter, allow_abbrev=False, add_help=False)
    if hasattr(parser, "color"):  # Python 3.14 would colour the help
        parser.color = False
    verb.add_arguments(parser)
    if verb.asks_store:
        parser.add_argument("--url", metavar="URL", help="the store; without it, the variable LEASEHOLD_URL")
        parser.add_argument("--namespace", metavar="TEXT", help="keeps applications apart that share a store")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors and data")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print more; show where an internal error happened"
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this page")
    return parser


def verb_help(verb: Verb, width: int | None = None) -> str:
    """The manual page of a verb, folded to the width, or else to the terminal's."""
    from leasehold.cli.help_text import fold_page, help_width, hung  # noqa: PLC0415 - only for help
    from leasehold.cli.manual import PAGES  # noqa: PLC0415

    page, columns = PAGES[verb.name], width or help_width()
    parser = parser_for(verb)
    parser.formatter_class = lambda prog: _Formatter(prog, columns)
    lines = [hung("", usage.strip(), columns - len(USAGE), 0).split("\n") for usage in page.usage.split("\n")]
    parser.usage = "\n".join(f"{' ' * len(USAGE)}{line}" for folded in lines for line in folded).lstrip()
    parser.description, parser.epilog = fold_page(page.description, columns), fold_page(page.epilog, columns)
    return parser.format_help()


def top_help(width: int | None = None) -> str:
    """The page of `leasehold --help`."""
    from leasehold.cli.help_text import fold_page, help_width  # noqa: PLC0415 - only for help
    from leasehold.cli.manual import OVERVIEW, PAGES  # noqa: PLC0415

    verbs = "\n".join(f"  {name:<12}{PAGES[name].summary}" for name in VERBS)
    return fold_page(OVERVIEW.replace("{verbs}", verbs), width or help_width())


def _meant(word: str, parser: argparse.ArgumentParser) -> str:
    import difflib  # noqa: PLC0415 - only for mistakes

    options = [option for action in parser._actions for option in action.option_strings]  # noqa: SLF001 - no other way
    close = difflib.get_close_matches(word.partition("=")[0], options, 1) if word.startswith("--") else []
    return f"; did you mean {close[0]}?" if close else ""


def _unknown(word: str) -> str:
    if word.startswith("-"):
        return f"unknown option {word}; options come after the verb, as in: leasehold ls {word}"
    import difflib  # noqa: PLC0415 - only for mistakes

    close = difflib.get_close_matches(word, VERBS, 1)
    return f"unknown verb {word!r}" + (f"; did you mean {close[0]}?" if close else "")
