"""Findings about a lock file: where it lies, how much room there is, who may write to it, how SQLite keeps it.

All but the last are found from outside, also for a file that does not open. The file itself is never opened for them:
closing any descriptor of it would drop SQLite's own locks.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold._backends.sqlite.lock_file import MOUNTS, NETWORKED, is_mount_point, mount_table, mount_type
from leasehold.findings import Finding, Level

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from leasehold._backends.sqlite.options import Location

__all__ = ["examine_file", "examine_journal"]

MEGABYTE = 1 << 20
LITTLE = 64 * MEGABYTE
SYNCHRONOUS = {0: "off", 1: "normal", 2: "full", 3: "extra"}


def examine_file(location: Location, mounts: str | Path = MOUNTS) -> Iterator[Finding]:
    """What can be seen from outside."""
    path = Path(location.path)
    yield Finding("file", Level.OK, str(path), "all processes that share locks must name this very file")
    folder, table = path.parent, mount_table(mounts)
    if not folder.is_dir():
        return  # that it does not open, and why, is a finding of every doctor
    yield _file_system(mount_type(str(folder), table))
    yield _room(folder)
    if path.exists():
        yield _one_name(path, table)
        yield _rights(path)


def examine_journal(connection: sqlite3.Connection) -> Finding:
    """How SQLite keeps the file, read over an open connection."""
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    found = f"{mode}, synchronous={SYNCHRONOUS.get(synchronous, synchronous)}"
    why = "readers do not wait for writers; without full, a power cut may forget the last grants, never the file"
    if mode != "wal":
        return Finding(
            "journal", Level.PROBLEM, found, why, "end the program that changed the journal mode of the file"
        )
    return Finding("journal", Level.OK, found, why)


def _one_name(path: Path, mounts: str) -> Finding:
    why = "SQLite names its log after the path: under a second name the file has a second log, and a lock two owners"
    links = path.stat().st_nlink
    if links > 1:
        advice = "delete the other names; find -samefile shows them"
        return Finding("one name", Level.PROBLEM, f"the file has {links} hard links", why, advice)
    if is_mount_point(str(path.resolve()), mounts):
        advice = "mount the directory of the file, not the file"
        return Finding("one name", Level.PROBLEM, "the file is a mount of its own", why, advice)
    return Finding("one name", Level.OK, "no other link to it, and no mount of its own", why)


def _file_system(kind: str | None) -> Finding:
    why = "SQLite's locks work between the processes of one host, on a disk of that host"
    if kind is None:
        return Finding("file system", Level.OK, "unknown here; make sure that it is a local disk", why)
    if kind in NETWORKED:
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
