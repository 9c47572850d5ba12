"""What a `mysql:` or `mariadb:` URL may say. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError
from leasehold.kit.options import (
    FENCE_FLOOR,
    TLS_OPTIONS,
    Option,
    TLSFiles,
    choice,
    duration,
    read_options,
    read_tls,
    text,
    whole,
)

if TYPE_CHECKING:
    from leasehold.store_url import StoreURL

__all__ = ["OPTIONS", "RENAMED", "MysqlOptions", "parse"]

DEFAULT_PORT = 3306

MODE = choice("mode", ("rows", "session"), "`session`: grants end with the connection of their holder")
SOCKET = text("socket", "connect through this socket of the host instead of the network", takes="a path")
CONNECTIONS = whole(
    "connections", 4, "how many connections a client uses at most, without one to listen", least=1, most=100
)
CONNECT_TIMEOUT = duration("connect_timeout", 5.0, "how long connecting may take", least=0.05)
ANSWER_TIMEOUT = duration("answer_timeout", 5.0, "how long one answer of the server may take", least=0.05)

OPTIONS: tuple[Option[Any], ...] = (
    MODE,
    SOCKET,
    CONNECTIONS,
    CONNECT_TIMEOUT,
    ANSWER_TIMEOUT,
    FENCE_FLOOR,
    *TLS_OPTIONS,
)
RENAMED = {
    "command_timeout": "answer_timeout",
    "read_timeout": "answer_timeout",
    "pool_size": "connections",
    "unix_socket": "socket",
    "ssl_ca": "tls_ca",
    "ssl_cert": "tls_cert",
    "ssl_key": "tls_key",
}
_IGNORED = {"charset": "utf8mb4"}  # what URLs of other programs often say, and what is true here anyway


@dataclass(frozen=True, slots=True)
class MysqlOptions:
    """All of a URL, read."""

    label: str
    host: str
    port: int
    database: str
    user: str | None = None
    password: str = field(default="", repr=False)
    socket: str | None = None
    tls: TLSFiles | None = None
    mode: str = MODE.default
    connections: int = CONNECTIONS.default
    connect_timeout: float = CONNECT_TIMEOUT.default
    answer_timeout: float = ANSWER_TIMEOUT.default
    fence_floor: int = FENCE_FLOOR.default


def parse(url: StoreURL) -> MysqlOptions:
    """Read a URL, or say what is wrong with it."""
    url.refuse_several_hosts()
    given = {name: value for name, value in url.options.items() if _IGNORED.get(name) != value}
    values = read_options(given, OPTIONS, f"{url.scheme}:", RENAMED)
    database = url.path.lstrip("/")
    if not database:
        raise ConfigurationError(
            f"{url.scheme}: needs the database that the tables of leasehold are in: {url.scheme}://user@host/database"
        )
    tls = read_tls(values, used=any(option in values for option in TLS_OPTIONS), secure_url="")
    return MysqlOptions(
        label=str(url),
        host=url.host or "127.0.0.1",
        port=url.port or DEFAULT_PORT,
        database=database,
        user=url.username,
        password=url.password or "",
        socket=values[SOCKET],
        tls=tls,
        mode=values[MODE],
        connections=values[CONNECTIONS],
        connect_timeout=values[CONNECT_TIMEOUT],
        answer_timeout=values[ANSWER_TIMEOUT],
        fence_floor=values[FENCE_FLOOR],
    )
