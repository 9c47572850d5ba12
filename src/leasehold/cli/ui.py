"""`ui`: the dashboard as a server of its own; on the loopback address, unless its viewers are named."""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leasehold.cli import exit_codes
from leasehold.cli.break_lock import operator
from leasehold.cli.connection import announce, open_client, refuse_private_store
from leasehold.cli.listen import listen_address
from leasehold.cli.output import print_lines
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from leasehold.cli.output import Console
    from leasehold.web import Auth

__all__ = ["serving", "ui", "wait_for_a_signal"]

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
FAREWELL = 1  # seconds that open pages have to end when the server does


def ui(arguments: Namespace, console: Console) -> int:
    """Serve until a signal ends it."""
    if arguments.hash_password:
        return _print_hash()
    from leasehold.web import dashboard  # noqa: PLC0415 - the extra `web`

    host, port = listen_address(arguments.listen)
    auth = _auth(arguments, host)
    with open_client(arguments, label="leasehold ui") as client:
        refuse_private_store(client)
        announce(client, console)
        app = dashboard(
            client,
            auth=auth,
            database=arguments.database,
            elections=arguments.election or ("election:*", "leader:*"),
            jobs=arguments.job or (),
            audit=arguments.audit,
            hosts=(*LOCAL_NAMES, host, socket.gethostname(), *(arguments.allow_host or ())),
        )
        with serving(app, host, port) as url:
            console.note(f"dashboard: {url}")
            wait_for_a_signal()
    return exit_codes.OK


@contextmanager
def serving(app: Any, host: str, port: int) -> Iterator[str]:
    """Serve the application in a thread; gives its address."""
    import uvicorn  # noqa: PLC0415 - the extra `web`

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Signals belong to the command."""
            yield

    listener = _listener(host, port)
    config = uvicorn.Config(
        app, log_level="critical", access_log=False, proxy_headers=False, server_header=False, lifespan="on",
        timeout_graceful_shutdown=FAREWELL,
    )  # fmt: skip
    server = Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="leasehold ui", daemon=True)
    thread.start()
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()


def wait_for_a_signal() -> None:
    """Until TERM or INT."""
    ended = threading.Event()
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        ended.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigurationError(f"cannot listen at {host}:{port}: {error.strerror or error}; use --listen") from error


def _auth(arguments: Namespace, host: str) -> Auth:
    """Who may look: the users of a file, those of a proxy, or on the loopback address all of this host."""
    from leasehold.web import BasicAuth, ProxyHeader, Role, Viewer  # noqa: PLC0415
    from leasehold.web.auth import read_users  # noqa: PLC0415

    if arguments.auth and arguments.proxy_user:
        raise ConfigurationError("--auth and --proxy-user are two ways to know a user; choose one")
    if (arguments.auth or arguments.proxy_user) and arguments.write:
        raise ConfigurationError("--write is for a dashboard without users; give a user the role write, or --writer")
    if arguments.auth:
        return BasicAuth(read_users(_text_of(Path(arguments.auth))))
    if arguments.proxy_user:
        addresses = arguments.proxy_address or ("127.0.0.1", "::1")
        return ProxyHeader(arguments.proxy_user, addresses=addresses, writers=arguments.writer or ())
    if not _is_loopback(host):
        raise ConfigurationError(
            f"{host} can be reached by others, and there is no --auth: they could see all locks. Add --auth FILE "
            "or --proxy-user HEADER, or listen at 127.0.0.1"
        )
    viewer = Viewer(operator(), Role.WRITE if arguments.write else Role.READ)
    return lambda _: viewer


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the file of users {str(path)!r} cannot be read: {error}") from None


def _print_hash() -> int:
    from getpass import getpass  # noqa: PLC0415

    from leasehold.web import hash_password  # noqa: PLC0415

    password = getpass("password: ")
    if not password:
        raise ConfigurationError("an empty password would protect nothing; nothing was hashed")
    print_lines([hash_password(password)])
    return exit_codes.OK
