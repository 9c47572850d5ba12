"""What a URL says about an ensemble: hosts, root, who we are, rights, TLS. It does no I/O.

zk://user:password@h1,h2:2181,h3/root?acl=creator
zks://h1,h2,h3/root?ca=/etc/ssl/ca.pem&certfile=...&keyfile=...
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, Id

from leasehold.errors import ConfigurationError
from leasehold.store_url import refuse_unknown
from leasehold.values import MAX_FENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leasehold.store_url import StoreURL

__all__ = ["Settings"]

DEFAULT_PORT, DEFAULT_SECURE_PORT = 2181, 2281
DEFAULT_ROOT = "/leasehold"
TEXTS = ("ca", "certfile", "keyfile", "keyfile_password")
FLAGS = ("check_hostname", "randomize_hosts", "use_ssl", "verify_certs")
OURS = ("acl", "fence_floor", "tls")
OF_CLIENTS = ("fence_floor", "root")  # what goes with a kazoo client of the user's own, which knows its rights and TLS
RIGHTS = {"c": 4, "d": 8, "r": 1, "w": 2, "a": 16}
SPOKEN = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class Settings:
    """An ensemble and how to come in; `label` is what messages show."""

    hosts: tuple[tuple[str, int], ...]
    root: str
    label: str
    auth: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    acl: tuple[Any, ...] = tuple(OPEN_ACL_UNSAFE)
    fence_floor: int = 0
    kazoo_options: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def address(self) -> str:
        """The hosts as kazoo wants them."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)

    @property
    def identity(self) -> str:
        """The same for all clients of the same locks in this process."""
        return f"{self.address}{self.root}"

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return bool(self.kazoo_options.get("use_ssl"))

    @classmethod
    def from_url(cls, url: StoreURL) -> Settings:
        """Check everything that can be checked without asking the ensemble."""
        url.refuse_options(*sorted((*OURS, *TEXTS, *FLAGS)))
        flags = {name: _flag(url, name) for name in FLAGS if name in url.options}
        tls = url.scheme == "zks" or _flag(url, "tls") or flags.get("use_ssl", False)
        options: dict[str, Any] = {name: url.options[name] for name in TEXTS if name in url.options}
        if options and not tls:
            raise ConfigurationError(f"{sorted(options)[0]} has no meaning without TLS; write zks:// instead of zk://")
        options.update(flags, use_ssl=tls)
        if tls and options.get("verify_certs", True):
            options.setdefault("check_hostname", True)
        port = DEFAULT_SECURE_PORT if tls else DEFAULT_PORT
        auth = _credentials(url)
        return cls(
            hosts=tuple((host or "127.0.0.1", given or port) for host, given in url.hosts),
            root=_root(url.path),
            label=str(url),
            auth=auth,
            acl=tuple(_acl(url.options.get("acl"), known=bool(auth) or "certfile" in options)),
            fence_floor=_floor(url.options.get("fence_floor", "0")),
            kazoo_options=options,
        )

    @classmethod
    def from_client(cls, client: Any, given: Mapping[str, str]) -> Settings:
        """The servers, credentials and rights of a kazoo client; its session stays its own."""
        refuse_unknown(given, OF_CLIENTS, "a kazoo client")
        root = client.chroot + _root(given.get("root", DEFAULT_ROOT))
        names = (*TEXTS, *FLAGS)
        options = {name: getattr(client, name) for name in names if getattr(client, name, None) is not None}
        hosts = tuple((host, port) for host, port in client.hosts)
        return cls(
            hosts=hosts,
            root=root,
            label=f"zk://{','.join(f'{host}:{port}' for host, port in hosts)}{root}",
            auth=tuple(client.auth_data),
            acl=tuple(client.default_acl or (CREATOR_ALL_ACL if client.auth_data else OPEN_ACL_UNSAFE)),
            fence_floor=_floor(given.get("fence_floor", "0")),
            kazoo_options=options,
        )


def _flag(url: StoreURL, name: str) -> bool:
    text = url.options.get(name, "no").lower()
    if text not in SPOKEN:
        raise ConfigurationError(f"{name} must be yes or no, not {text!r}")
    return SPOKEN[text]


def _root(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    if not parts:
        return DEFAULT_ROOT
    if parts[0] == "zookeeper" or any(part in (".", "..") for part in parts) or not path.isprintable():
        raise ConfigurationError("the root of a ZooKeeper store is a plain path, and not below /zookeeper")
    return "/" + "/".join(parts)


def _credentials(url: StoreURL) -> tuple[tuple[str, str], ...]:
    if url.username is None:
        return ()
    if url.password is None:
        raise ConfigurationError("a ZooKeeper user needs a password: zk://user:password@host")
    return (("digest", f"{url.username}:{url.password}"),)


def _floor(text: str) -> int:
    if not text.isdecimal() or int(text) >= MAX_FENCE:
        raise ConfigurationError("fence_floor must be the highest fence that was given by the store used before")
    return int(text)


def _acl(text: str | None, *, known: bool) -> Sequence[Any]:
    """`creator`, `open`, or a list like `digest:user:hash:cdrwa,world:anyone:r`. Who is known keeps others out."""
    if text is None:
        text = "creator" if known else "open"
    if text == "creator":
        if not known:
            raise ConfigurationError("acl=creator needs a user and password, or a client certificate")
        return CREATOR_ALL_ACL  # type: ignore[no-any-return]  # kazoo has no types
    if text == "open":
        return OPEN_ACL_UNSAFE  # type: ignore[no-any-return]  # kazoo has no types
    return [_rule(rule) for rule in text.split(",")]


def _rule(text: str) -> Any:
    scheme, _, rest = text.partition(":")
    identity, _, rights = rest.rpartition(":")
    if not scheme or not identity or not rights or any(right not in RIGHTS for right in rights):
        raise ConfigurationError("acl must be creator, open, or a list like digest:user:hash:cdrwa,world:anyone:r")
    return ACL(sum(RIGHTS[right] for right in set(rights)), Id(scheme, identity))
