"""The options of a Redis URL: those of the store, TLS, and those that are passed on to redis-py's connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.keys import DEFAULT_PREFIX
from leasehold.errors import ConfigurationError
from leasehold.kit.options import FENCE_FLOOR, TLS_OPTIONS, Option, duration, flag, read_options, text, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold.kit.options import Values

__all__ = ["DB", "OPTIONS", "PASSED_ON", "PASSED_ON_TLS", "PORT", "RENAMED", "SENTINEL", "STORE", "TLS", "Options"]

PORT = 6379
HOLD_OFF = 30.0
_YES, _NO = ("1", "yes", "true", "on"), ("0", "no", "false", "off")


def _read_prefix(value: str) -> str:
    if len(value) > 128 or not value.isprintable():
        raise ConfigurationError(f"prefix must be at most 128 printable characters, not {value!r}")
    return value


def _read_strict(value: str) -> float:
    if value.lower() in _YES:
        return HOLD_OFF
    return 0.0 if value.lower() in _NO else _STRICT_TIME.read(value)


_STRICT_TIME = duration("strict", 0.0, "", least=0.0)

PREFIX: Option[str | None] = Option(
    "prefix",
    None,
    "a text",
    f"what every key begins with (`{DEFAULT_PREFIX}`; nothing with `compat`)",
    _read_prefix,
)
COMPAT = flag("compat", "exclude a fleet that locks by `SET NX PX` under the same keys")
ACKS = whole("acks", 0, "how many replicas must have acknowledged a grant; otherwise it is undone", most=100)
ACKS_TIMEOUT = duration("acks_timeout", 1.0, "how long to wait for these replicas")
STRICT: Option[float] = Option(
    "strict",
    0.0,
    f"a duration, or `yes` (also `1`) for {HOLD_OFF:g} s; one second is written `1s`",
    "how long nothing is granted after the server was started again or another one was promoted",
    _read_strict,
)
ANSWER_TIMEOUT = duration("answer_timeout", 2.0, "how long one answer of the server may take")
STORE: tuple[Option[Any], ...] = (PREFIX, COMPAT, ACKS, ACKS_TIMEOUT, STRICT, FENCE_FLOOR, ANSWER_TIMEOUT)

TLS = flag("tls", "use TLS, as `rediss` in the scheme does")

SENTINEL_USERNAME = text("sentinel_username", "the account at the Sentinels", takes="a text")
SENTINEL_PASSWORD = text("sentinel_password", "its password", takes="a text")
SENTINEL: tuple[Option[Any], ...] = (SENTINEL_USERNAME, SENTINEL_PASSWORD)

# Parameters of redis-py's connections that keep their names.
DB = whole("db", 0, "the number of the database", most=2**31 - 1)
PASSED_ON: tuple[Option[Any], ...] = (
    DB,
    text("username", "the account, if it is not in front of the host", takes="a text"),
    text("password", "its password, if it is not in front of the host", takes="a text"),
    text("client_name", "what CLIENT LIST shows for our connections", takes="a text"),
    whole("protocol", 2, "the version of Redis' protocol", least=2, most=3),
    duration("socket_connect_timeout", 2.0, "how long connecting may take"),
    duration("socket_timeout", 2.0, "how long each answer of the greeting may take"),
    flag("socket_keepalive", "let the operating system look after idle connections"),
)
PASSED_ON_TLS: tuple[Option[Any], ...] = (
    text("ssl_ca_data", "certificates of authorities, as they would be in a file", takes="PEM text"),
    text("ssl_ca_path", "a folder of certificates of authorities", takes="a folder"),
    flag("ssl_check_hostname", "whether the certificate must be for this host", default=True),
    text("ssl_ciphers", "which ciphers of TLS 1.2 may be used", takes="a list in OpenSSL's form"),
    text("ssl_min_version", "the oldest version of TLS", takes="`TLSv1_2` or `TLSv1_3`"),
)

OPTIONS = (*STORE, TLS, *TLS_OPTIONS, *SENTINEL, *PASSED_ON, *PASSED_ON_TLS)

RENAMED = {
    "command_timeout": "answer_timeout",
    "ssl_ca_certs": "tls_ca",
    "ssl_cert_reqs": "tls_verify",
    "ssl_certfile": "tls_cert",
    "ssl_keyfile": "tls_key",
    "ssl_password": "tls_key_password",
}


@dataclass(frozen=True, slots=True)
class Options:
    """How the store behaves; the meaning of each is in `STORE`."""

    prefix: str = DEFAULT_PREFIX
    compat: bool = False
    acks: int = 0
    acks_timeout: float = 1.0
    strict: float = 0.0
    fence_floor: int = 0
    answer_timeout: float = 2.0

    @property
    def hands_over(self) -> bool:
        """Whether a release may make the next waiter the holder.

        Not with `compat`: without a gap between two holders the other fleet would starve. Not with `acks` or `strict`:
        the call of the new holder itself has to prove something.
        """
        return not (self.compat or self.acks or self.strict)

    @classmethod
    def of(cls, values: Values) -> Options:
        """From the values of a URL."""
        compat, prefix = values[COMPAT], values[PREFIX]
        if prefix is None:
            prefix = "" if compat else DEFAULT_PREFIX
        if not compat and ("{" in prefix or "}" in prefix):
            raise ConfigurationError("prefix must not contain braces: they would put all locks into one slot")
        return cls(
            prefix=prefix,
            compat=compat,
            acks=values[ACKS],
            acks_timeout=values[ACKS_TIMEOUT],
            strict=values[STRICT],
            fence_floor=values[FENCE_FLOOR],
            answer_timeout=values[ANSWER_TIMEOUT],
        )

    @classmethod
    def read(cls, given: Mapping[str, str], owner: str) -> Options:
        """From options that go with a client of the user's own, which has its own TLS and credentials."""
        return cls.of(read_options(given, STORE, owner, RENAMED))
