"""The logger `leasehold`, without `logging` for programs that do not use it: loading it takes as long as a short run.

While no one has imported `logging` there is no handler that could take a record, so none is made. From then on this is
the real logger.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from logging import Logger

__all__ = ["CRITICAL", "DEBUG", "ERROR", "INFO", "WARNING", "is_logged", "logger"]

DEBUG, INFO, WARNING, ERROR, CRITICAL = 10, 20, 30, 40, 50  # as in `logging`


class _LazyLogger:
    """Has every method of a logger; those that ask first load nothing."""

    def __init__(self) -> None:
        self._real: Logger | None = None

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name that loggers have
        """Whether a record of this level would be made."""
        real = self._real
        if real is None:
            if "logging" not in sys.modules:
                return False
            real = self._load()
        return real.isEnabledFor(level)

    def log(self, level: int, *facts: Any) -> None:
        """Make a record, if one is wanted."""
        if self.isEnabledFor(level):
            self._load().log(level, *facts)

    def _load(self) -> Logger:
        if self._real is None:
            import logging  # noqa: PLC0415 - see above

            real = logging.getLogger("leasehold")
            if not real.handlers:
                real.addHandler(logging.NullHandler())
            self._real = real
        return self._real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._load(), name)


logger: Any = _LazyLogger()
is_logged = logger.isEnabledFor
