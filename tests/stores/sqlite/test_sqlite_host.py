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


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("monotonic           5         0\nboottime   10   500000000\n", 10.5),
        ("boottime  -10   250000000\nmonotonic  1  0\n", -9.75),
        ("boottime 0 0\n", 0.0),
        ("boottime 0 1\n", 1e-9),
        ("monotonic 5 0\n", 0.0),
        ("boottime 5\n", 0.0),
        ("", 0.0),
    ],
)
def test_the_offset_of_a_container_is_read_to_the_nanosecond(tmp_path: Path, text: str, offset: float) -> None:
    path = tmp_path / "timens_offsets"
    path.write_text(text)
    assert host._namespace_offset(str(path)) == pytest.approx(offset, abs=1e-12)
    assert host._namespace_offset(str(tmp_path / "missing")) == 0.0
