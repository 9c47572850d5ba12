"""Where a lock file is, and whether that is a place where SQLite can keep a promise.

A file must have one name only. SQLite names its log after the path, so under a second name (a hard link, or the file
itself mounted into a container) it would have a second log, and a lock two owners.

Nothing here may open the file once it exists: closing any descriptor of a file drops all POSIX locks that this process
has on it, those of SQLite's own connections included. So it is looked at with `lstat` only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from typing import TYPE_CHECKING

from leasehold.errors import BackendRejected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leasehold._backends.sqlite.options import Location

__all__ = [
    "MOUNTS",
    "NETWORKED",
    "identity",
    "is_missing",
    "is_mount_point",
    "mount_points",
    "mount_table",
    "mount_type",
    "prepare",
]

MOUNTS = "/proc/self/mountinfo"
_OCTAL = re.compile(r"\\([0-7]{3})")  # how blanks in a path are written there

# File systems that other hosts write to, or that pass locks and shared memory on to a machine elsewhere.
NETWORKED = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fuse.ceph",
        "fuse.ceph-fuse",
        "fuse.davfs2",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.smbnetfs",
        "fuse.sshfs",
        "gfs",
        "gfs2",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "prl_fs",
        "pvfs2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
        "fuse.vmhgfs-fuse",
    }
)


def prepare(location: Location, mounts: str | Path = MOUNTS) -> tuple[int, int, int]:
    """Make sure that there is a file that can be used, with rights that are not too wide; returns its identity."""
    try:
        if location.private:
            _make_private_directory(location)
        text = mount_table(mounts)
        _refuse_network(location, text)
        _create(location)
        status = os.lstat(location.path)
    except OSError as error:
        raise _refused(location, error) from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
        raise _rejected(location, f"is {kind}; name the file itself, and find out who put that there")
    _refuse_second_name(location, status.st_nlink, text)
    return _identity(status)


def identity(location: Location) -> tuple[int, int, int] | None:
    """Which file is there now, and under how many names: one that was deleted and made anew is another one."""
    try:
        status = os.stat(location.path)  # noqa: PTH116 - on the path of every acquire
    except OSError:
        return None
    return _identity(status)


def is_missing(location: Location) -> bool:
    """Whether there is no file yet, in a place where one could be made: nothing is locked in it."""
    try:
        os.lstat(location.path)
    except FileNotFoundError:
        return location.private or os.path.isdir(location.directory)  # noqa: PTH112
    except OSError:
        return False  # opening it says what is wrong
    return False


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_nlink


def _refuse_second_name(location: Location, links: int, mounts: str) -> None:
    if links > 1:
        raise _rejected(
            location,
            f"has {links} hard links: under each of its names it would have locks of its own; delete the other names "
            "(find -samefile shows them)",
        )
    if is_mount_point(os.path.realpath(location.path), mounts):
        raise _rejected(
            location,
            "is a mount of its own: here it would have other locks than where it was mounted from; mount its "
            "directory instead",
        )


def _make_private_directory(location: Location) -> None:
    from pathlib import Path  # noqa: PLC0415 - only for local:, and it takes time to load

    directory = Path(location.directory)
    try:
        missing = [place for place in (directory, *directory.parents) if not place.exists()]
        for place in reversed(missing):
            _make_directory(place)
        status = directory.lstat()
    except OSError as error:
        raise _rejected(
            location,
            f"cannot be made ({error.strerror}: {error.filename}): local: needs a home directory that this user may "
            "write to; set XDG_STATE_HOME, or use sqlite:////path/to/locks.db",
        ) from error
    if not stat.S_ISDIR(status.st_mode):
        raise _rejected(location, "lies in a directory that is a link or a file; move that away")
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        raise _rejected(location, "lies in a directory that others can write to; chmod go-w it, and look who owns it")


def _make_directory(place: Path) -> None:
    """For this user alone, whatever the umask says: it could give too much, or too little."""
    with contextlib.suppress(FileExistsError):
        place.mkdir(mode=0o700)
        place.chmod(0o700)


def _create(location: Location) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        os.lstat(location.path)
    except FileNotFoundError:
        pass
    else:
        return
    try:
        descriptor = os.open(location.path, flags, 0o600 if location.private else 0o660)
    except FileExistsError:
        return  # another process was faster
    os.close(descriptor)


def _refuse_network(location: Location, mounts: str) -> None:
    kind = mount_type(location.directory, mounts)
    if kind in NETWORKED:
        raise _rejected(
            location,
            f"is on a {kind} mount: SQLite's locks do not work between hosts there; use a local disk, or a store "
            "with a server if several hosts must share the lock",
        )


def mount_table(mounts: str | Path) -> str:
    """The mounts that this process sees, as the kernel lists them; empty where it does not."""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123 - no pathlib: start-up cost
            return file.read()
    except OSError:
        return ""


def mount_type(directory: str, text: str) -> str | None:
    """The type of the file system that a directory is on; None where the kernel does not say."""
    device = os.stat(directory).st_dev  # noqa: PTH116
    by_device = re.search(rf"^\d+ \d+ {os.major(device)}:{os.minor(device)} .* - (\S+) ", text, re.MULTILINE)
    return by_device[1] if by_device else _type_by_path(os.path.realpath(directory), text)


def is_mount_point(path: str, text: str) -> bool:
    """Whether something is mounted on this very path."""
    return any(point == path for point, _ in mount_points(text))


def mount_points(text: str) -> Iterator[tuple[str, str]]:
    """Each mount point with the type of its file system, in the order of mounting."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) >= 5 and after:
            yield _OCTAL.sub(lambda escape: chr(int(escape[1], 8)), fields[4]), after.split(" ")[0]


def _type_by_path(directory: str, text: str) -> str | None:
    """For file systems whose files show another device number than their mount does."""
    best, found = -1, None
    for point, kind in mount_points(text):
        inside = directory == point or directory.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:  # the later of two mounts on one point hides the earlier
            best, found = len(point), kind
    return found


_ADVICE = {
    errno.ENOENT: "its directory does not exist; create it",
    errno.ENOTDIR: "a part of its path is not a directory",
    errno.EACCES: "this user may not create it or look at it; change the rights of the directory",
    errno.EPERM: "this user may not create it; change the rights of the directory",
    errno.EROFS: "its file system is read-only; use another one",
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "the disk quota is used up; make room",
    errno.ENAMETOOLONG: "its path is too long; use a shorter one",
    errno.ELOOP: "its path runs in circles of symbolic links",
}


def _refused(location: Location, error: OSError) -> BackendRejected:
    advice = _ADVICE.get(error.errno or 0, f"{error.strerror}; check its path and the rights of its directory")
    return _rejected(location, f"cannot be used: {advice}")


def _rejected(location: Location, what: str) -> BackendRejected:
    return BackendRejected(f"the lock file {location.path} {what}", backend=location.label)
