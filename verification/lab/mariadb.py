"""A MariaDB server of our own, as Debian packs it, with replicas that can lag. It knows nothing about locks.

Durability is switched off (`innodb_flush_log_at_trx_commit=0`): these servers survive no power cut, but they do survive
`kill`, for what was written is in the system's cache by then or in the log that is read at the next start.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pymysql

from verification.lab.postgres import run_as
from verification.lab.process import ServerProcess, find_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from verification.lab.certificates import Certificates

__all__ = ["ACCOUNT", "MariadbServer", "mariadb_url"]

ACCOUNT = "mysql"  # the server refuses to run as root; where we are root, it runs as this account
SETTINGS = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "1",
    "innodb-buffer-pool-size": "16M",
    "innodb-log-file-size": "8M",
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-fast-shutdown": "2",
    "innodb-use-native-aio": "0",
    "innodb-doublewrite": "0",
    "sync-binlog": "0",
    "aria-pagecache-buffer-size": "1M",
    "key-buffer-size": "1M",
    "performance-schema": "0",
    "max-connections": "600",
    "table-open-cache": "400",
}
REPLICATED = {  # what a primary or a replica has besides: all that it writes is in its log, also what it was sent
    "log-bin": "binlog",
    "log-slave-updates": "1",
    "binlog-format": "MIXED",
    "gtid-strict-mode": "1",
}


def mariadb_url(port: int, database: str, user: str = "root", password: str = "") -> str:
    """The url of a database behind a port of ours."""
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    return f"mariadb://{login}@127.0.0.1:{port}/{quote(database, safe='')}"


_TEMPLATE: list[Path] = []


def _new_data(target: Path) -> None:
    """Make a data folder: the first by the program that is there for it, the later ones by copying what that made."""
    account = ACCOUNT if os.geteuid() == 0 else None
    if _TEMPLATE and _TEMPLATE[0].exists():
        run_as(account, "cp", "-a", _TEMPLATE[0], target)
        return
    words = ["--no-defaults", f"--datadir={target}", "--auth-root-authentication-method=normal", "--skip-test-db"]
    own = f"--tmpdir={target.parent}"  # a server that starts removes what others have in a folder that they share
    run_as(account, find_program("mariadb-install-db", "mariadb-server"), *words, own, "--innodb-log-file-size=8M")
    kept = target.with_name("template")
    run_as(account, "cp", "-a", target, kept)
    _TEMPLATE[:] = [kept]


class MariadbServer(ServerProcess):
    """One server; `root` without a password. `settings` go over the ones of the lab, as names of command line options.

    `certificates`: it offers TLS. `on_disk`: see `ServerProcess`.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        certificates: Certificates | None = None,
        on_disk: bool = False,
    ) -> None:
        super().__init__("mariadb", user=ACCOUNT, on_disk=on_disk)
        self.settings = {**SETTINGS, **(settings or {})}
        if certificates is not None:
            self._use(certificates)
        self._data = self.folder / "data"
        _new_data(self._data)

    def _use(self, certificates: Certificates) -> None:
        for option, source in (("ssl-cert", certificates.certificate), ("ssl-key", certificates.key)):
            copy = self.folder / f"{option}.pem"  # the account may not read the original
            copy.write_bytes(Path(source).read_bytes())
            if self._user is not None:
                shutil.chown(copy, self._user)
            self.settings[option] = str(copy)

    def command(self) -> Sequence[str]:
        """See `ServerProcess`."""
        chosen = [f"--{name}={value}" for name, value in self.settings.items()]
        place = [f"--datadir={self._data}", f"--port={self.port}", f"--socket={self.folder}/socket"]
        files = [f"--pid-file={self.folder}/pid", f"--tmpdir={self.folder}", "--skip-symbolic-links"]
        return [find_program("mariadbd", "mariadb-server"), "--no-defaults", *place, *files, *chosen]

    def is_ready(self) -> bool:
        """It answers."""
        return self.run("SELECT 1") == [(1,)]

    def url(self, database: str = "mysql", user: str = "root", password: str = "") -> str:
        """Where clients find it."""
        return mariadb_url(self.port, database, user, password)

    def connect(self, database: str = "mysql", user: str = "root", **options: Any) -> pymysql.Connection[Any]:
        """A connection that commits by itself, for the test's own questions."""
        words: dict[str, Any] = {"autocommit": True, "connect_timeout": 5, **options}
        return pymysql.connect(host="127.0.0.1", port=self.port, user=user, database=database, **words)

    def run(self, statement: str, database: str = "mysql") -> list[tuple[object, ...]]:
        """Run one statement as root; the rows, if it gives any."""
        connection = self.connect(database)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        finally:
            connection.close()

    # --- replication, of servers with `REPLICATED` and a `server-id` of their own

    def follow(self, primary: MariadbServer) -> None:
        """On a running server without data of its own: copy all that was ever written there, and all that will be."""
        place = f"MASTER_HOST='127.0.0.1', MASTER_PORT={primary.port}, MASTER_USER='root', MASTER_CONNECT_RETRY=1"
        self.run(f"CHANGE MASTER TO {place}, MASTER_USE_GTID=slave_pos")
        self.run("START SLAVE")

    def wait_caught_up(self, replica: MariadbServer) -> None:
        """Wait until the replica has all that is written here by now."""
        ((here,),) = self.run("SELECT @@gtid_binlog_pos")
        answer = replica.run(f"SELECT MASTER_GTID_WAIT('{here}', 60)")
        if answer != [(0,)]:
            raise TimeoutError(f"the replica does not catch up: {answer}")

    def cut_off(self) -> None:
        """On a replica: receive nothing any more. What the primary acknowledges from now on is lost by a failover."""
        self.run("STOP SLAVE")

    def promote(self) -> None:
        """On a replica: become a primary of its own."""
        self.run("STOP SLAVE")
        self.run("RESET SLAVE ALL")

    def make_database(self, name: str) -> str:
        """A new empty database; its url."""
        self.run(f"CREATE DATABASE `{name}`")
        return self.url(name)
