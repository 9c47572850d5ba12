"""The doctor's look at a store that is a file: where it lies, how much room there is, who may write to it.

The file itself is only looked at, never opened: closing any descriptor of it would drop SQLite's own locks.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["examine_file", "file_of", "file_system_of"]

MEGABYTE = 1 << 20
LITTLE = 64 * MEGABYTE
MOUNTS = Path("/proc/self/mounts")
NETWORK = ("9p", "afs", "beegfs", "ceph", "cifs", "gfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "ocfs2", "smb",
           "sshfs", "vboxsf", "virtiofs", "vmhgfs")  # fmt: skip


def examine_file(store: str) -> Iterator[Finding]:
    """What can be seen from outside."""
    path = file_of(store)
    yield Finding("file", Level.OK, str(path), "everybody who shall share a lock must name this very file")
    folder = path.parent
    if not folder.is_dir():
        return  # the finding before this one said that it does not open, and why
    yield _file_system(file_system_of(folder))
    yield _room(folder)
    if path.exists():
        yield _one_name(path)
        yield _rights(path)


def file_of(store: str) -> Path:
    """The path behind the label of the store."""
    if store == "local:":
        base = os.environ.get("XDG_STATE_HOME", "")
        state = Path(base) if Path(base).is_absolute() else Path("~/.local/state").expanduser()
        return state / "leasehold" / "locks.db"
    return Path(store.removeprefix("sqlite:///"))


def file_system_of(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """The kind of file system a folder is on; None where the system does not say."""
    real, best, kind = folder.resolve(), -1, None
    for place, name in _mounts(mounts):
        if real.is_relative_to(place) and len(place.parts) >= best:
            best, kind = len(place.parts), name
    return kind


def _one_name(path: Path, mounts: Path = MOUNTS) -> Finding:
    why = "SQLite names its log after the path: under a second name the file has a second log, and a lock two owners"
    links = path.stat().st_nlink
    if links > 1:
        advice = "delete the other names; find -samefile shows them"
        return Finding("one name", Level.PROBLEM, f"the file has {links} hard links", why, advice)
    if path.resolve() in [point for point, _ in _mounts(mounts)]:
        advice = "mount the directory of the file, not the file"
        return Finding("one name", Level.PROBLEM, "the file is a mount of its own", why, advice)
    return Finding("one name", Level.OK, "no other link to it, and no mount of its own", why)


def _mounts(mounts: Path) -> list[tuple[Path, str]]:
    """Mount points and kinds of file systems; nothing where the system does not say."""
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    words = (line.split(" ") for line in lines)
    return [(Path(point.replace("\\040", " ")), kind) for _, point, kind, *_ in words]


def _file_system(kind: str | None) -> Finding:
    why = "SQLite's locks work between the processes of one host, on a disk of that host"
    if kind is None:
        return Finding("file system", Level.OK, "unknown here; make sure that it is a local disk", why)
    if any(word in kind for word in NETWORK):
        advice = "use a local disk, or a store with a server if several hosts must share the lock"
        return Finding("file system", Level.PROBLEM, f"{kind} is a network file system", why, advice)
    if kind == "overlay":
        advice = "put the file on a volume that all containers mount, or use a store with a server"
        return Finding("file system", Level.WARNING, "overlay: a container's own layer, unseen by others", why, advice)
    if kind in ("tmpfs", "ramfs"):
        advice = "fine for locks that end with the host; else use a disk"
        return Finding("file system", Level.WARNING, f"{kind}: empty after a restart of the host", why, advice)
    return Finding("file system", Level.OK, kind, why)


def _room(folder: Path) -> Finding:
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    why = "a renewal writes; on a full disk it fails, and every lease is lost at its deadline"
    found = f"{free // MEGABYTE} MB free"
    if free < MEGABYTE or (space.f_files and not space.f_favail):
        return Finding("room", Level.PROBLEM, f"{found}, {space.f_favail} files can be made", why, "make room")
    if free < LITTLE:
        return Finding("room", Level.WARNING, found, why, "make room before it runs out")
    return Finding("room", Level.OK, found, why)


def _rights(path: Path) -> Finding:
    why = "who may write the file may free any lock in it; who may not write the folder cannot lock (-wal, -shm)"
    status, folder = path.stat(), path.parent.stat()
    found = f"{stat.filemode(status.st_mode)} uid {status.st_uid} gid {status.st_gid}"
    if not os.access(path, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK | os.X_OK):
        advice = "give this user the right to write the file and its folder"
        return Finding("rights", Level.PROBLEM, f"{found}, which this user may not write", why, advice)
    if status.st_mode & stat.S_IWOTH:
        return Finding("rights", Level.WARNING, f"{found}: anybody may write", why, "chmod o-w it; share by a group")
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        return Finding("rights", Level.WARNING, f"{found}, in a folder where anybody may replace it", why,
                       "chmod o-w the folder")  # fmt: skip
    return Finding("rights", Level.OK, found, why)
