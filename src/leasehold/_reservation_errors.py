"""Errors of `leasehold.sql.Stock`; see `errors`, where all of them are."""

from __future__ import annotations

from leasehold._error_roots import Conflict

__all__ = ["OutOfStock", "ReservationExpired", "ReservationRefused"]


class OutOfStock(Conflict):
    """Less is available than a reservation wants, and nothing was taken; `item`, `wanted`, `available`."""

    def __init__(
        self,
        message: str,
        *,
        name: str | None = None,
        backend: str | None = None,
        item: str | int | None = None,
        wanted: int = 0,
        available: int = 0,
    ) -> None:
        super().__init__(message, name=name, backend=backend)
        self.item = item
        self.wanted = wanted
        self.available = available


class ReservationRefused(Conflict):
    """There is no such reservation, or it is over: `key`, and its `state`, which is None if there is none."""

    def __init__(
        self,
        message: str,
        *,
        name: str | None = None,
        backend: str | None = None,
        key: str | None = None,
        state: str | None = None,
    ) -> None:
        super().__init__(message, name=name, backend=backend)
        self.key = key
        self.state = state


class ReservationExpired(ReservationRefused):
    """The time of a reservation is over, and what it held was given back."""
