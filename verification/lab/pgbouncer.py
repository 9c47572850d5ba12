"""A PgBouncer of our own in front of a PostgreSQL of the lab: transaction pooling, as most people run it.

Everything but the pooling is its default. So it refuses start-up parameters that it does not know, and a session's
settings, LISTEN and named prepared statements do not survive from one transaction to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from verification.lab.postgres import ACCOUNT, PostgresServer, postgres_url
from verification.lab.process import ServerProcess, find_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["PgBouncer"]


class PgBouncer(ServerProcess):
    """One pooler in front of one server; it knows every database there, and the users that are named to it."""

    def __init__(
        self,
        server: PostgresServer,
        users: Sequence[str] = ("postgres",),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("pgbouncer", user=ACCOUNT)
        self._server = server
        chosen = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": str(self.folder / "users.txt"),
            "pool_mode": "transaction",
            "default_pool_size": "10",
            "max_client_conn": "1000",
            **(settings or {}),
        }
        (self.folder / "users.txt").write_text("".join(f'"{user}" ""\n' for user in users))
        lines = ["[databases]", f"* = host=127.0.0.1 port={server.port}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in chosen.items()]
        (self.folder / "pgbouncer.ini").write_text("\n".join([*lines, ""]))

    def command(self) -> Sequence[str]:
        return [find_program("pgbouncer", "pgbouncer"), str(self.folder / "pgbouncer.ini")]

    def is_ready(self) -> bool:
        with psycopg.connect(self.url(), connect_timeout=2, prepare_threshold=None) as connection:
            return connection.execute("SELECT 1").fetchone() is not None

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """Where clients find it."""
        return postgres_url(self.port, database, user)
