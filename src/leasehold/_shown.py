"""Texts and times as people are shown them: on the terminal, and in the dashboard."""

from __future__ import annotations

__all__ = ["printable", "show_duration"]


def printable(text: object) -> str:
    """The text with every control, format and other unprintable character as an escape.

    Names, labels and reasons are written by others: nothing in them may steer a terminal or turn a line around.
    """
    raw = str(text)
    if raw.isprintable():
        return raw
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "backslashreplace").decode()
        for character in raw
    )


def show_duration(seconds: float) -> str:
    """A duration for people, in at most two units: `1h05m`, `12s`, `0.4s`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}s"
    whole = round(seconds)
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
