"""Pages of the manual, folded to a width. They are written as paragraphs, lists and examples; only examples stay as is.

A paragraph is a run of lines without indentation. An item of a list has two columns, as an exit code and its meaning
do; lines below its second column belong to it. Any other line with indentation is an example: folding it would break
what a reader pastes.
"""

from __future__ import annotations

import os
import re
import sys

from leasehold.cli.style import terminal_width

__all__ = ["fold_page", "help_width", "hung"]

NARROW, WIDE = 80, 100
EXAMPLES = "examples:"
DEEPEST = 2  # columns: what is indented further and is no list is an example
_ITEM = re.compile(r"( +)(\S.*?)( {2,})(\S.*)")


def help_width() -> int:
    """The width of the terminal, within reason; 80 where there is none."""
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdigit() else terminal_width(sys.stdout) or NARROW
    return max(NARROW // 2, min(width, WIDE))


def fold_page(text: str, width: int) -> str:
    """The text with its paragraphs and lists folded."""
    folded: list[str] = []
    lines, heading = text.split("\n"), ""
    while lines:
        line = lines.pop(0)
        column, item = _indent(line), _ITEM.fullmatch(line)
        if not column:
            heading = line
        if not line or line.endswith(":") or (column and heading == EXAMPLES) or column > DEEPEST:
            folded.append(line)
        elif item is not None:
            column = item.start(4)
            folded.append(hung(line[:column], " ".join([item[4], *_taken(lines, column)]), width, column))
        else:
            folded.append(hung("", " ".join([line.strip(), *_taken(lines, column)]), width, column))
    return "\n".join(folded)


def hung(start: str, text: str, width: int, column: int) -> str:
    """The text folded behind its start, below the column where it begins; words are not cut."""
    import textwrap  # noqa: PLC0415 - only for help

    indent = " " * column
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(indent, start, 1) if start else "\n".join(lines)


def _taken(lines: list[str], column: int) -> list[str]:
    """Take the lines that go on at the same column."""
    taken = []
    while lines and lines[0].strip() and _indent(lines[0]) == column and not _begins(lines[0]):
        taken.append(lines.pop(0).strip())
    return taken


def _begins(line: str) -> bool:
    """Whether the line is a heading or an item of a list."""
    return (not line.startswith(" ") and line.endswith(":")) or _ITEM.fullmatch(line) is not None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
