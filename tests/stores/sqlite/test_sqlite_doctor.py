"""What the doctor of a lock file makes of each fact: the disk, its room, the rights, the journal."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from leasehold._backends.sqlite import doctor
from leasehold._backends.sqlite.options import Location
from leasehold.findings import Level

if TYPE_CHECKING:
    from pathlib import Path

    from leasehold.findings import Finding

OK, WARNING, PROBLEM = Level.OK, Level.WARNING, Level.PROBLEM
MEGABYTE = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    file = folder / "locks.db"
    file.touch()
    file.chmod(0o660)
    return file


def is_sound(finding: Finding) -> bool:
    """Whether it says why it matters, and what to do where something is wrong."""
    return bool(finding.why) and bool(finding.advice) is (finding.level is not OK)


@pytest.mark.parametrize(
    ("kind", "level", "words"),
    [
        ("ext4", OK, "ext4"),
        ("nfs4", PROBLEM, "nfs4 is a network file system"),
        ("9p", PROBLEM, "9p is a network file system"),
        ("virtiofs", PROBLEM, "virtiofs is a network file system"),
        ("overlay", WARNING, "a container's own layer"),
        ("tmpfs", WARNING, "tmpfs: empty after a restart"),
        ("ramfs", WARNING, "ramfs: empty after a restart"),
    ],
)
def test_the_file_system_is_judged_by_its_type(kind: str, level: Level, words: str) -> None:
    finding = doctor._file_system(kind)
    assert (finding.check, finding.level) == ("file system", level)
    assert words in finding.found
    assert is_sound(finding)


def test_a_file_system_of_unknown_type_is_no_problem_and_is_said_to_be_unknown() -> None:
    finding = doctor._file_system(None)
    assert finding.level is OK
    assert "unknown here" in finding.found


@pytest.mark.parametrize(
    ("free", "files", "may_be_made", "level"),
    [
        (MEGABYTE - 1, 100, 50, PROBLEM),
        (MEGABYTE, 100, 50, WARNING),
        (64 * MEGABYTE - 1, 100, 50, WARNING),
        (64 * MEGABYTE, 100, 50, OK),
        (64 * MEGABYTE, 100, 0, PROBLEM),
        (64 * MEGABYTE, 0, 0, OK),  # a file system that does not count its files
    ],
)
def test_the_room_on_the_disk_is_judged_by_bytes_and_by_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, files: int, may_be_made: int, level: Level
) -> None:
    space = SimpleNamespace(
        f_bavail=free // 512, f_bfree=10**9, f_frsize=512, f_bsize=4096, f_files=files, f_ffree=99, f_favail=may_be_made
    )
    if free % 512:
        space.f_bavail, space.f_frsize = free, 1
    monkeypatch.setattr(os, "statvfs", lambda _: space)
    finding = doctor._room(tmp_path)
    assert (finding.check, finding.level) == ("room", level)
    assert f"{free // MEGABYTE} MB free" in finding.found
    assert is_sound(finding)


@pytest.mark.parametrize(
    ("mode", "folder", "level", "words"),
    [
        (0o660, 0o755, OK, "-rw-rw----"),
        (0o662, 0o755, WARNING, "anybody may write"),
        (0o660, 0o777, WARNING, "in a folder where anybody may replace it"),
        (0o660, 0o1777, OK, "-rw-rw----"),
    ],
)
def test_rights_that_let_anybody_free_a_lock_are_a_warning(
    path: Path, mode: int, folder: int, level: Level, words: str
) -> None:
    path.chmod(mode)
    path.parent.chmod(folder)
    finding = doctor._rights(path)
    assert (finding.check, finding.level) == ("rights", level)
    assert words in finding.found
    assert f"uid {os.getuid()} gid {path.stat().st_gid}" in finding.found
    assert is_sound(finding)


@pytest.mark.parametrize("denied", ["file", "folder"])
def test_a_file_or_folder_that_this_user_may_not_write_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, path: Path, denied: str
) -> None:
    subject = path if denied == "file" else path.parent
    monkeypatch.setattr(os, "access", lambda place, mode: not (place == subject and mode & os.W_OK))
    finding = doctor._rights(path)
    assert finding.level is PROBLEM
    assert "which this user may not write" in finding.found
    assert is_sound(finding)


@pytest.mark.parametrize(
    ("subject", "right", "level"),
    [
        ("file", os.R_OK, PROBLEM),
        ("file", os.W_OK, PROBLEM),
        ("file", os.X_OK, OK),
        ("folder", os.R_OK, OK),
        ("folder", os.W_OK, PROBLEM),
        ("folder", os.X_OK, PROBLEM),
    ],
)
def test_each_right_that_locking_needs_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, path: Path, subject: str, right: int, level: Level
) -> None:
    path.chmod(0o600)
    denied = path if subject == "file" else path.parent
    monkeypatch.setattr(os, "access", lambda place, mode: not (place == denied and mode & right))
    assert doctor._rights(path).level is level


@pytest.mark.parametrize(("mode", "level"), [("wal", OK), ("delete", PROBLEM)])
@pytest.mark.parametrize(("number", "word"), [(0, "off"), (1, "normal"), (2, "full"), (3, "extra")])
def test_the_journal_is_described_and_another_mode_is_a_problem(
    tmp_path: Path, mode: str, level: Level, number: int, word: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute(f"PRAGMA journal_mode={mode}")
        connection.execute(f"PRAGMA synchronous={number}")
        finding = doctor.examine_journal(connection)
    assert (finding.check, finding.level, finding.found) == ("journal", level, f"{mode}, synchronous={word}")
    assert is_sound(finding)


@pytest.mark.parametrize("links", [1, 2, 3])
def test_a_file_with_a_second_name_is_a_problem(path: Path, links: int) -> None:
    for number in range(1, links):
        os.link(path, path.with_name(f"other{number}.db"))
    finding = doctor._one_name(path, "")
    assert finding.level is (OK if links == 1 else PROBLEM)
    assert (f"{links} hard links" in finding.found) is (links > 1)
    assert is_sound(finding)


def test_a_file_that_is_a_mount_of_its_own_is_a_problem(path: Path) -> None:
    table = f"25 22 0:7 /locks.db {path.resolve()} rw - ext4 /dev/sdc rw\n"
    finding = doctor._one_name(path, table)
    assert (finding.level, finding.found) == (PROBLEM, "the file is a mount of its own")
    assert is_sound(finding)


def test_what_is_looked_at_depends_on_what_there_is(path: Path, tmp_path: Path) -> None:
    def checks(place: Path) -> list[str]:
        found = list(doctor.examine_file(Location(str(place), private=False, label=""), tmp_path / "no table"))
        assert found[0].found == str(place)
        return [finding.check for finding in found]

    assert checks(path) == ["file", "file system", "room", "one name", "rights"]
    assert checks(path.with_name("missing.db")) == ["file", "file system", "room"]
    assert checks(tmp_path / "nowhere" / "locks.db") == ["file"]
