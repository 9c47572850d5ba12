"""`explain`: what an error means, and what to do. The same text as the page of errors, without a network."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.explain_table import EXPLANATIONS
from leasehold.cli.output import print_json, print_lines
from leasehold.cli.parser import Usage

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold.cli.output import Console

__all__ = ["explain"]


def explain(arguments: Namespace, console: Console) -> int:  # noqa: ARG001 - every verb has this shape
    """The verb: print one explanation, or all names."""
    if arguments.error is None:
        print_lines(EXPLANATIONS)
        return exit_codes.OK
    name = _known(arguments.error)
    found = EXPLANATIONS[name]
    if arguments.json:
        print_json({"error": name, "when": found.when, "do": list(found.do), "page": found.page or None})
        return exit_codes.OK
    lines = [name, *_folded(found.when, "  "), "", "what to do:"]
    for step in found.do:
        lines += _folded(step, "  - ", "    ")
    print_lines([*lines, *(["", f"more: docs/{found.page}"] if found.page else [])])
    return exit_codes.OK


def _known(word: str) -> str:
    """The name of an error, as a traceback shows it or in any case."""
    short = word.rpartition(".")[2].lower()
    for name in EXPLANATIONS:
        if name.lower() == short:
            return name
    import difflib  # noqa: PLC0415 - only for mistakes

    close = difflib.get_close_matches(word.rpartition(".")[2], EXPLANATIONS, 1, 0.5)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise Usage(f"leasehold has no error {word!r}{hint}", "`leasehold explain` lists all")


def _folded(text: str, first: str, later: str | None = None) -> list[str]:
    width = min(shutil.get_terminal_size((80, 24)).columns, 100)
    return textwrap.wrap(
        text, max(width, 60), initial_indent=first, subsequent_indent=first if later is None else later
    )
