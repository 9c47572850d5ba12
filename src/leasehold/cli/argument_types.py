"""What arguments are read as: times, whole numbers, fences. Errors are sentences for the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.cli.durations import duration

if TYPE_CHECKING:
    from argparse import ArgumentParser

__all__ = ["add_json", "exit_code", "fence_number", "groups", "permits", "time_span"]


def add_json(parser: ArgumentParser) -> None:
    """The option of every verb that prints data."""
    parser.add_argument("--json", action="store_true", help='one JSON object per line, with "schema": 1')


def time_span(text: str) -> float:
    """A time such as 1h30m, in seconds."""
    from argparse import ArgumentTypeError  # noqa: PLC0415 - loaded already

    try:
        return duration(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def permits(text: str) -> int:
    """How many may hold a name together."""
    return _whole(text, 1, 1_000_000)


def exit_code(text: str) -> int:
    """A status that a process can end with."""
    return _whole(text, 0, 255)


def fence_number(text: str) -> int:
    """A fencing token."""
    return _whole(text, 1, 2**53 - 1)


def groups(text: str) -> int:
    """How many groups of names there may be."""
    return _whole(text, 1, 1_000)


def _whole(text: str, lowest: int, highest: int) -> int:
    from argparse import ArgumentTypeError  # noqa: PLC0415

    if not text.isascii() or not text.isdigit() or not lowest <= int(text) <= highest:
        raise ArgumentTypeError(f"must be a whole number from {lowest} to {highest}, not {text!r}")
    return int(text)
