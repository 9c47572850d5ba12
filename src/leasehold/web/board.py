"""What one dashboard consists of, for its pages and its actions."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from leasehold.web.jobs import JobBook

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leasehold.web.audit import Audit
    from leasehold.web.protection import Tokens
    from leasehold.web.source import Source

__all__ = ["Board"]


class Board:
    """The facts, the audit, and what was declared."""

    def __init__(
        self, source: Source, audit: Audit, tokens: Tokens, *, elections: Sequence[str], jobs: Sequence[str], title: str
    ) -> None:
        self.source: Source = source
        self.audit: Audit = audit
        self.tokens: Tokens = tokens
        self.elections: tuple[str, ...] = tuple(elections)
        self.job_names: tuple[str, ...] = tuple(jobs)
        self.jobs: JobBook = JobBook(source)
        self.title: str = title

    def chosen(self, patterns: Iterable[str], present: Iterable[str]) -> set[str]:
        """The names that patterns stand for: those without * or ? as they are, others as far as they were seen."""
        patterns = tuple(patterns)
        exact = {pattern for pattern in patterns if not {"*", "?", "["} & set(pattern)}
        globs = [pattern for pattern in patterns if pattern not in exact]
        if not globs:
            return exact
        names = {*present, *self.source.history.names()}
        return exact | {name for name in names if any(fnmatchcase(name, pattern) for pattern in globs)}
