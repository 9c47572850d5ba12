"""Where a lock file may lie: whose directory it is, what is mounted there, and who was faster."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from leasehold import BackendRejected, ConfigurationError
from leasehold._backends.sqlite import lock_file
from leasehold._backends.sqlite.options import Location, locate
from leasehold.store_url import StoreURL

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


def test_a_file_that_is_a_mount_is_found_out_behind_a_link_to_its_directory(tmp_path: Path) -> None:
    real = tmp_path.resolve() / "real"
    real.mkdir()
    (real / "locks.db").touch()
    (tmp_path / "link").symlink_to(real)
    mounts = tmp_path / "mounts"
    mounts.write_text(f"25 22 0:7 /x {real / 'locks.db'} rw - ext4 /dev/sdc rw\n")
    for directory in (real, tmp_path / "link"):
        place = Location(str(directory / "locks.db"), private=False, label="the store")
        with pytest.raises(BackendRejected, match="mount of its own"):
            lock_file.prepare(place, mounts)
    mounts.write_text(f"25 22 0:7 /x {real} rw - nfs4 server:/x rw\n")
    for directory in (real, tmp_path / "link"):
        place = Location(str(directory / "locks.db"), private=False, label="the store")
        with pytest.raises(BackendRejected, match="on a nfs4 mount"):
            lock_file.prepare(place, mounts)


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


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOENT, "its directory does not exist; create it"),
        (errno.ENOTDIR, "a part of its path is not a directory"),
        (errno.EACCES, "this user may not create it or look at it; change the rights of the directory"),
        (errno.EPERM, "this user may not create it; change the rights of the directory"),
        (errno.EROFS, "its file system is read-only; use another one"),
        (errno.ENOSPC, "the disk is full; make room"),
        (errno.EDQUOT, "the disk quota is used up; make room"),
        (errno.ENAMETOOLONG, "its path is too long; use a shorter one"),
        (errno.ELOOP, "its path runs in circles of symbolic links"),
        (errno.EIO, "the system's words; check its path and the rights of its directory"),
    ],
)
def test_why_a_file_cannot_be_used_is_said_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, "the system's words")

    monkeypatch.setattr(lock_file, "_create", fail)
    with pytest.raises(BackendRejected) as refused:
        lock_file.prepare(Location(str(tmp_path / "locks.db"), private=False, label="the store"))
    assert str(refused.value) == f"the lock file {tmp_path}/locks.db cannot be used: {words}"
    assert refused.value.backend == "the store"


def test_a_file_is_known_by_its_device_its_number_and_its_links(tmp_path: Path) -> None:
    place = location(tmp_path)
    assert lock_file.identity(place) is None
    (tmp_path / "locks.db").touch()
    first = lock_file.identity(place)
    assert first == lock_file.identity(place)
    os.link(tmp_path / "locks.db", tmp_path / "second")
    assert lock_file.identity(place) not in (None, first)
    (tmp_path / "third").touch()
    (tmp_path / "third").rename(tmp_path / "locks.db")
    assert lock_file.identity(place) not in (None, first), "another file of the same name"


@pytest.mark.parametrize(
    ("there", "private", "is_missing"),
    [
        ("nothing", False, True),
        ("nothing", True, True),
        ("no directory", False, False),  # a mistake in the path: opening it says so
        ("no directory", True, True),  # it would be made
        ("a file for a directory", False, False),
        ("a file for a directory", True, False),
        ("file", False, False),
        ("link to nothing", False, False),
    ],
)
def test_a_file_is_missing_where_one_could_be_made(tmp_path: Path, there: str, private: bool, is_missing: bool) -> None:
    path = tmp_path / ("no" if "directory" in there else "") / "locks.db"
    if there == "file":
        path.touch()
    elif there == "a file for a directory":
        path.parent.touch()
    elif there == "link to nothing":
        path.symlink_to(tmp_path / "elsewhere")
    assert lock_file.is_missing(Location(str(path), private=private, label="")) is is_missing


def test_a_directory_for_local_locks_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "place").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BackendRejected, match="a link or a file"):
        lock_file._make_private_directory(location(tmp_path / "place"))


@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o660)])
def test_a_new_file_has_the_rights_that_its_url_means(tmp_path: Path, private: bool, mode: int) -> None:
    before, descriptors = os.umask(0), len(os.listdir("/proc/self/fd"))
    try:
        lock_file._create(Location(str(tmp_path / "locks.db"), private=private, label=""))
    finally:
        os.umask(before)
    assert (tmp_path / "locks.db").stat().st_mode & 0o777 == mode
    assert len(os.listdir("/proc/self/fd")) <= descriptors


# --- from the URL


@pytest.mark.parametrize(
    ("url", "path", "label", "private"),
    [
        ("sqlite:////var/lib/x.db", "/var/lib/x.db", "sqlite:////var/lib/x.db", False),
        ("sqlite:////var/../lib//x.db", "/lib/x.db", "sqlite:////var/../lib//x.db", False),
        ("local:", "/state/leasehold/locks.db", "local:", True),
    ],
)
def test_a_url_means_a_file_and_is_its_name_in_messages(
    monkeypatch: pytest.MonkeyPatch, url: str, path: str, label: str, private: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    found = locate(StoreURL.parse(url))
    assert (found.path, found.label, found.private) == (path, label, private)
    assert found.directory == path.rpartition("/")[0]


@pytest.mark.parametrize("url", ["sqlite://user@/x.db", "sqlite://:7/x.db", "local://user@", "sqlite://host/"])
def test_a_file_has_no_user_no_host_and_no_port(url: str) -> None:
    with pytest.raises(ConfigurationError):
        locate(StoreURL.parse(url))


def test_local_without_a_home_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(ConfigurationError, match="set XDG_STATE_HOME"):
        locate(StoreURL.parse("local:"))


@pytest.mark.parametrize(
    ("variable", "path"), [("C:/data", "C:/data/leasehold/locks.db"), ("", "/home/me/AppData/Local/leasehold/locks.db")]
)
def test_local_on_windows_is_in_the_local_application_data(
    monkeypatch: pytest.MonkeyPatch, variable: str, path: str
) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setattr("os.path.isabs", lambda path: path.startswith(("C:", "/")))
    monkeypatch.setenv("LOCALAPPDATA", variable)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert locate(StoreURL.parse("local:")).path == path
