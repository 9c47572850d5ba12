"""Every way in which the file can fail is a clear error of our own, with the right answer to "was it applied?"."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold._backends.sqlite.rows import SqliteRows
from leasehold._backends.sqlite.schema import APPLICATION_ID
from leasehold.errors import BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown
from tests.stores.sqlite.sqlite_support import Verbs, claim, granted, refused

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@pytest.fixture
def store(path: Path) -> Iterator[Verbs]:
    verbs = Verbs(path)
    granted(verbs.try_acquire(claim("ns:present")))
    yield verbs
    verbs.close()


def test_file_locked_by_a_foreign_transaction_is_unavailable_and_works_afterwards(store: Verbs, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendUnavailable, match="locked by another connection"):
            store.try_acquire(claim())
        other.execute("ROLLBACK")
    granted(store.try_acquire(claim()))


def test_short_foreign_transaction_is_waited_for(store: Verbs, path: Path) -> None:
    script = (
        "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute('BEGIN IMMEDIATE'); print('begun', flush=True); time.sleep(0.3); c.execute('COMMIT')"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "begun\n"
        granted(store.try_acquire(claim()))


def test_full_disk_is_rejected_and_changes_nothing(store: Verbs) -> None:
    connection = store.backend._file._connection
    assert connection is not None
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(BackendRejected, match="disk is full"):
        for number in range(1_000):
            store.try_acquire(claim(f"ns:{number}"))
    connection.execute("PRAGMA max_page_count=1000000")
    granted(store.try_acquire(claim("ns:after")))


def test_disk_error_while_committing_leaves_the_outcome_open(path: Path) -> None:
    script = """
import resource, signal, sys
from tests.stores.sqlite.sqlite_support import Verbs, claim, granted
from leasehold.errors import OutcomeUnknown
from pathlib import Path
store, other = Verbs(Path(sys.argv[1])), Verbs(Path(sys.argv[1]))
grant = granted(store.try_acquire(claim()))
other.inspect()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = Path(sys.argv[1] + "-wal").stat().st_size
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
for call in (lambda: store.try_acquire(claim("ns:other")), lambda: other.withdraw(claim("ns:more"))):
    try:
        call()
    except OutcomeUnknown as error:
        print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print(store.release(grant))
store.close()
other.close()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", ".", *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True, env=environment
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all("failed during the commit" in line for line in lines[:2])
    assert lines[2] == "True"
    assert issubclass(OutcomeUnknown, leasehold.BackendError)


def test_file_that_is_not_sqlite_is_rejected_and_left_alone(path: Path) -> None:
    content = b"dear diary, " * 1000
    path.write_bytes(content)
    with pytest.raises(BackendRejected, match="is not a SQLite file"):
        Verbs(path).try_acquire(claim())
    assert path.read_bytes() == content


def test_damaged_file_is_rejected_with_what_to_do(path: Path) -> None:
    store = Verbs(path)
    granted(store.try_acquire(claim()))
    store.close()
    content = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'lock'").fetchone()
    content[(page - 1) * 1024 : page * 1024] = b"\xff" * 1024
    path.write_bytes(content)
    damaged = Verbs(path)
    with pytest.raises(BackendRejected, match="is damaged"):
        damaged.try_acquire(claim())
    damaged.close()


def test_database_of_another_program_is_rejected_and_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (name)")
    content = path.read_bytes()
    with pytest.raises(BackendRejected, match="of another program"):
        Verbs(path).try_acquire(claim())
    assert path.read_bytes() == content


@pytest.mark.parametrize(("version", "sentence"), [(2, "newer leasehold"), (0, "older leasehold")])
def test_tables_of_another_version_are_rejected(path: Path, version: int, sentence: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={version}")
        connection.execute("CREATE TABLE lock (other)")
    with pytest.raises(BackendRejected, match=sentence):
        Verbs(path).try_acquire(claim())


def test_missing_table_is_rejected(store: Verbs, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE lock")
        connection.commit()
    with pytest.raises(BackendRejected, match="does not have the tables"):
        store.try_acquire(claim())


def test_file_of_another_user_is_rejected_with_the_reason() -> None:
    """Run without rights: as nobody if we are root, else as ourselves on a file made read-only."""
    script = """
import os, sys
from pathlib import Path
from tests.stores.sqlite.sqlite_support import Verbs, claim
from leasehold.errors import BackendRejected
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
for name in sys.argv[1:]:
    try:
        Verbs(Path(name)).try_acquire(claim())
    except BackendRejected as error:
        print(error)
"""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        store = Verbs(directory / "locks.db")
        granted(store.try_acquire(claim()))
        store.close()
        (directory / "locks.db").chmod(0o444)
        (directory / "secret.db").touch(mode=0o000)
        directory.chmod(0o555)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", ".", *sys.path])}
        names = [str(directory / name) for name in ("locks.db", "secret.db", "new.db")]
        command = [sys.executable, "-c", script, *names]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        directory.chmod(0o755)
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    assert "right" in lines[0]
    assert "cannot be opened" in lines[1]
    assert "may not create it" in lines[2]
    assert done.stderr == ""  # nothing of a connection that was never opened


def test_closed_backend_says_so(path: Path) -> None:
    store = Verbs(path)
    granted(store.try_acquire(claim()))
    store.close()
    store.close()
    with pytest.raises(ClientClosed):
        store.try_acquire(claim())


def test_interrupted_transaction_leaves_nothing_behind(store: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = claim(ttl=5)

    def interrupt(self: SqliteRows, *_: object) -> list[object]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SqliteRows, "settle", interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.withdraw(wanted)
    granted(store.try_acquire(wanted))
    refused(store.try_acquire(claim()))


def test_no_error_contains_an_owner(store: Verbs, path: Path) -> None:
    wanted = claim()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendUnavailable) as caught:
            store.try_acquire(wanted)
    assert wanted.owner not in repr(caught.value) + str(caught.value.__cause__)
