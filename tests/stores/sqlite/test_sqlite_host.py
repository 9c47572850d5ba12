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


def test_a_boot_has_the_name_that_the_system_gives_it_and_none_where_it_gives_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "boot_id").write_text("3c9f-11\n")
    monkeypatch.setattr(host, "BOOT_ID", tmp_path / "boot_id")
    assert ThisHost().boot == "3c9f-11"
    monkeypatch.setattr(host, "BOOT_ID", tmp_path / "missing")
    assert ThisHost().boot == ""


def test_the_clocks_are_those_of_the_boot_and_of_the_wall() -> None:
    here = ThisHost()
    for read, clock in ((here.now, time.CLOCK_BOOTTIME), (here.wall, time.CLOCK_REALTIME)):
        before = time.clock_gettime(clock)
        assert before <= read() <= time.clock_gettime(clock)


def test_where_there_is_no_boot_clock_the_monotonic_one_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    for platform in ("darwin", "freebsd"):
        monkeypatch.setattr("sys.platform", platform)
        before = time.monotonic()
        assert before <= ThisHost().now() <= time.monotonic()
