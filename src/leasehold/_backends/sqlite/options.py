"""What a URL of this store may say: `local:` is the file of this user, `sqlite:////path` one that others may share."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from leasehold._record import record
from leasehold.errors import ConfigurationError
from leasehold.kit.options import FENCE_FLOOR, choice

if TYPE_CHECKING:
    from leasehold.store_url import StoreURL

__all__ = ["FENCE_FLOOR", "OPTIONS", "RENAMED", "SYNCHRONOUS", "Location", "locate"]

SYNCHRONOUS = choice(
    "synchronous", ("normal", "off", "full"), "SQLite's own: what survives when the host loses its power"
)
OPTIONS = (FENCE_FLOOR, SYNCHRONOUS)
RENAMED: dict[str, str] = {}

_EXAMPLES = "write local: for a file of this user, or sqlite:////var/lib/app/locks.db (four slashes)"


@record(frozen=True, slots=True)
class Location:
    """A lock file that may not exist yet."""

    path: str
    private: bool  # of one user: no one else may even read it
    label: str

    @property
    def directory(self) -> str:
        """Where the file is."""
        return os.path.dirname(self.path)  # noqa: PTH120 - text, as it was given


def locate(url: StoreURL) -> Location:
    """Read where the file is; no I/O."""
    if url.host or url.port or url.username:
        raise ConfigurationError(f"{url.scheme}: is a file on this host and takes no host name; {_EXAMPLES}")
    if url.scheme == "local":
        if url.path:
            raise ConfigurationError(f"local: takes no path; {_EXAMPLES}")
        return Location(_state_file(), private=True, label="local:")
    path = url.path.removeprefix("/")
    if not path:
        raise ConfigurationError(f"the URL names no file; {_EXAMPLES}, or memory://NAME inside one process")
    if not os.path.isabs(path):  # noqa: PTH117
        raise ConfigurationError(
            "the path of the lock file is relative, so that each working directory would have locks of its own; "
            f"{_EXAMPLES}"
        )
    if "\0" in path or path.endswith("/"):
        raise ConfigurationError(f"the URL does not name a file; {_EXAMPLES}")
    return Location(os.path.normpath(path), private=False, label=f"sqlite:///{path}")


def _state_file() -> str:
    """The file of this user on this host."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/AppData/Local")  # noqa: PTH111
    else:
        base = os.environ.get("XDG_STATE_HOME", "")
        if not os.path.isabs(base):  # noqa: PTH117 - the specification says that others must be ignored
            base = os.path.expanduser("~/.local/state")  # noqa: PTH111 - no pathlib: start-up cost
    if not os.path.isabs(base):  # noqa: PTH117
        raise ConfigurationError("local: needs a home directory, and there is none; set XDG_STATE_HOME or give a path")
    return os.path.join(base, "leasehold", "locks.db")  # noqa: PTH118
