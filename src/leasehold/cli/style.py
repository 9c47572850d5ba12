"""How text looks on a terminal: colour, folding to its width, and what is left out when a table does not fit.

None of it happens elsewhere: a pipe or a file gets whole lines without colour, for grep and for logs. NO_COLOR turns
off colour, and nothing else.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "BOLD",
    "DIM",
    "GREEN",
    "RED",
    "YELLOW",
    "fit",
    "fold_line",
    "is_lively",
    "paint",
    "shorten",
    "terminal_width",
]

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"
NARROWEST = 40  # a terminal that claims less is not folded to
GAP = "  "
ROOM = 8  # what a column keeps at least when a table is made to fit
DOTS = "..."


def is_lively(stream: Any = None) -> bool:
    """Whether the stream (stderr) is a terminal on which a line may be written over."""
    stream = sys.stderr if stream is None else stream
    if os.environ.get("TERM") in {"dumb", ""}:
        return False
    try:
        return stream is not None and bool(stream.isatty())
    except ValueError:  # closed
        return False


def paint(text: str, colour: str, stream: Any = None) -> str:
    """The text in a colour, if the stream (stdout) is a terminal and NO_COLOR is not set."""
    if os.environ.get("NO_COLOR") or not is_lively(sys.stdout if stream is None else stream):
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"


def terminal_width(stream: Any) -> int | None:
    """The columns of the terminal behind the stream; None if it is none."""
    if not is_lively(stream):
        return None
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return None
    return columns if columns >= NARROWEST else None


def fold_line(line: str, width: int | None) -> str:
    """A line that is too long, on several, below where its text begins; words are never cut: they may be commands."""
    if width is None or len(line) <= width:
        return line
    import textwrap  # noqa: PLC0415 - most lines are short

    return "\n".join(
        textwrap.wrap(
            line,
            width,
            subsequent_indent=" " * _text_column(line),
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
        )
    )


def _text_column(line: str) -> int:
    """Where the text begins, behind the indentation and a first column such as an option or an exit code."""
    indent = len(line) - len(line.lstrip())
    term, gap, text = line[indent:].partition(GAP)
    if not gap or not indent:
        return indent + (0 if indent else len(GAP))
    return indent + len(term) + len(gap) + len(text) - len(text.lstrip())


def shorten(text: str, width: int, *, middle: bool = False) -> str:
    """The text in so many columns, with dots for what is left out at its end or in its middle."""
    if len(text) <= width:
        return text
    if not middle:
        return text[: width - len(DOTS)] + DOTS
    kept = width - len(DOTS)
    return text[: kept - kept // 2] + DOTS + text[len(text) - kept // 2 :]


def fit(widths: Sequence[int], shrinkable: Sequence[int], width: int | None) -> list[int]:
    """Widths of columns that fit together, taken from the widest of those that may shrink."""
    fitted = list(widths)
    if width is None:
        return fitted
    excess = sum(fitted) + len(GAP) * (len(fitted) - 1) - width
    while excess > 0:
        widest = max(shrinkable, key=lambda column: fitted[column])
        if fitted[widest] <= ROOM:
            break
        fitted[widest] -= 1
        excess -= 1
    return fitted
