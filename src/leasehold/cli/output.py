"""What goes to the terminal: data to stdout, messages to stderr, and nothing in either that could steer a terminal.

Names, labels and reasons are written by others: every character that is not printable is escaped here, before `style`
adds colour.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from leasehold._shown import printable
from leasehold.cli.style import BOLD, GAP, RED, fit, fold_line, paint, shorten, terminal_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leasehold.values import Holder, Holding, LockState, Pause

__all__ = [
    "Console",
    "end_line",
    "prepare_streams",
    "print_json",
    "print_lines",
    "print_text",
    "printable",
    "shell_word",
    "state_as_data",
    "table",
    "who",
]

SCHEMA = 1
PREFIX = "leasehold: "


def prepare_streams() -> None:
    """Never fail on a character that the terminal's encoding does not have."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def shell_word(text: str) -> str:
    """The text as one word of a POSIX shell that can be pasted, with no raw control character in it."""
    if text and all((character.isalnum() and character.isascii()) or character in "%+,-./:=@_" for character in text):
        return text
    if text.isprintable():
        return "'" + text.replace("'", "'\"'\"'") + "'"
    escaped = "".join(
        f"\\{character}"
        if character in "\\'"
        else character
        if character.isprintable()
        else "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
        for character in text
    )
    return f"$'{escaped}'"


class Console:
    """Messages to the user, on stderr; `-q` silences all but errors, `-v` adds detail."""

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        self.is_quiet = quiet
        self.is_verbose = verbose

    def error(self, message: object) -> None:
        """Something the user must know."""
        self._write(message, RED)

    def note(self, message: object) -> None:
        """Something the user would like to know."""
        if not self.is_quiet:
            self._write(message)

    def detail(self, message: object) -> None:
        """Something for -v."""
        if self.is_verbose:
            self._write(message)

    def interrupted(self, message: object) -> None:
        """What a signal ended, on a new line: the terminal has just echoed ^C."""
        if not self.is_quiet:
            end_line()
            self._write(message)

    def _write(self, message: object, colour: str | None = None) -> None:
        first, *others = (printable(line) for line in str(message).split("\n"))
        with suppress(OSError, ValueError, AttributeError):  # a closed stderr must not change what happens
            width = terminal_width(sys.stderr)
            lines = [fold_line(line, width) for line in (f"{PREFIX}{first}", *others)]
            if colour is not None:
                lines[0] = paint(PREFIX, colour, sys.stderr) + lines[0].removeprefix(PREFIX)
            print("\n".join(lines), file=sys.stderr, flush=True)  # noqa: T201


def end_line() -> None:
    """Begin a new line on the terminal, if that is where messages go."""
    with suppress(OSError, ValueError, AttributeError):
        if sys.stderr.isatty():
            sys.stderr.write("\n")
            sys.stderr.flush()


def print_lines(lines: Iterable[str]) -> None:
    """Data for people, on stdout."""
    print("\n".join(lines), flush=True)  # noqa: T201


def print_text(lines: Iterable[str]) -> None:
    """Data for people whose long lines are folded on a terminal; not for commands that are to be pasted."""
    width = terminal_width(sys.stdout)
    print_lines(fold_line(line, width) for line in lines)


def print_json(facts: dict[str, Any]) -> None:
    """Data for programs: one object on one line."""
    import json  # noqa: PLC0415 - only for --json

    print(json.dumps({"schema": SCHEMA, **facts}), flush=True)  # noqa: T201


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    names: Sequence[int] = (),
    texts: Sequence[int] = (),
    colour_of: Callable[[Sequence[object]], str | None] | None = None,
) -> list[str]:
    """Columns padded to the same width; every cell escaped.

    On a terminal that is too narrow, the columns `names` are shortened in the middle, and `texts` at their ends.
    """
    cells = [tuple(head), *(tuple(printable(cell) for cell in row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    shrinkable = [*names, *texts]
    limit = terminal_width(sys.stdout) if shrinkable else None
    widths = fit(widths, shrinkable, limit)
    lines = [
        GAP.join(
            shorten(cell, width, middle=column in names).ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()[:limit]
        for row in cells
    ]
    colours = [BOLD, *(None if colour_of is None else colour_of(row) for row in rows)]
    return [line if colour is None else paint(line, colour) for line, colour in zip(lines, colours, strict=True)]


def who(holder: Holder | None) -> str:
    """A holder in a few words."""
    return "an unknown holder" if holder is None else str(holder)


def state_as_data(state: LockState) -> dict[str, Any]:
    """A lock for `--json`."""
    return {
        "name": state.name,
        "mode": str(state.mode),
        "capacity": state.capacity,
        "holdings": [_holding_as_data(holding) for holding in state.holdings],
        "waiting": [_holder_as_data(holder) for holder in state.waiting],
        "paused": None if state.paused is None else _pause_as_data(state.paused),
    }


def _pause_as_data(paused: Pause) -> dict[str, Any]:
    return {
        "reason": paused.reason,
        "by": paused.by,
        "expires_in": None if paused.expires_in is None else round(paused.expires_in, 3),
        "paused_for": None if paused.paused_for is None else round(paused.paused_for, 3),
    }


def _holding_as_data(holding: Holding) -> dict[str, Any]:
    return {
        "holder": _holder_as_data(holding.holder),
        "fence": holding.fence,
        "held_for": round(holding.held_for, 3),
        "expires_in": round(holding.expires_in, 3),
        "broken": holding.broken,
        "cooling": holding.cooling,
    }


def _holder_as_data(holder: Holder) -> dict[str, Any]:
    return {
        "host": holder.host,
        "pid": holder.pid,
        "label": holder.label,
        "reason": holder.reason,
        "user": holder.user,
    }
