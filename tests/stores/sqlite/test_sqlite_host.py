"""The clocks of the host, also inside a container that was given a time of its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from leasehold._backends.sqlite import host
from leasehold._backends.sqlite.host import ThisHost

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("offset", [-86_400, 0, 86_400])
def test_boot_clock_is_that_of_the_host_whatever_time_the_container_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    offsets = tmp_path / "timens_offsets"
    offsets.write_text(f"monotonic           5         0\nboottime   {offset}   500000000\n")
    monkeypatch.setattr(host, "TIME_NAMESPACE", offsets)
    moved = time.clock_gettime(time.CLOCK_BOOTTIME)  # what a process in that container reads
    assert ThisHost().now() == pytest.approx(moved - offset - 0.5, abs=60)
