"""What became of a call of a `once` job: it ran and has a value, or it was skipped. For both faces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from leasehold.errors import AlreadyRun, AlreadyRunning, Conflict, Paused

if TYPE_CHECKING:
    from leasehold.values import Skipped

__all__ = ["JobResult", "conflict_of"]

R = TypeVar("R")


class JobResult(Generic[R]):
    """Whether a `once` job ran, and what its function returned. True when it ran, also if that was None.

    `ran` says which; `value` is what the function returned, and raises if it did not run: `AlreadyRun`,
    `AlreadyRunning` or `Paused`, as on_conflict="raise" does. `skipped` is why it did not run; None when it ran.
    """

    __slots__ = ("_value", "skipped")

    def __init__(self, value: R | None = None, skipped: Skipped | None = None) -> None:
        self._value = value
        self.skipped: Skipped | None = skipped

    @property
    def ran(self) -> bool:
        """Whether the function was called, and returned."""
        return self.skipped is None

    @property
    def value(self) -> R:
        """What the function returned; raises why it was not called, if it was not."""
        if self.skipped is not None:
            raise conflict_of(self.skipped)
        return cast("R", self._value)

    def __bool__(self) -> bool:
        return self.ran

    def __repr__(self) -> str:
        return f"<JobResult {'ran' if self.skipped is None else f'skipped: {self.skipped}'}>"  # the value may be secret


def conflict_of(skipped: Skipped, backend: str | None = None) -> Conflict | Paused:
    """The error for a job that was not run."""
    if skipped.paused is not None:
        retry_after = skipped.paused.expires_in
        text = str(skipped)
        return Paused(text, name=skipped.name, backend=backend, retry_after=retry_after, pause=skipped.paused)
    error = AlreadyRunning if skipped.finished is None else AlreadyRun
    return error(str(skipped), name=skipped.name, backend=backend, skipped=skipped)
