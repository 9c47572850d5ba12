"""What a page of the manual has."""

from __future__ import annotations

__all__ = ["Page"]


class Page:
    """The manual page of one verb."""

    def __init__(self, summary: str, usage: str, description: str, epilog: str) -> None:
        self.summary = summary
        self.usage = usage
        self.description: str = description.strip()
        self.epilog: str = epilog.strip()
