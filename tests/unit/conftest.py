"""What several of these tests start from."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def far_from_greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is 13 hours ahead in summer."""
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of this thread, which take no time."""
    pauses: list[float] = []
    this, real = threading.get_ident(), time.sleep

    def sleep(seconds: float) -> None:
        if threading.get_ident() == this:
            pauses.append(seconds)
        else:  # a worker of another test
            real(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    return pauses
