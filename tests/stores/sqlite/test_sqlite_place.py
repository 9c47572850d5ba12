"""Where a lock file may lie: whose directory it is, what is mounted there, and who was faster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from leasehold import BackendRejected
from leasehold._backends.sqlite import lock_file
from leasehold._backends.sqlite.options import Location

if TYPE_CHECKING:
    from pathlib import Path

MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:5 / /srv rw - nfs4 server:/srv rw
24 23 0:6 / /srv/local\\040disk rw - xfs /dev/sdb rw
25 22 0:7 /locks.db /data/locks.db rw - ext4 /dev/sdc rw
26 22 0:8 / /srv rw - tmpfs none rw
a line of another form
"""


def location(directory: Path) -> Location:
    return Location(str(directory / "locks.db"), private=True, label="the store")


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("/", True), ("/srv", True), ("/data/locks.db", True), ("/srv/local disk", True), ("/data", False), ("/x", False)],
)
def test_what_is_mounted_on_a_path(path: str, is_one: bool) -> None:
    assert lock_file.is_mount_point(path, MOUNTS) is is_one


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/home/me", "ext4"), ("/srv", "tmpfs"), ("/srv/deep", "tmpfs"), ("/srv/local disk/a", "xfs"), ("/srvs", "ext4")],
)
def test_the_innermost_and_latest_mount_says_what_a_directory_is_on(path: str, kind: str) -> None:
    assert lock_file._type_by_path(path, MOUNTS) == kind
    assert lock_file._type_by_path(path, "") is None


def test_mounts_that_cannot_be_read_are_no_mounts(tmp_path: Path) -> None:
    assert lock_file.mount_table(tmp_path / "none") == ""


@pytest.mark.parametrize(("mode", "is_accepted"), [(0o700, True), (0o755, True), (0o770, False), (0o702, False)])
def test_a_directory_for_local_locks_is_written_to_by_its_user_alone(
    tmp_path: Path, mode: int, is_accepted: bool
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(mode)
    if is_accepted:
        lock_file._make_private_directory(location(place))
    else:
        with pytest.raises(BackendRejected) as refused:
            lock_file._make_private_directory(location(place))
        assert refused.value.backend == "the store"


def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could replace the file, and so free every lock."""
    us = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: us + 1)
    (tmp_path / "place").mkdir(mode=0o700)
    with pytest.raises(BackendRejected):
        lock_file._make_private_directory(location(tmp_path / "place"))


def test_two_processes_that_create_the_file_at_once_both_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = location(tmp_path)

    def missing(_: object) -> os.stat_result:
        raise FileNotFoundError

    lock_file._create(place)
    monkeypatch.setattr(os, "lstat", missing)  # it came between the look and the creation
    lock_file._create(place)
    assert (tmp_path / "locks.db").stat().st_size == 0
