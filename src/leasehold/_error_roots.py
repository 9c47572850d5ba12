"""What errors of more than one module descend from; see `errors`, where all of them are."""

from __future__ import annotations

__all__ = ["Conflict", "LeaseholdError"]


class LeaseholdError(Exception):
    """The root of all errors of this library; `name` is the lock, `backend` the store, where they are known."""

    def __init__(self, message: str, *, name: str | None = None, backend: str | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.backend = backend


class Conflict(LeaseholdError):
    """Another holder was first, or wants something that does not go together with this."""
