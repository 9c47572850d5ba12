"""What a PostgreSQL URL may say: libpq's own parameters, which are passed on, and ours. No I/O.

TLS is set by `tls_ca` and the others as on every store, or by libpq's own `sslmode`, `sslrootcert` and so on, because
URLs of other programs have those.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError
from leasehold.kit.options import (
    FENCE_FLOOR,
    TLS_OPTIONS,
    Option,
    Values,
    choice,
    duration,
    read_options,
    read_tls,
    text,
    whole,
)
from leasehold.store_url import StoreURL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DEFAULT_SCHEMA", "OPTIONS", "RENAMED", "PostgresOptions", "parse", "read_for_adopted"]

DEFAULT_SCHEMA = "leasehold"
SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
SYSTEM_CERTIFICATES_SINCE = 160000  # the libpq that knows sslrootcert=system
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def _check_schema(name: str) -> str:
    """Plain letters, digits and underscores; other names would do no harm, but are most likely a mistake."""
    if not _IDENTIFIER.fullmatch(name):
        raise ConfigurationError(
            f"schema must be letters, digits and underscores, at most 63 of them and no digit first, not {name!r}"
        )
    return name


def _check_listen_url(url: str) -> str:
    if StoreURL.parse(url).scheme not in SCHEMES:
        raise ConfigurationError("listen_url must be the postgresql: URL that reaches the same database directly")
    return url


MODE = choice("mode", ("rows", "session"), "`session`: grants end with the connection of their holder")
LISTEN_URL = text(
    "listen_url",
    "where to listen for notifications, if the URL leads to a pooler",
    takes="a postgresql: URL of the server itself",
    check=_check_listen_url,
)
SCHEMA = text("schema", f"where the tables are; `{DEFAULT_SCHEMA}` if not given", takes="a name", check=_check_schema)
CONNECTIONS = whole(
    "connections", 4, "how many connections a client uses at most, without one to listen", least=1, most=100
)
ANSWER_TIMEOUT = duration("answer_timeout", 5.0, "how long one answer of the server may take", least=0.05)

OPTIONS: tuple[Option[Any], ...] = (MODE, LISTEN_URL, SCHEMA, CONNECTIONS, ANSWER_TIMEOUT, FENCE_FLOOR, *TLS_OPTIONS)
ADOPTED_OPTIONS: tuple[Option[Any], ...] = (SCHEMA, ANSWER_TIMEOUT, FENCE_FLOOR)  # with a pool or an engine
RENAMED = {"command_timeout": "answer_timeout", "node_timeout": "answer_timeout", "pool_size": "connections"}


@dataclass(frozen=True, slots=True)
class PostgresOptions:
    """Our options, read."""

    label: str
    mode: str = MODE.default
    schema: str = DEFAULT_SCHEMA
    fence_floor: int = FENCE_FLOOR.default
    connections: int = CONNECTIONS.default
    answer_timeout: float = ANSWER_TIMEOUT.default
    listen: Mapping[str, Any] | None = field(default=None, repr=False)  # parameters of `listen_url`


def parse(url: StoreURL) -> tuple[PostgresOptions, dict[str, Any]]:
    """Our options, and the parameters for libpq."""
    values = _values(url, OPTIONS)
    return _read(str(url), values), _connection_parameters(url, values)


def read_for_adopted(label: str, options: Mapping[str, str]) -> PostgresOptions:
    """Our options where the connections come out of an adopted pool or engine."""
    return _read(label, read_options(options, ADOPTED_OPTIONS, "a pool or engine of your own", RENAMED))


def _values(url: StoreURL, options: Sequence[Option[Any]]) -> Values:
    """Those of our options that the URL gives; a name that neither libpq nor we know is refused."""
    libpq, ours = _libpq_names(), [option.name for option in options]
    given = {name: value for name, value in url.options.items() if name not in libpq}
    for name in given:
        if name not in ours and name not in RENAMED:
            near = get_close_matches(name, [*ours, *libpq], 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigurationError(
                f"{url.scheme}: has no option {name!r}; {hint}it takes {', '.join(sorted(ours))}, and the parameters "
                "of libpq (connect_timeout, sslmode, ...)"
            )
    return read_options(given, options, f"{url.scheme}:", RENAMED)


def _libpq_names() -> set[str]:
    from psycopg import pq  # noqa: PLC0415 - only a URL needs it, and not a pool of another driver

    return {option.keyword.decode() for option in pq.Conninfo.get_defaults()}


def _read(label: str, values: Values) -> PostgresOptions:
    listen = values[LISTEN_URL]
    return PostgresOptions(
        label=label,
        mode=values[MODE],
        schema=values[SCHEMA] or DEFAULT_SCHEMA,
        fence_floor=values[FENCE_FLOOR],
        connections=values[CONNECTIONS],
        answer_timeout=values[ANSWER_TIMEOUT],
        listen=None if listen is None else _listen_parameters(StoreURL.parse(listen)),
    )


def _listen_parameters(url: StoreURL) -> dict[str, Any]:
    return _connection_parameters(url, _values(url, TLS_OPTIONS))


def _connection_parameters(url: StoreURL, values: Values) -> dict[str, Any]:
    libpq = _libpq_names()
    parameters: dict[str, Any] = {name: value for name, value in url.options.items() if name in libpq}
    if any(host for host, _ in url.hosts):
        parameters["host"] = ",".join(host for host, _ in url.hosts)
        if any(port for _, port in url.hosts):
            parameters["port"] = ",".join(str(port or 5432) for _, port in url.hosts)
    if len(url.hosts) > 1:
        parameters.setdefault("target_session_attrs", "read-write")  # of several, only one that takes writes is of use
    parts = {"user": url.username, "password": url.password, "dbname": url.path.lstrip("/")}
    parameters.update({name: value for name, value in parts.items() if value})
    for name, value in _tls_parameters(values).items():
        if name in parameters:
            raise ConfigurationError(f"{name} and tls_* options set the same thing in this URL; give one of the two")
        parameters[name] = value
    parameters.setdefault("connect_timeout", "5")
    parameters.setdefault("fallback_application_name", "leasehold")
    return parameters


def _tls_parameters(values: Values) -> dict[str, str]:
    """What `tls_*` mean in libpq's words. Any of them means TLS, as the scheme of the URL does on other stores."""
    tls = read_tls(values, used=any(option in values for option in TLS_OPTIONS), secure_url="")
    if tls is None:
        return {}
    from psycopg import pq  # noqa: PLC0415

    authorities = tls.ca
    if authorities is None and tls.verify and pq.version() >= SYSTEM_CERTIFICATES_SINCE:
        authorities = "system"
    parameters = {
        "sslmode": "verify-full" if tls.verify else "require",
        "sslrootcert": authorities,
        "sslcert": tls.cert,
        "sslkey": tls.key,
        "sslpassword": tls.key_password,
    }
    return {name: value for name, value in parameters.items() if value is not None}
