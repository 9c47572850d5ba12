"""The options of an etcd URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leasehold._backends.etcd.connection import ANSWER_TIMEOUT as DEFAULT_TIMEOUT
from leasehold._backends.etcd.wire import Target
from leasehold.errors import ConfigurationError
from leasehold.kit.options import (
    FENCE_FLOOR,
    TLS_CA,
    TLS_CERT,
    TLS_KEY,
    Option,
    duration,
    read_options,
    read_tls,
    whole,
)

if TYPE_CHECKING:
    from leasehold.store_url import StoreURL

__all__ = ["OPTIONS", "RENAMED", "Options", "read_url"]

PORT = 2379
ROOT = "leasehold/"

ANSWER_TIMEOUT = duration(
    "answer_timeout", DEFAULT_TIMEOUT, "how long one answer of a member may take", least=0.1, most=60.0
)
HTTP_PORT = whole(
    "http_port",
    0,
    "where members answer HTTP, if not on the port for clients; `once` reads the time there",
    most=65_535,
)
OPTIONS: tuple[Option[Any], ...] = (ANSWER_TIMEOUT, FENCE_FLOOR, HTTP_PORT, TLS_CA, TLS_CERT, TLS_KEY)
RENAMED = {
    "ca": "tls_ca",
    "ca_cert": "tls_ca",
    "cacert": "tls_ca",
    "cert": "tls_cert",
    "cert_cert": "tls_cert",
    "key": "tls_key",
    "cert_key": "tls_key",
    "timeout": "answer_timeout",
}


@dataclass(frozen=True, slots=True)
class Options:
    """Where the members are, as which user, and below which root."""

    targets: tuple[Target, ...]
    label: str
    root: str = ROOT
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    fence_floor: int = 0
    answer_timeout: float = DEFAULT_TIMEOUT


def read_url(url: StoreURL) -> Options:
    """Read `etcd://user:password@h1,h2,h3/root?...` or `etcds://...`; does no I/O."""
    values = read_options(url.options, OPTIONS, f"{url.scheme}:", RENAMED)
    if (not url.username) != (url.password is None):
        raise ConfigurationError("an etcd user needs a password, and a password a user: etcd://user:password@host")
    tls = read_tls(values, used=url.scheme == "etcds", secure_url="write etcds://")
    http_port = values[HTTP_PORT]
    targets = tuple(
        Target(host or "localhost", port or PORT, http_port or port or PORT, tls) for host, port in url.hosts
    )
    root = url.path.strip("/")
    return Options(
        targets,
        str(url),
        f"{root}/" if root else ROOT,
        url.username,
        url.password,
        values[FENCE_FLOOR],
        values[ANSWER_TIMEOUT],
    )
