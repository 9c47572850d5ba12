"""Sockets to a server, plain or with TLS. kazoo's own function leaves one open whenever a certificate is refused.

`close_session` is the one exchange that needs no answer: it moves a session to a new connection and closes it there, in
one message.
"""

from __future__ import annotations

import functools
import socket
import ssl
import struct
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kazoo.protocol.serialization import Close, Connect

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["close_session", "open_socket"]

ANY_ZXID = 0  # a server refuses clients that have seen later transactions than itself
SHORTEST_TIMEOUT_MS = 1  # of the session, should only the first half of the message arrive: the ensemble bounds it


def open_socket(
    address: tuple[str, int],
    *,
    hostname: str | None = None,
    timeout: float | None = None,
    use_ssl: bool = False,
    ca: str | None = None,
    certfile: str | None = None,
    keyfile: str | None = None,
    keyfile_password: str | None = None,
    verify_certs: bool = True,
    check_hostname: bool = False,
) -> socket.socket:
    """Connect within the timeout. The names of the parameters are kazoo's."""
    plain = socket.create_connection(address, timeout)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not use_ssl:
            return plain
        context = _context(ca, (certfile, keyfile, keyfile_password), verify_certs, check_hostname)
        return context.wrap_socket(plain, server_hostname=hostname or address[0])
    except BaseException:
        plain.close()
        raise


def close_session(hosts: Sequence[tuple[str, int]], session: tuple[int, bytes], timeout: float, **options: Any) -> None:
    """Send one server after the other the request to close a session, until one answers."""
    number, password = session
    takeover = Connect(0, ANY_ZXID, SHORTEST_TIMEOUT_MS, number, password, False).serialize()  # noqa: FBT003 - kazoo's
    close = struct.pack("!ii", 1, Close.type)
    message = b"".join(struct.pack("!i", len(part)) + bytes(part) for part in (takeover, close))
    for host in hosts:
        try:
            with closing(open_socket(host, timeout=timeout, **options)) as connection:
                connection.settimeout(timeout)
                connection.sendall(message)
                if connection.recv(1):
                    while connection.recv(4096):  # until the server has read all: an earlier close could revoke it
                        pass
                    return
        except OSError:  # the next server may be reachable
            continue


@functools.lru_cache(maxsize=16)
def _context(
    ca: str | None,
    shown: tuple[str | None, str | None, str | None],  # certificate, key, password of the key
    verify_certs: bool,  # noqa: FBT001 - the cache takes plain arguments
    check_hostname: bool,  # noqa: FBT001 - the cache takes plain arguments
) -> ssl.SSLContext:
    """Made once: loading authorities takes longer than the handshake."""
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = check_hostname and verify_certs
    context.verify_mode = ssl.CERT_REQUIRED if verify_certs else ssl.CERT_NONE
    certfile, keyfile, keyfile_password = shown
    if certfile:
        context.load_cert_chain(certfile, keyfile, keyfile_password)
    return context
