"""One lock file under two names: SQLite names its log after the path, so each name would have locks of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import leasehold
from leasehold.errors import BackendRejected
from tests.processes.command_line import SOURCE

# Each line of the answer: granted, busy, or the error.
TRY = """
import sys, leasehold
for path in sys.argv[1:]:
    try:
        with leasehold.connect(f"sqlite:///{path}", ttl=60) as client:
            lease = client.lock("name").try_acquire()
            print("busy" if lease is None else "granted", flush=True)
            if lease is not None: lease.release()
    except leasehold.LeaseholdError as error:
        print(error, flush=True)
"""


def in_a_mount_namespace(script: str, *words: object) -> str:
    """Run a shell script where its mounts are its own; `$0` is Python, `$TRY` the program above."""
    root = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ["unshare", "--mount", *root, "sh", "-euc", script, sys.executable, *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TRY": TRY}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_file_with_a_second_hard_link_has_no_owner_under_either_name(tmp_path: Path) -> None:
    first, second = tmp_path / "a.db", tmp_path / "b.db"
    with leasehold.connect(f"sqlite:///{first}", ttl=30) as client, client.lock("name").hold():
        os.link(first, second)
        with leasehold.connect(f"sqlite:///{second}") as other, pytest.raises(BackendRejected, match="2 hard links"):
            other.lock("name").try_acquire()
        with leasehold.connect(f"sqlite:///{first}") as other, pytest.raises(BackendRejected, match="2 hard links"):
            other.lock("name").try_acquire()
        assert not (tmp_path / "b.db-wal").exists()
        second.unlink()
        with leasehold.connect(f"sqlite:///{first}") as other:
            assert other.lock("name").try_acquire() is None


def test_open_file_that_gets_a_second_link_is_refused_until_that_is_gone(tmp_path: Path) -> None:
    with leasehold.connect(f"sqlite:///{tmp_path}/a.db", ttl=30) as client:
        client.lock("name").acquire().release()
        os.link(tmp_path / "a.db", tmp_path / "b.db")
        end = time.monotonic() + 20
        with pytest.raises(BackendRejected, match="2 hard links"):
            while time.monotonic() < end:  # noticed within 10 ms of use
                client.inspect("name")
        (tmp_path / "b.db").unlink()
        client.lock("name").acquire(5).release()


def test_file_that_is_mounted_by_itself_is_refused_and_its_directory_may_be_mounted(tmp_path: Path) -> None:
    for name in ("host", "by file", "by directory"):
        (tmp_path / name).mkdir()
    (tmp_path / "by file" / "locks.db").touch()
    script = """
        mount --bind "$1/host/locks.db" "$1/by file/locks.db"
        mount --bind "$1/host" "$1/by directory"
        "$0" -c "$TRY" "$1/by file/locks.db" "$1/by directory/locks.db" "$1/host/locks.db"
    """
    with leasehold.connect(f"sqlite:///{tmp_path}/host/locks.db", ttl=60) as client, client.lock("name").hold():
        by_file, *others = in_a_mount_namespace(script, tmp_path).splitlines()
    assert "is a mount of its own" in by_file
    assert "mount its directory instead" in by_file
    assert others == ["busy", "busy"]
    assert not list((tmp_path / "by file").glob("*-wal"))


def test_file_mounted_over_one_that_is_in_use_is_noticed(tmp_path: Path) -> None:
    for name in ("host", "here"):
        (tmp_path / name).mkdir()
    script = """
        "$0" -c 'import sys, leasehold
with leasehold.connect(f"sqlite:///{sys.argv[1]}") as client:
    client.lock("name").acquire().release()
    print("first", flush=True)
    sys.stdin.readline()
    try:
        for _ in range(100000):
            client.lock("name").acquire(5).release()
    except leasehold.LeaseholdError as error:
        print(error)
' "$1/here/locks.db" < "$1/go" > "$1/said" &
        exec 3> "$1/go"
        until grep -q first "$1/said"; do sleep 0.02; done
        mount --bind "$1/host/locks.db" "$1/here/locks.db"
        echo go >&3
        wait $!
        cat "$1/said"
    """
    os.mkfifo(tmp_path / "go")
    with leasehold.connect(f"sqlite:///{tmp_path}/host/locks.db", ttl=60) as client, client.lock("name").hold():
        said = in_a_mount_namespace(script, tmp_path)
    assert "is a mount of its own" in said


def test_doctor_finds_a_file_with_two_names(tmp_path: Path) -> None:
    with leasehold.connect(f"sqlite:///{tmp_path}/host.db") as client:
        client.lock("name").acquire().release()
    (tmp_path / "mounted.db").touch()
    mount = 'mount --bind "$1/host.db" "$1/mounted.db"; "$0" -m leasehold doctor "sqlite:///$1/mounted.db" || :'
    said = in_a_mount_namespace(mount, tmp_path)
    assert "problem  one name:" in said
    assert "mount the directory" in said
    os.link(tmp_path / "host.db", tmp_path / "linked.db")
    said = in_a_mount_namespace('"$0" -m leasehold doctor "sqlite:///$1/host.db" || :', tmp_path)
    assert "problem  one name:" in said
    assert "2 hard links" in said
    (tmp_path / "linked.db").unlink()
    said = in_a_mount_namespace('"$0" -m leasehold doctor -v "sqlite:///$1/host.db"', tmp_path)
    assert "ok       one name:" in said
