"""`RetryKey`: the caller's side of idempotency, one key that stays the same over all retries of one request."""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold._patterns.idempotency_http import HEADER, header_text, parse_key
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RetryKey"]


class RetryKey:
    """A key that is made once, before the first try of a request, and sent with every retry of it.

    Works with every HTTP client: `httpx.post(url, json=order, headers=key.headers())`. A new request needs a new key.
    """

    def __init__(self, value: str | None = None, *, header: str = HEADER, quoted: bool = False) -> None:
        self._value = str(uuid.uuid4()) if value is None else value
        self._header = header
        self._text = header_text(self._value, quoted=quoted)

    @classmethod
    def kept_in(cls, path: str | os.PathLike[str], *, header: str = HEADER, quoted: bool = False) -> RetryKey:
        """The key in this file, which is made with a new key if it is not there: it survives the end of the process.

        One file for each request; delete it, with `done`, when the request was answered. Of several processes that make
        the file at once, all get the same key.
        """
        place = Path(path)
        if not place.exists():
            _create(place, f"{uuid.uuid4()}\n")
        value = parse_key(place.read_text(encoding="utf-8", errors="replace").strip())
        if value is None:
            raise ConfigurationError(f"{place} does not hold an idempotency key; is it another file?")
        key = cls(value, header=header, quoted=quoted)
        key._place = place
        return key

    _place: Path | None = None

    @property
    def value(self) -> str:
        """The key itself."""
        return self._value

    def headers(self, others: Mapping[str, str] | None = None) -> dict[str, str]:
        """The headers of a request: `others`, and the key."""
        return {**(others or {}), self._header: self._text}

    def done(self) -> None:
        """Forget a key that was kept in a file: its request was answered. May be called twice."""
        if self._place is not None:
            self._place.unlink(missing_ok=True)

    def __str__(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"RetryKey({self._value!r})"


def _create(place: Path, text: str) -> None:
    """Make the file with its whole content, durably, or leave the one that another process made first."""
    handle, temporary = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, place)
        except FileExistsError:
            return
    finally:
        Path(temporary).unlink()
    _sync_folder(place.parent)


def _sync_folder(folder: Path) -> None:
    """A name that was not written to the disk is not there after a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
