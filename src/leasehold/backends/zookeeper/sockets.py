"""Sockets to a server, plain or with TLS. kazoo's own way leaves one open whenever a certificate is refused."""

from __future__ import annotations

import functools
import socket
import ssl

__all__ = ["open_socket"]


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
    """Connect within the timeout. The names of the options are kazoo's."""
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


@functools.lru_cache(maxsize=16)
def _context(
    ca: str | None,
    shown: tuple[str | None, str | None, str | None],  # certificate, key, password of the key
    verify_certs: bool,  # noqa: FBT001 - the cache wants plain arguments
    check_hostname: bool,  # noqa: FBT001 - the cache wants plain arguments
) -> ssl.SSLContext:
    """Made once: loading authorities takes longer than the handshake."""
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = check_hostname and verify_certs
    context.verify_mode = ssl.CERT_REQUIRED if verify_certs else ssl.CERT_NONE
    certfile, keyfile, keyfile_password = shown
    if certfile:
        context.load_cert_chain(certfile, keyfile, keyfile_password)
    return context
