"""Who changed what through the dashboard, when and why: a file that only grows, the log, and the last ones in memory.

Every order is written down twice, before it is carried out and with its outcome. An order that cannot be written down
is not carried out.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from collections import deque
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from leasehold._shown import printable
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Audit", "Entry"]

KEPT = 500
logger = logging.getLogger("leasehold.audit")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the audit; `outcome` is `ordered` before it is carried out."""

    time: str
    viewer: str
    address: str
    action: str
    target: str
    outcome: str
    reason: str = ""
    fence: int | None = None
    detail: str = ""


class Audit:
    """Writes entries down. The file is only appended to, and opened for each entry, so that it may be rotated."""

    def __init__(self, path: Path | None) -> None:
        self.path: Path | None = path
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        self._guard = threading.Lock()
        if path is not None:
            try:
                os.close(_open(path))
            except OSError as error:
                raise ConfigurationError(
                    f"the audit file {str(path)!r} cannot be opened: {error.strerror}; choose another, or check the "
                    "rights of its folder"
                ) from None

    def write(self, **facts: Any) -> None:
        """Write one entry down; OSError if the file cannot take it."""
        entry = Entry(time=datetime.now(UTC).isoformat(timespec="milliseconds"), **facts)
        with self._guard:
            if self.path is not None:
                _append(self.path, json.dumps(asdict(entry)).encode() + b"\n")
            self._entries.append(entry)
        logger.warning(
            "%s", printable(f"{entry.viewer} ({entry.address}): {entry.action} {entry.target!r}: {entry.outcome}")
        )

    def entries(self) -> Sequence[Entry]:
        """The last ones since this process began, newest first."""
        return tuple(reversed(tuple(self._entries)))


def _append(path: Path, line: bytes) -> None:
    """Append the whole line in one piece, beside other processes that do the same."""
    descriptor = _open(path)
    try:
        if os.write(descriptor, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
