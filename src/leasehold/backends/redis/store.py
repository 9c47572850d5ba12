"""From a URL, or a redis-py client of the user's own, to a store. No I/O here."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from leasehold.backends.redis.backend import RedisBackend
from leasehold.backends.redis.courier import Courier
from leasehold.backends.redis.keys import Names
from leasehold.backends.redis.options import OURS, Options
from leasehold.backends.redis.topology import Cluster, OneServer, SentinelGroup
from leasehold.backends.redis.wire import Dialer, Node
from leasehold.errors import ConfigurationError
from leasehold.store_url import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leasehold.backends.redis.topology import Topology
    from leasehold.backends.redis.wire import Wire
    from leasehold.spi import Backend, Runtime, Store
    from leasehold.store_url import StoreURL

__all__ = ["RedisStore", "adopt", "open_url"]

PORT, SENTINEL_PORT = 6379, 26379
TLS_OPTIONS = (
    "ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_ciphers",
    "ssl_keyfile", "ssl_min_version", "ssl_password",
)  # fmt: skip
THEIRS = ("client_name", "db", "password", "protocol", "socket_connect_timeout", "socket_keepalive", "socket_timeout",
          "username")  # fmt: skip
SENTINEL_OPTIONS = ("sentinel_password", "sentinel_username")
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
        courier = Courier(self._wire(runtime), self._topology(), runtime, self.label)
        names = Names(self.options.prefix, compat=self.options.compat)
        return RedisBackend(courier, names, self.options, runtime, self.label)

    def _wire(self, runtime: Runtime) -> Wire:
        return open_wire(self.dialer, runtime, self.label)


def open_wire(dialer: Dialer, runtime: Runtime, label: str) -> Wire:
    """The wire for this runtime; asyncio is loaded only where it is used."""
    if not runtime.blocking:
        from leasehold.backends.redis.asyncio_wire import AsyncioWire  # noqa: PLC0415

        return AsyncioWire(dialer, runtime, label)
    from leasehold.backends.redis.blocking_wire import BlockingWire  # noqa: PLC0415

    return BlockingWire(dialer, runtime, label)


def open_url(url: StoreURL) -> Store:
    """`redis://`, `rediss://`, `unix://`, `valkey://`, `redis+sentinel://`, `redis+cluster://`."""
    _require_driver()
    family, _, kind = url.scheme.partition("+")
    secure = family in ("rediss", "valkeys") or url.options.get("tls", "0") not in ("0", "no", "false")
    url.refuse_options(
        *OURS,
        *THEIRS,
        *(TLS_OPTIONS if secure else ()),
        *(SENTINEL_OPTIONS if kind == "sentinel" else ()),
        *(("tls",) if kind else ()),
    )
    options = Options.read(url.options)
    arguments = _arguments(url, secure=secure)
    label = str(url)
    if family == "unix":
        return _unix(url, arguments, options, label)
    class_name = SECURE if secure else PLAIN
    if kind == "sentinel":
        return _sentinel(url, Dialer(class_name, arguments, _sentinel_arguments(url)), options, label)
    if kind == "cluster":
        return _cluster(url, Dialer(class_name, arguments), options, label)
    url.refuse_several_hosts()
    arguments["db"] = _database(url, url.path)
    node = Node(url.host or "localhost", url.port or PORT)
    return RedisStore(Dialer(class_name, arguments), lambda: OneServer(node), options, label)


def adopt(client: Any, given: Mapping[str, str]) -> Store:
    """A store over the servers of a redis-py (or valkey-py) client, blocking or asyncio.

    Its address, credentials and TLS settings are used for connections of our own: its retries and its way of decoding
    replies would not do for a lock, and its pool stays its own.
    """
    _require_driver()
    refuse_unknown(given, OURS, f"a {type(client).__name__} client")
    options = Options.read(given)
    if type(client).__name__ in ("RedisCluster", "ValkeyCluster"):
        return _adopt_cluster(client, options)
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        raise ConfigurationError(f"cannot lock with a {type(client).__name__}: pass a redis-py client or a URL")
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


def _adopt_cluster(client: Any, options: Options) -> Store:
    manager = client.nodes_manager
    nodes = [Node(node.host, int(node.port)) for node in manager.startup_nodes.values()]
    arguments = dict(getattr(manager, "connection_kwargs", None) or client.connection_kwargs)
    secure = any(name.startswith("ssl_context") or name == "ssl_cert_reqs" for name in arguments)
    arguments = {name: value for name, value in arguments.items() if name in (*THEIRS, *TLS_OPTIONS)}
    label = f"redis+cluster://{','.join(map(str, nodes))}"
    return RedisStore(Dialer(SECURE if secure else PLAIN, arguments), lambda: Cluster(nodes, label), options, label)


def _unix(url: StoreURL, arguments: dict[str, Any], options: Options, label: str) -> Store:
    if not url.path or url.host:
        raise ConfigurationError("unix: takes the path of a socket: unix:///run/redis.sock")
    arguments["db"] = _database(url, "")
    node = Node("", 0, url.path)
    return RedisStore(Dialer(LOCAL, arguments), lambda: OneServer(node), options, label)


def _sentinel(url: StoreURL, dialer: Dialer, options: Options, label: str) -> Store:
    service, _, database = url.path.strip("/").partition("/")
    if not service:
        raise ConfigurationError("redis+sentinel: needs the name of the service: redis+sentinel://h1,h2,h3/mymaster")
    if database:
        raise ConfigurationError("redis+sentinel: the database is an option: ?db=1")
    nodes = [Node(host or "localhost", port or SENTINEL_PORT, is_sentinel=True) for host, port in url.hosts]
    return RedisStore(dialer, lambda: SentinelGroup(nodes, service, label), options, label)


def _cluster(url: StoreURL, dialer: Dialer, options: Options, label: str) -> Store:
    if url.path.strip("/") not in ("", "0") or url.options.get("db", "0") != "0":
        raise ConfigurationError("redis+cluster: has one database, 0")
    nodes = [Node(host or "localhost", port or PORT) for host, port in url.hosts]
    return RedisStore(dialer, lambda: Cluster(nodes, label), options, label)


def _arguments(url: StoreURL, *, secure: bool) -> dict[str, Any]:
    """The parameters of redis-py's connections; TLS is verified unless the URL says otherwise."""
    arguments: dict[str, Any] = {}
    for name, value in url.options.items():
        if name in THEIRS or name in TLS_OPTIONS:
            arguments[name] = _converted(name, value)
    arguments.setdefault("username", url.username)
    arguments.setdefault("password", url.password)
    if arguments["username"] == "":
        arguments["username"] = None
    if secure:
        arguments.setdefault("ssl_cert_reqs", "required")
        verified = arguments["ssl_cert_reqs"] != "none"
        arguments.setdefault("ssl_check_hostname", verified)
    return arguments


def _sentinel_arguments(url: StoreURL) -> dict[str, Any]:
    names = {"username": "sentinel_username", "password": "sentinel_password"}
    return {"db": 0, **{name: url.options.get(option) for name, option in names.items()}}


def _converted(name: str, value: str) -> Any:
    try:
        if name in ("db", "protocol"):
            return int(value)
        if name in ("socket_timeout", "socket_connect_timeout"):
            return float(value)
        if name == "ssl_min_version":
            return ssl.TLSVersion[value]
    except (ValueError, KeyError):
        raise ConfigurationError(f"{name} cannot be {value!r}") from None
    if name in ("ssl_check_hostname", "socket_keepalive"):
        return value.lower() in ("1", "true", "yes")
    return value


def _database(url: StoreURL, path: str) -> int:
    text = path.strip("/") or url.options.get("db", "0")
    if not (text.isascii() and text.isdigit()):
        raise ConfigurationError(f"{url.scheme}: the path is the number of a database, not {text!r}")
    return int(text)


def _require_driver() -> None:
    from importlib.util import find_spec  # noqa: PLC0415

    missing = [name for name in ("redis", "hiredis") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the redis store needs {' and '.join(missing)}, which is not installed: pip install 'leasehold[redis]'"
        )
