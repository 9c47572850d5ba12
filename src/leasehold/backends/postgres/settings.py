"""What a PostgreSQL URL says: libpq's own parameters, which are passed on, and ours, which are checked here. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg import pq

from leasehold.errors import ConfigurationError
from leasehold.store_url import StoreURL, refuse_unknown
from leasehold.values import MAX_FENCE

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULT_SCHEMA", "Settings", "check_schema", "connection_parameters", "parse", "read_for_loans"]

MODES = ("rows", "session")
OPTIONS = ("mode", "listen_url", "schema", "fence_floor", "connections", "answer_timeout")
OF_LOANS = ("schema", "fence_floor", "answer_timeout")  # what goes with a pool or an engine of the user's own
DEFAULT_SCHEMA = "leasehold"
MOST_CONNECTIONS = 100
SHORTEST_ANSWER, LONGEST_ANSWER = 0.05, 3600.0
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Our options: how to lock, where the tables are, how long to wait for an answer, how many connections to use."""

    label: str
    mode: str = "rows"
    schema: str = DEFAULT_SCHEMA
    fence_floor: int = 0
    connections: int = 4
    answer_timeout: float = 5.0
    listen: Mapping[str, Any] | None = field(default=None, repr=False)  # parameters of a way around a pooler


def parse(url: StoreURL) -> tuple[Settings, dict[str, Any]]:
    """Our settings, and the parameters for libpq."""
    return _read(str(url), url.options), connection_parameters(url, OPTIONS)


def read_for_loans(label: str, options: Mapping[str, str]) -> Settings:
    """Our settings where the connections are somebody else's."""
    refuse_unknown(options, OF_LOANS, "a pool or engine of your own")
    return _read(label, options)


def _read(label: str, options: Mapping[str, str]) -> Settings:
    listen = options.get("listen_url")
    return Settings(
        label=label,
        mode=_choice(options.get("mode", "rows")),
        schema=check_schema(options.get("schema", DEFAULT_SCHEMA)),
        fence_floor=_whole(options, "fence_floor", 0, 0, MAX_FENCE - 1),
        connections=_whole(options, "connections", 4, 1, MOST_CONNECTIONS),
        answer_timeout=_seconds(options, "answer_timeout", 5.0),
        listen=None if listen is None else connection_parameters(_listen_url(listen), ()),
    )


def connection_parameters(url: StoreURL, ours: tuple[str, ...]) -> dict[str, Any]:
    """The parameters for libpq; an option that neither it nor we know is refused by name."""
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    for option in url.options:
        if option not in known and option not in ours:
            raise ConfigurationError(
                f"{url.scheme}: has no option {option!r}; it takes those of libpq (sslmode, connect_timeout, ...)"
                f"{' and ' + ', '.join(ours) if ours else ''}"
            )
    parameters: dict[str, Any] = {name: value for name, value in url.options.items() if name not in ours}
    if any(host for host, _ in url.hosts):
        parameters["host"] = ",".join(host for host, _ in url.hosts)
        if any(port for _, port in url.hosts):
            parameters["port"] = ",".join(str(port or 5432) for _, port in url.hosts)
    if len(url.hosts) > 1:
        parameters.setdefault("target_session_attrs", "read-write")  # of several, only one that takes writes is of use
    parts = {"user": url.username, "password": url.password, "dbname": url.path.lstrip("/")}
    parameters.update({name: value for name, value in parts.items() if value})
    parameters.setdefault("connect_timeout", "5")
    parameters.setdefault("fallback_application_name", "leasehold")
    return parameters


def check_schema(name: str) -> str:
    """A schema name of plain letters, digits and underscores; others would be inert too, but nobody means them."""
    if not _IDENTIFIER.fullmatch(name):
        raise ConfigurationError(
            f"schema must be letters, digits and underscores, at most 63 of them and no digit first, not {name!r}"
        )
    return name


def _listen_url(text: str) -> StoreURL:
    url = StoreURL.parse(text)
    if url.scheme not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise ConfigurationError("listen_url must be the postgresql: URL that reaches the same database directly")
    return url


def _choice(mode: str) -> str:
    if mode not in MODES:
        raise ConfigurationError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    return mode


def _whole(options: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = options.get(name, str(default))
    if text.isascii() and text.isdecimal() and least <= int(text) <= most:
        return int(text)
    raise ConfigurationError(f"{name} must be a whole number from {least} to {most}, not {text!r}")


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    text = options.get(name, str(default))
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text) and SHORTEST_ANSWER <= float(text) <= LONGEST_ANSWER:
        return float(text)
    raise ConfigurationError(f"{name} must be a number from {SHORTEST_ANSWER} to {LONGEST_ANSWER}, not {text!r}")
