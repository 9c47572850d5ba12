"""ZooKeeper servers of our own, one alone or an ensemble, for tests and benchmarks. It knows no leasehold.

Ticks are short, so that sessions of a second are possible, and nothing is flushed to the disk: what is tested is the
client. Every four-letter word is allowed, because tests look at sessions and watches with them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from verification.lab.process import ServerProcess, find_program, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from verification.lab.certificates import Certificates

__all__ = ["Ensemble", "SecureZooKeeperServer", "ZooKeeperServer", "ask"]

JAR = "/usr/share/java/zookeeper.jar"  # Debian's package; its manifest names what else is needed
LIBRARIES = (
    "slf4j-simple.jar",
    "netty-codec.jar",
    "netty-resolver.jar",
)  # to see what goes wrong, and for TLS; beside it, not named there
JVM = (
    "-Xmx96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # a test server lives too short for the better compiler to pay
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.admin.enableServer=false",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
LONGEST_SESSION_MS = 36_000_000


def ask(word: str, port: int, host: str = "127.0.0.1", timeout: float = 5.0) -> str:
    """The answer to a four-letter word."""
    with closing(socket.create_connection((host, port), timeout=timeout)) as connection:
        connection.sendall(word.encode())
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


class ZooKeeperServer(ServerProcess):
    """One server. `settings` are lines of zoo.cfg, `properties` are settings that only the JVM's command line takes."""

    def __init__(
        self,
        *,
        tick_ms: int = 100,
        host: str = "127.0.0.1",
        name: str = "zookeeper",
        settings: Mapping[str, object] | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(name)
        self.host = host
        self.tick_ms = tick_ms
        self.settings = dict(settings or {})
        self.properties = dict(properties or {})
        self.prefix: tuple[str, ...] = ()  # words before the command, to start it elsewhere

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"{self.host}:{self.port}"

    def url(self, root: str = "") -> str:
        """The URL of a leasehold store on this server."""
        return f"zk://{self.address}{root}"

    def command(self) -> Sequence[str]:
        jar = os.environ.get("ZOOKEEPER_JAR", JAR)
        if not Path(jar).exists():
            raise RuntimeError("ZooKeeper is not installed; on Debian: apt install zookeeper (or: make servers)")
        jars = [jar, *(str(Path(JAR).with_name(library)) for library in LIBRARIES)]
        java = find_program("java", "default-jre-headless")
        (self.folder / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in self._configuration()))
        defines = [f"-D{key}={value}" for key, value in self.properties.items()]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return [*self.prefix, java, *JVM, *defines, "-cp", os.pathsep.join(jars), main, str(self.folder / "zoo.cfg")]

    def _configuration(self) -> Iterator[tuple[str, object]]:
        defaults = {
            "tickTime": self.tick_ms,
            "initLimit": 100,
            "syncLimit": 50,
            "maxSessionTimeout": LONGEST_SESSION_MS,
            "maxClientCnxns": 0,
            "dataDir": self.folder / "data",
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "4lw.commands.whitelist": "*",
        }
        yield from {**defaults, **self.settings}.items()

    def is_ready(self) -> bool:
        return "Mode:" in ask(
            "srvr", self.port, self.host, timeout=0.3
        )  # a connection made too early is never answered

    def ask(self, word: str) -> str:
        """The answer to a four-letter word."""
        return ask(word, self.port, self.host)

    @property
    def mode(self) -> str:
        """`standalone`, `leader`, `follower`, or nothing while it does not serve."""
        with suppress(OSError):
            for line in self.ask("srvr").splitlines():
                if line.startswith("Mode: "):
                    return line.removeprefix("Mode: ")
        return ""

    def answers_inside(self, prefix: Sequence[str]) -> bool:
        """Whether it serves clients inside its own network, checked from there."""
        program = (
            "import socket, sys; c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5);"
            "c.sendall(b'srvr'); sys.exit(b'Mode:' not in c.recv(65536))"
        )
        command = [*prefix, sys.executable, "-c", program, self.host, str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def sessions(self) -> int:
        """How many sessions are connected here; the question itself comes without one."""
        return sum("sid=0x" in line for line in self.ask("cons").splitlines())

    def watches(self) -> int:
        """How many watches clients of this server have set."""
        for line in self.ask("wchs").splitlines():
            if line.startswith("Total watches:"):
                return int(line.split(":")[1])
        raise RuntimeError("the server does not say how many watches there are")


class SecureZooKeeperServer(ZooKeeperServer):
    """A server that speaks TLS only. `client_authority`: it wants a certificate of the client, signed by this one."""

    def __init__(self, certificates: Certificates, *, client_authority: Path | None = None) -> None:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - benchmarks live without it

        super().__init__(name="zookeeper-tls")
        bundle = self.folder / "server.pem"
        key = serialization.load_pem_private_key(certificates.key.read_bytes(), password=None)
        bundle.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificates.certificate.read_bytes()
        )
        trusted = client_authority or certificates.authority
        self.properties["zookeeper.serverCnxnFactory"] = "org.apache.zookeeper.server.NettyServerCnxnFactory"
        self.settings = {
            "secureClientPort": self.port,
            "secureClientPortAddress": self.host,
            "ssl.keyStore.location": bundle,
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": trusted,
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "need" if client_authority else "none",
            "clientPort": free_port(),
        }

    def url(self, root: str = "") -> str:
        """The URL of a leasehold store on this server, without what has to be known about certificates."""
        return f"zks://{self.address}{root}"

    def is_ready(self) -> bool:
        return "Mode:" in ask("srvr", int(str(self.settings["clientPort"])), self.host, timeout=0.3)


class Ensemble:
    """Several servers that elect a leader. `hosts` are their addresses when each lives in a network of its own."""

    def __init__(
        self,
        size: int = 3,
        *,
        tick_ms: int = 100,
        settings: Mapping[str, object] | None = None,
        hosts: Sequence[str] | None = None,
    ) -> None:
        places = list(hosts or ["127.0.0.1"] * size)
        self.servers = [
            ZooKeeperServer(tick_ms=tick_ms, host=place, name=f"zookeeper{number}", settings=settings)
            for number, place in enumerate(places, 1)
        ]
        members = {
            f"server.{number}": f"{server.host}:{free_port()}:{free_port()}"
            for number, server in enumerate(self.servers, 1)
        }
        for number, server in enumerate(self.servers, 1):
            server.settings.update(members)
            (server.folder / "data").mkdir()
            (server.folder / "data" / "myid").write_text(str(number))

    def url(self, root: str = "") -> str:
        """The URL of a leasehold store on this ensemble."""
        return f"zk://{','.join(server.address for server in self.servers)}{root}"

    def start(self) -> None:
        """Start all, and wait until there is a leader that all others follow."""
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_ready()

    def leader(self) -> ZooKeeperServer:
        """The server that leads now."""
        wait_until(self._leading, "there is no leader")
        return self._leading()[0]

    def _leading(self) -> list[ZooKeeperServer]:
        return [server for server in self.servers if server.is_running and server.mode == "leader"]

    def followers(self) -> list[ZooKeeperServer]:
        """All others."""
        leader = self.leader()
        return [server for server in self.servers if server is not leader]

    def remove(self) -> None:
        """End all."""
        for server in self.servers:
            server.remove()

    def __enter__(self) -> Ensemble:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
