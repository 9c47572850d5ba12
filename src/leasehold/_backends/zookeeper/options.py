"""From a URL, or a kazoo client of the user's own: the hosts, root, account, rights and TLS of an ensemble. No I/O.

zk://user:password@h1,h2:2181,h3/root?acl=creator
zks://h1,h2,h3/root?tls_ca=/etc/ssl/ca.pem&tls_cert=...&tls_key=...
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, Id

from leasehold.errors import ConfigurationError
from leasehold.kit.options import FENCE_FLOOR, TLS_OPTIONS, TLSFiles, flag, read_options, read_tls, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold.kit.options import Option, Values
    from leasehold.store_url import StoreURL

__all__ = ["CLIENT_OPTIONS", "OPTIONS", "RENAMED", "Options"]

DEFAULT_PORT, DEFAULT_SECURE_PORT = 2181, 2281
DEFAULT_ROOT = "/leasehold"
RIGHTS = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}
SECURE_URL = "write zks:// instead of zk://"
KAZOO_NAMES = (  # of what an adopted client knows about its connections
    "ca", "certfile", "check_hostname", "keyfile", "keyfile_password", "randomize_hosts", "use_ssl", "verify_certs",
)  # fmt: skip

ACLS = text(
    "acl",
    "the rights on every node: `creator` (its creator only; the default for a user or a client certificate), `open` "
    "(every client; the default without either), or a list of rules",
    takes="`creator`, `open`, or a list like `digest:user:hash:cdrwa,world:anyone:r`",
)
CHECK_HOSTNAME = flag("check_hostname", "whether the name in the server's certificate is checked", default=True)
RANDOMIZE_HOSTS = flag("randomize_hosts", "whether servers are tried in random order", default=True)
ROOT = text("root", "the node below which locks are kept, below the client's chroot", takes="a path")

OPTIONS: tuple[Option[Any], ...] = (ACLS, CHECK_HOSTNAME, FENCE_FLOOR, RANDOMIZE_HOSTS, *TLS_OPTIONS)
CLIENT_OPTIONS: tuple[Option[Any], ...] = (
    FENCE_FLOOR,
    ROOT,
)  # beside a kazoo client, which brings its own account, rights and TLS
RENAMED = {
    "ca": "tls_ca",
    "certfile": "tls_cert",
    "keyfile": "tls_key",
    "keyfile_password": "tls_key_password",
    "tls": "zks:// (the scheme of the URL)",
    "use_ssl": "zks:// (the scheme of the URL)",
    "verify_certs": "tls_verify",
}


@dataclass(frozen=True, slots=True)
class Options:
    """An ensemble and how to connect to it; `label` is its name in messages."""

    hosts: tuple[tuple[str, int], ...]
    root: str
    label: str
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    acl: tuple[Any, ...] = tuple(OPEN_ACL_UNSAFE)
    fence_floor: int = 0
    kazoo_options: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def address(self) -> str:
        """The hosts in kazoo's form."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)

    @property
    def identity(self) -> str:
        """The same for all clients of the same locks in this process."""
        return f"{self.address}{self.root}"

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return bool(self.kazoo_options.get("use_ssl"))

    @property
    def socket_options(self) -> dict[str, Any]:
        """What `connection.open_socket` takes."""
        return {name: value for name, value in self.kazoo_options.items() if name != "randomize_hosts"}

    @classmethod
    def from_url(cls, url: StoreURL) -> Options:
        """Check everything that can be checked without a connection."""
        values = read_options(url.options, OPTIONS, f"{url.scheme}:", RENAMED)
        tls = read_tls(values, used=url.scheme == "zks", secure_url=SECURE_URL)
        if tls is None and CHECK_HOSTNAME in values:
            raise ConfigurationError(f"{CHECK_HOSTNAME.name} has no meaning without TLS; {SECURE_URL}")
        port = DEFAULT_PORT if tls is None else DEFAULT_SECURE_PORT
        auth = _credentials(url)
        return cls(
            hosts=tuple((host or "127.0.0.1", given or port) for host, given in url.hosts),
            root=_root(url.path),
            label=str(url),
            auth=auth,
            acl=tuple(_acl(values[ACLS], is_known=bool(auth) or (tls is not None and tls.cert is not None))),
            fence_floor=values[FENCE_FLOOR],
            kazoo_options=_kazoo_options(values, tls),
        )

    @classmethod
    def from_client(cls, client: Any, given: Mapping[str, str]) -> Options:
        """The servers, credentials and rights of a kazoo client; its session stays its own."""
        values = read_options(given, CLIENT_OPTIONS, "a kazoo client")
        root = client.chroot + _root(values[ROOT] or DEFAULT_ROOT)
        hosts = tuple((host, port) for host, port in client.hosts)
        return cls(
            hosts=hosts,
            root=root,
            label=f"zk://{','.join(f'{host}:{port}' for host, port in hosts)}{root}",
            auth=tuple(client.auth_data),
            acl=tuple(client.default_acl or (CREATOR_ALL_ACL if client.auth_data else OPEN_ACL_UNSAFE)),
            fence_floor=values[FENCE_FLOOR],
            kazoo_options={
                name: getattr(client, name) for name in KAZOO_NAMES if getattr(client, name, None) is not None
            },
        )


def _kazoo_options(values: Values, tls: TLSFiles | None) -> dict[str, Any]:
    options: dict[str, Any] = {"randomize_hosts": values[RANDOMIZE_HOSTS], "use_ssl": tls is not None}
    if tls is not None:
        files = {
            "ca": tls.ca, "certfile": tls.cert, "keyfile": tls.key, "keyfile_password": tls.key_password,
        }  # fmt: skip
        options.update({name: value for name, value in files.items() if value is not None})
        options.update(verify_certs=tls.verify, check_hostname=tls.verify and values[CHECK_HOSTNAME])
    return options


def _root(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    if not parts:
        return DEFAULT_ROOT
    if parts[0] == "zookeeper" or any(part in (".", "..") for part in parts) or not path.isprintable():
        raise ConfigurationError(
            "the root of a ZooKeeper store must be a plain path that is not below /zookeeper, such as /leasehold"
        )
    return "/" + "/".join(parts)


def _credentials(url: StoreURL) -> tuple[tuple[str, str], ...]:
    if url.username is None:
        return ()
    if url.password is None:
        raise ConfigurationError("a ZooKeeper user needs a password: zk://user:password@host")
    return (("digest", f"{url.username}:{url.password}"),)


def _acl(given: str | None, *, is_known: bool) -> Sequence[Any]:
    """The rules of an `acl` option. A client with an account keeps others out by default."""
    if given is None:
        given = "creator" if is_known else "open"
    if given == "creator":
        if not is_known:
            raise ConfigurationError("acl=creator needs a user and password, or a client certificate")
        return CREATOR_ALL_ACL  # type: ignore[no-any-return]  # kazoo has no types
    if given == "open":
        return OPEN_ACL_UNSAFE  # type: ignore[no-any-return]  # kazoo has no types
    return [_rule(rule) for rule in given.split(",")]


def _rule(given: str) -> Any:
    scheme, _, rest = given.partition(":")
    identity, _, rights = rest.rpartition(":")
    if not scheme or not identity or not rights or any(right not in RIGHTS for right in rights):
        raise ConfigurationError("acl must be creator, open, or a list like digest:user:hash:cdrwa,world:anyone:r")
    return ACL(sum(RIGHTS[right] for right in set(rights)), Id(scheme, identity))
