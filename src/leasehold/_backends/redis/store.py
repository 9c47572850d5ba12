"""From a URL, or a redis-py client of the user's own, to a store. No I/O here."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.backend import RedisBackend
from leasehold._backends.redis.keys import Names
from leasehold._backends.redis.options import (
    DB,
    OPTIONS,
    PASSED_ON,
    PASSED_ON_TLS,
    PORT,
    RENAMED,
    SENTINEL,
    SENTINEL_PASSWORD,
    SENTINEL_USERNAME,
    TLS,
    Options,
)
from leasehold._backends.redis.router import Router
from leasehold._backends.redis.topology import Cluster, OneServer, SentinelGroup
from leasehold._backends.redis.wire import CONNECT_TIMEOUT, Dialer, Node
from leasehold._words import kind_of
from leasehold.errors import ConfigurationError
from leasehold.kit.options import TLS_OPTIONS, read_options, read_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leasehold._backends.redis.topology import Topology
    from leasehold._backends.redis.wire import Wire
    from leasehold.kit.options import Values
    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL

__all__ = ["RedisStore", "adopt", "database_of", "new_dialer", "open_url", "require_driver"]

SENTINEL_PORT = 26379
PLAIN, SECURE, LOCAL = "Connection", "SSLConnection", "UnixDomainSocketConnection"


class RedisStore:
    """One Redis store: how to reach its servers, and how it behaves."""

    def __init__(self, dialer: Dialer, topology: Callable[[], Topology], options: Options, label: str) -> None:
        self.label = label
        self.dialer = dialer
        self.options = options
        self._topology = topology

    def open_backend(self, runtime: Runtime) -> Backend:
        """Make a backend; each has connections and knowledge of its own."""
        router = Router(self._wire(runtime), self._topology(), runtime, self.label)
        names = Names(self.options.prefix, compat=self.options.compat)
        return RedisBackend(router, names, self.options, runtime, self.label)

    def _wire(self, runtime: Runtime) -> Wire:
        """The wire for this runtime; asyncio is loaded only where it is used."""
        if not runtime.blocking:
            from leasehold._backends.redis.asyncio_wire import AsyncioWire  # noqa: PLC0415

            return AsyncioWire(self.dialer, runtime, self.label)
        from leasehold._backends.redis.blocking_wire import BlockingWire  # noqa: PLC0415

        return BlockingWire(self.dialer, runtime, self.label)


# --- from a URL ------------------------------------------------------------------------------------------------------


def open_url(url: StoreURL) -> Store:
    """`redis://`, `rediss://`, `unix://`, `valkey://`, `redis+sentinel://`, `redis+cluster://`."""
    require_driver()
    family, _, kind = url.scheme.partition("+")
    values = read_options(url.options, _options_of(family, kind), f"{url.scheme}:", RENAMED)
    options, label = Options.of(values), str(url)
    if family == "unix":
        return _unix(url, values, options, label)
    secure = family in ("rediss", "valkeys") or values[TLS]
    secure_url = f"write {family}s+{kind}:// or add tls=yes" if kind else f"write {family}s://"
    if kind == "sentinel":
        dialer = new_dialer(url, values, secure=secure, secure_url=secure_url, sentinel=_sentinel_arguments(values))
        return _sentinel(url, dialer, options, label)
    database = database_of(url, values)
    dialer = new_dialer(url, values, secure=secure, secure_url=secure_url, db=database)
    if kind == "cluster":
        return _cluster(url, dialer, database, options, label)
    url.refuse_several_hosts()
    node = Node(url.host or "localhost", url.port or PORT)
    return RedisStore(dialer, lambda: OneServer(node), options, label)


def _options_of(family: str, kind: str) -> list[Any]:
    """Those that mean something for this scheme; any other is refused by name."""
    without: list[Any] = [] if kind else [TLS]
    if kind != "sentinel":
        without += SENTINEL
    if family == "unix":
        without += [*TLS_OPTIONS, *PASSED_ON_TLS]
    return [option for option in OPTIONS if option not in without]


def new_dialer(
    url: StoreURL,
    values: Values,
    *,
    secure: bool,
    secure_url: str,
    db: int | None = None,
    connect_timeout: float = CONNECT_TIMEOUT,
    sentinel: Mapping[str, Any] | None = None,
) -> Dialer:
    """What makes connections for this URL; `secure_url` is the advice for a URL that should use TLS."""
    timeouts = {"socket_connect_timeout": connect_timeout, "socket_timeout": connect_timeout}
    arguments = timeouts | _passed_on(url, values)
    if db is not None:
        arguments["db"] = db
    files = read_tls(values, used=secure, secure_url=secure_url)
    if files is None:
        if useless := next((option.name for option in PASSED_ON_TLS if option in values), None):
            raise ConfigurationError(f"{useless} has no meaning without TLS; {secure_url}")
        return Dialer(PLAIN, arguments, sentinel)
    arguments |= {option.name: values[option] for option in PASSED_ON_TLS if option in values}
    if "ssl_min_version" in arguments:
        arguments["ssl_min_version"] = _tls_version(arguments["ssl_min_version"])
    arguments["ssl_cert_reqs"] = "required" if files.verify else "none"
    arguments["ssl_check_hostname"] = files.verify and arguments.get("ssl_check_hostname", True)
    arguments |= {"ssl_ca_certs": files.ca, "ssl_certfile": files.cert, "ssl_keyfile": files.key}
    arguments["ssl_password"] = files.key_password
    return Dialer(SECURE, arguments, sentinel)


def _passed_on(url: StoreURL, values: Values) -> dict[str, Any]:
    """The parameters of redis-py's connections that have nothing to do with TLS."""
    arguments: dict[str, Any] = {"username": url.username or None, "password": url.password}
    return arguments | {option.name: values[option] for option in PASSED_ON if option in values}


def _tls_version(name: str) -> ssl.TLSVersion:
    try:
        return ssl.TLSVersion[name]
    except KeyError:
        raise ConfigurationError(f"ssl_min_version must be TLSv1_2 or TLSv1_3, not {name!r}") from None


def _sentinel_arguments(values: Values) -> dict[str, Any]:
    return {"db": 0, "username": values[SENTINEL_USERNAME], "password": values[SENTINEL_PASSWORD]}


def database_of(url: StoreURL, values: Values) -> int:
    """The path of the URL, or `db`; a Cluster has no other than 0."""
    path = url.path.strip("/")
    if path and not (path.isascii() and path.isdigit()):
        raise ConfigurationError(f"{url.scheme}: the path is the number of a database, not {path!r}")
    return int(path) if path else values[DB]


def _unix(url: StoreURL, values: Values, options: Options, label: str) -> Store:
    if not url.path or url.host:
        raise ConfigurationError("unix: takes the path of a socket: unix:///run/redis.sock")
    dialer = Dialer(LOCAL, _passed_on(url, values) | {"db": values[DB]})
    node = Node("", 0, url.path)
    return RedisStore(dialer, lambda: OneServer(node), options, label)


def _sentinel(url: StoreURL, dialer: Dialer, options: Options, label: str) -> Store:
    service, _, database = url.path.strip("/").partition("/")
    if not service:
        raise ConfigurationError(f"{url.scheme}: needs the name of the service: {url.scheme}://h1,h2,h3/mymaster")
    if database:
        raise ConfigurationError(f"{url.scheme}: the database is an option: ?db={database}")
    nodes = [Node(host or "localhost", port or SENTINEL_PORT, is_sentinel=True) for host, port in url.hosts]
    return RedisStore(dialer, lambda: SentinelGroup(nodes, service, label), options, label)


def _cluster(url: StoreURL, dialer: Dialer, database: int, options: Options, label: str) -> Store:
    if database:
        raise ConfigurationError(f"{url.scheme}: a Cluster has one database, 0; leave the number out")
    nodes = [Node(host or "localhost", port or PORT) for host, port in url.hosts]
    return RedisStore(dialer, lambda: Cluster(nodes, label), options, label)


# --- from a client of the user's own ---------------------------------------------------------------------------------


def adopt(client: Any, given: Mapping[str, str]) -> Store:
    """A store over the servers of a redis-py (or valkey-py) client, blocking or asyncio.

    Its address, credentials and TLS settings are used for connections of our own: its retries and its way of decoding
    replies would not do for a lock, and its pool stays its own.
    """
    require_driver()
    options = Options.read(given, f"{kind_of(client)} client")
    if type(client).__name__ in ("RedisCluster", "ValkeyCluster"):
        return _adopt_cluster(client, options)
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise ConfigurationError(f"cannot lock with {kind_of(client)}: pass a redis-py client or a URL")
    kind = pool.connection_class.__name__
    arguments = dict(pool.connection_kwargs)
    if "Sentinel" in kind:
        return _adopt_sentinel(pool, kind, arguments, options)
    if kind not in (PLAIN, SECURE, LOCAL):
        raise ConfigurationError(f"cannot lock over a {kind}: pass a URL, or a client with redis-py's own connections")
    node = Node(arguments.get("host", "localhost"), int(arguments.get("port", PORT)), arguments.get("path", ""))
    scheme = {PLAIN: "redis", SECURE: "rediss", LOCAL: "unix"}[kind]
    return RedisStore(Dialer(kind, arguments), lambda: OneServer(node), options, f"{scheme}://{node}")


def _adopt_sentinel(pool: Any, kind: str, arguments: dict[str, Any], options: Options) -> Store:
    nodes, own = [], {}
    for sentinel in pool.sentinel_manager.sentinels:
        own = dict(sentinel.connection_pool.connection_kwargs)
        nodes.append(Node(own["host"], int(own["port"]), is_sentinel=True))
    credentials = {"username": own.get("username"), "password": own.get("password"), "db": 0}
    label = f"redis+sentinel://{','.join(map(str, nodes))}/{pool.service_name}"
    dialer = Dialer(SECURE if "SSL" in kind else PLAIN, arguments, credentials)
    return RedisStore(dialer, lambda: SentinelGroup(nodes, pool.service_name, label), options, label)


# Of the parameters of a Cluster client those that its connections take, and none that concern the Cluster.
OF_CONNECTIONS = frozenset(
    {option.name for option in (*PASSED_ON, *PASSED_ON_TLS)} | {name for name in RENAMED if name.startswith("ssl_")}
)


def _adopt_cluster(client: Any, options: Options) -> Store:
    manager = client.nodes_manager
    nodes = [Node(node.host, int(node.port)) for node in manager.startup_nodes.values()]
    arguments = dict(getattr(manager, "connection_kwargs", None) or client.connection_kwargs)
    secure = any(name.startswith("ssl_context") or name == "ssl_cert_reqs" for name in arguments)
    arguments = {name: value for name, value in arguments.items() if name in OF_CONNECTIONS}
    label = f"redis+cluster://{','.join(map(str, nodes))}"
    return RedisStore(Dialer(SECURE if secure else PLAIN, arguments), lambda: Cluster(nodes, label), options, label)


def require_driver() -> None:
    """Refuse to go on without redis-py and hiredis."""
    from importlib.util import find_spec  # noqa: PLC0415

    missing = [name for name in ("redis", "hiredis") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the redis store needs {' and '.join(missing)}, which is not installed: pip install 'leasehold[redis]'"
        )
