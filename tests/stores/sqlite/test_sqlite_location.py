"""Which file a URL means, and which places are refused."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold._backends.sqlite.doctor import examine_file
from leasehold._backends.sqlite.lock_file import mount_type, prepare
from leasehold._backends.sqlite.options import Location, locate
from leasehold._urls import find_store
from leasehold.errors import BackendRejected, ConfigurationError
from leasehold.findings import Level
from leasehold.store_url import StoreURL

if TYPE_CHECKING:
    from pathlib import Path


def test_four_slashes_name_an_absolute_path_byte_for_byte() -> None:
    location = locate(StoreURL.parse("sqlite:////var/lib/My%20App/l%3Fcks.db?synchronous=full"))
    assert location.path == "/var/lib/My App/l?cks.db"
    assert not location.private


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("sqlite:///relative.db", "relative"),
        ("sqlite:relative.db", "relative"),
        ("sqlite://", "names no file"),
        ("sqlite:", "names no file"),
        ("sqlite://host/x.db", "takes no host name"),
        ("sqlite:////dir/", "does not name a file"),
        ("sqlite:////a%00b", "does not name a file"),
        ("local:name", "takes no path"),
        ("local://host", "takes no host name"),
        ("sqlite:////x.db?synchronous=extra", "synchronous must be one of"),
        ("sqlite:////x.db?timeout=3", "has no option 'timeout'"),
        ("sqlite:////x.db?fence_floor=-1", "fence_floor must be"),
    ],
)
def test_url_that_names_no_file_is_refused_with_the_right_form(url: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        find_store(url)


def test_local_is_in_the_state_directory_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere/state")
    assert locate(StoreURL.parse("local:")).path == "/somewhere/state/leasehold/locks.db"
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert locate(StoreURL.parse("local:")).path == "/home/somebody/.local/state/leasehold/locks.db"


def test_no_store_named_says_the_exact_words_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEASEHOLD_URL", raising=False)
    with pytest.raises(ConfigurationError) as caught:
        leasehold.connect()
    for words in ("local:", "sqlite:////path", "LEASEHOLD_URL"):
        assert words in str(caught.value)


def test_connect_does_no_io(tmp_path: Path) -> None:
    leasehold.connect(f"sqlite:///{tmp_path}/locks.db").lock("name")
    assert list(tmp_path.iterdir()) == []


def test_files_of_local_are_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before = os.umask(0)
    try:
        client = leasehold.connect("local:")
        lock = client.lock("name", ttl=5)
        with lock.hold():
            with pytest.raises(leasehold.AcquireTimeout):
                lock.acquire(timeout=0.05)  # makes the pipe for waking
            directory = tmp_path / "state" / "leasehold"
            for path in [directory, *directory.rglob("*")]:
                assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
            names = {path.name for path in directory.iterdir()}
            assert names == {"locks.db", "locks.db-wal", "locks.db-shm", "locks.db-wake"}
        client.close()
    finally:
        os.umask(before)


def test_shared_file_is_never_for_the_whole_world(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        prepare(Location(str(tmp_path / "l.db"), private=False, label=""))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "l.db").stat().st_mode) == 0o660


def test_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "locks.db").symlink_to(tmp_path / "target")
    with pytest.raises(BackendRejected, match="symbolic link"):
        leasehold.connect(f"sqlite:///{tmp_path}/locks.db").lock("name").try_acquire()
    assert (tmp_path / "target").read_bytes() == b""


def test_dangling_symbolic_link_does_not_make_a_file_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "locks.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BackendRejected, match="symbolic link"):
        leasehold.connect(f"sqlite:///{tmp_path}/locks.db").lock("name").try_acquire()
    assert not (tmp_path / "elsewhere").exists()


def test_private_directory_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "leasehold").mkdir()
    (tmp_path / "leasehold").chmod(0o777)
    with pytest.raises(BackendRejected, match="others can write"):
        leasehold.connect("local:").lock("name").try_acquire()


def test_missing_directory_and_directory_as_file_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(BackendRejected, match="directory does not exist"):
        leasehold.connect(f"sqlite:///{tmp_path}/no/locks.db").lock("name").try_acquire()
    (tmp_path / "locks.db").mkdir()
    with pytest.raises(BackendRejected, match="not a regular file"):
        leasehold.connect(f"sqlite:///{tmp_path}/locks.db").lock("name").try_acquire()


def test_network_mount_is_found_by_its_device(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 9999:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        f"30 22 {os.major(device)}:{os.minor(device)} / /elsewhere rw shared:2 master:1 - nfs4 server:/export rw\n"
    )
    with pytest.raises(BackendRejected, match="on a nfs4 mount"):
        prepare(Location(str(tmp_path / "locks.db"), private=False, label=""), mounts)


MOUNTS = """\
22 1 9999:1 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / {parent} rw - {outer} server:/export rw
31 30 0:27 / {parent}/with\\040blank rw - {inner} other rw,addr=1
"""


@pytest.mark.parametrize(
    ("outer", "inner", "place", "refused"),
    [
        ("nfs4", "ext4", "direct", "nfs4"),
        ("nfs4", "ext4", "with blank", None),
        ("ext4", "fuse.sshfs", "with blank", "fuse.sshfs"),
        ("ext4", "cifs", "direct", None),
    ],
)
def test_network_mount_is_refused_by_its_type(
    tmp_path: Path, outer: str, inner: str, place: str, refused: str | None
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(parent=tmp_path, outer=outer, inner=inner))
    (tmp_path / place).mkdir()
    location = Location(str(tmp_path / place / "locks.db"), private=False, label="")
    if refused is None:
        prepare(location, mounts)
        assert (tmp_path / place / "locks.db").exists()
    else:
        with pytest.raises(BackendRejected, match=f"on a {refused} mount"):
            prepare(location, mounts)
        assert not (tmp_path / place / "locks.db").exists()


def test_later_mount_on_the_same_point_hides_the_earlier(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    line = f"30 22 0:26 / {tmp_path} rw - {{}} x rw\n"
    mounts.write_text(line.format("ext4") + line.format("nfs"))
    with pytest.raises(BackendRejected, match="nfs mount"):
        prepare(Location(str(tmp_path / "locks.db"), private=False, label=""), mounts)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_directories_of_local_are_private_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    before = os.umask(umask)
    try:
        prepare(locate(StoreURL.parse("local:")))
    finally:
        os.umask(before)
    for place in (".local", ".local/state", ".local/state/leasehold"):
        assert stat.S_IMODE((tmp_path / place).stat().st_mode) == 0o700, place


def test_directories_that_were_there_keep_their_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o755)
    prepare(locate(StoreURL.parse("local:")))
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o755


@pytest.mark.parametrize("rights", [0o770, 0o707, 0o777, 0o720])
def test_directory_of_local_that_a_group_or_the_world_may_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rights: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "leasehold").mkdir()
    (tmp_path / "leasehold").chmod(rights)
    with pytest.raises(BackendRejected, match="others can write to"):
        prepare(locate(StoreURL.parse("local:")))
    assert not (tmp_path / "leasehold" / "locks.db").exists()


def test_local_without_a_usable_home_says_which_url_to_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file" / "state"))
    with pytest.raises(BackendRejected, match=r"XDG_STATE_HOME.*sqlite:////"):
        prepare(locate(StoreURL.parse("local:")))


def test_looking_at_a_file_that_does_not_exist_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for url in (f"sqlite:///{tmp_path}/typo.db", "local:"):
        with leasehold.connect(url) as client:
            assert client.inspect("name") is None
            assert list(client.locks("")) == []
            assert list(tmp_path.iterdir()) == []
    with leasehold.connect(f"sqlite:///{tmp_path}/no/typo.db") as client:
        with pytest.raises(BackendRejected, match="directory does not exist"):
            client.locks("")


def test_file_that_vanished_under_an_open_client_is_not_made_by_looking(tmp_path: Path) -> None:
    with leasehold.connect(f"sqlite:///{tmp_path}/locks.db") as client:
        lease = client.lock("name").acquire()
        assert client.inspect("name") is not None
        for path in tmp_path.glob("locks.db*"):
            path.unlink() if path.is_file() else path.rmdir()
        while client.inspect("name") is not None:  # noticed within 10 ms of use
            pass
        assert not (tmp_path / "locks.db").exists()
        lease.release()


def test_the_file_system_is_that_of_the_innermost_mount(tmp_path: Path) -> None:
    table = MOUNTS.format(parent=tmp_path, outer="ext4", inner="nfs4")
    for place, kind in (("direct", "ext4"), ("with blank", "nfs4")):
        (tmp_path / place).mkdir()
        assert mount_type(str(tmp_path / place), table) == kind
    assert mount_type(str(tmp_path), "") is None


def test_the_file_behind_a_url_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert locate(StoreURL.parse("local:")).path == str(tmp_path / "leasehold" / "locks.db")
    assert locate(StoreURL.parse("sqlite:////var/lib/x.db")).path == "/var/lib/x.db"


def test_the_doctor_of_a_file_finds_its_journal_its_rights_and_a_network_mount(tmp_path: Path) -> None:
    path = tmp_path / "locks.db"
    with leasehold.connect(f"sqlite:///{path}") as client:
        assert [finding.check for finding in client.examine()] == ["file", "file system", "room"]
        assert not path.exists()
        client.lock("name").acquire().release()
        findings = {finding.check: finding for finding in client.examine()}
        assert findings["journal"].found == "wal, synchronous=normal"
        assert findings["rights"].level is Level.OK
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(parent=tmp_path, outer="nfs4", inner="ext4"))
    found = {finding.check: finding for finding in examine_file(Location(str(path), private=False, label=""), mounts)}
    assert found["file system"].level is Level.PROBLEM
