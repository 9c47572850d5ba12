"""What a URL says about an etcd store. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leasehold.backends.etcd.backend import EtcdStore
from leasehold.backends.etcd.wire import Security, Target
from leasehold.errors import ConfigurationError
from leasehold.values import MAX_FENCE

if TYPE_CHECKING:
    from leasehold.spi import Store
    from leasehold.store_url import StoreURL

__all__ = ["Options", "open_url"]

PORT = 2379
ROOT = "leasehold/"
OURS = ("fence_floor", "http_port")
TLS = ("ca", "cert", "key")


@dataclass(frozen=True, slots=True)
class Options:
    """Where the members are, who we are, and where the keys are."""

    targets: tuple[Target, ...]
    label: str
    root: str = ROOT
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    fence_floor: int = 0


def open_url(url: StoreURL) -> Store:
    """`etcd://user:password@h1,h2,h3/root`, and the same with TLS: `etcds://h1,h2?ca=FILE&cert=FILE&key=FILE`."""
    secure = url.scheme == "etcds"
    url.refuse_options(*OURS, *(TLS if secure else ()))
    if (url.username is None) != (url.password is None):
        raise ConfigurationError("an etcd user needs a password, and a password a user: etcd://user:password@host")
    security = _security(url) if secure else None
    http_port = _number(url, "http_port", 65_536)
    targets = tuple(
        Target(host or "localhost", port or PORT, http_port or port or PORT, security) for host, port in url.hosts
    )
    root = url.path.strip("/")
    return EtcdStore(
        Options(
            targets,
            str(url),
            f"{root}/" if root else ROOT,
            url.username,
            url.password,
            _number(url, "fence_floor", MAX_FENCE),
        )
    )


def _security(url: StoreURL) -> Security:
    certificate, key = url.options.get("cert"), url.options.get("key")
    if (certificate is None) != (key is None):
        raise ConfigurationError("a client certificate needs its key, and a key its certificate: ?cert=FILE&key=FILE")
    return Security(url.options.get("ca"), certificate, key)


def _number(url: StoreURL, option: str, limit: int) -> int:
    text = url.options.get(option, "0")
    if not text.isdecimal() or int(text) >= limit:
        raise ConfigurationError(f"{option} must be a whole number below {limit}")
    return int(text)
