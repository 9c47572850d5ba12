"""The options of a NATS URL."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError
from leasehold.kit.options import FENCE_FLOOR, TLS_OPTIONS, Option, duration, read_options, read_tls, text, whole

if TYPE_CHECKING:
    from leasehold.kit.options import TLSFiles
    from leasehold.store_url import StoreURL

__all__ = ["OPTIONS", "RENAMED", "Options", "read_url"]

PORT = 4222
DEFAULT_BUCKET = "leasehold"
DEFAULT_TIMEOUT = 5.0
MOST_REPLICAS = 5  # JetStream allows no more


def _bucket(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,200}", name):
        raise ConfigurationError(f"bucket must be made of letters, digits, '_' and '-', not {name!r}")
    return name


ANSWER_TIMEOUT = duration(
    "answer_timeout", DEFAULT_TIMEOUT, "how long one answer of a server may take", least=0.1, most=60.0
)
BUCKET = text(
    "bucket",
    f"the key-value bucket that the locks are in, `{DEFAULT_BUCKET}` if not given; made by the first request",
    takes="letters, digits, `_` and `-`",
    check=_bucket,
)
REPLICAS = whole(
    "replicas", 1, "on how many servers a bucket that has to be made is kept: 3 in a cluster", least=1,
    most=MOST_REPLICAS,
)  # fmt: skip
OPTIONS: tuple[Option[Any], ...] = (ANSWER_TIMEOUT, BUCKET, FENCE_FLOOR, REPLICAS, *TLS_OPTIONS)
RENAMED = {
    "timeout": "answer_timeout",
    "num_replicas": "replicas",
    "ca": "tls_ca",
    "cert": "tls_cert",
    "key": "tls_key",
}


@dataclass(frozen=True, slots=True)
class Options:
    """Where the servers are, as which user, and which bucket."""

    hosts: tuple[tuple[str, int], ...]
    label: str
    bucket: str = DEFAULT_BUCKET
    replicas: int = 1
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: TLSFiles | None = None
    fence_floor: int = 0
    answer_timeout: float = DEFAULT_TIMEOUT


def read_url(url: StoreURL) -> Options:
    """Read `nats://user:password@h1,h2?...`, `nats://token@host` or `nats+tls://...`; does no I/O."""
    values = read_options(url.options, OPTIONS, f"{url.scheme}:", RENAMED)
    if url.path.strip("/"):
        raise ConfigurationError(f"{url.scheme}: takes no path; name the bucket as an option: ?bucket=NAME")
    if url.password is not None and not url.username:
        raise ConfigurationError("a NATS password needs a user: nats://user:password@host; a token stands alone")
    has_token = url.username is not None and url.password is None
    address = ",".join(f"[{host}]" if ":" in host else host for host, _ in url.hosts)
    return Options(
        tuple((host or "localhost", port or PORT) for host, port in url.hosts),
        f"{url.scheme}://{address}" if has_token else str(url),  # a token in the place of the user is a secret
        values[BUCKET] or DEFAULT_BUCKET,
        values[REPLICAS],
        None if has_token else url.username,
        url.password,
        url.username if has_token else None,
        read_tls(values, used=url.scheme != "nats", secure_url="write nats+tls://"),
        values[FENCE_FLOOR],
        values[ANSWER_TIMEOUT],
    )
