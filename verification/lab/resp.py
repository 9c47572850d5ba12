"""The barest client of a Redis server: one connection, one question, one answer. It repeats nothing and hides nothing.

The tests use it to look at a server and to hurt it; what is tested never uses it.
"""

from __future__ import annotations

import socket
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

__all__ = ["Connection", "ErrorReply"]

PATIENCE = 10.0


class ErrorReply(Exception):
    """The server answered with an error; the text is the server's own."""


class Connection:
    """One connection to a server, over TCP or a unix socket; use it as a context manager."""

    def __init__(
        self,
        address: tuple[str, int] | Path,
        *,
        login: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._reader: Any = import_module("hiredis").Reader()
        self._pack: Any = import_module("hiredis").pack_command
        self._socket = _open(address, patience)
        try:
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")
            if login is not None:
                self.ask("AUTH", *login)
        except BaseException:
            self.close()
            raise

    def ask(self, *words: str | bytes | float) -> Any:
        """Send one command and wait for its answer."""
        self.send(*words)
        return self.receive()

    def send(self, *words: str | bytes | float) -> None:
        """Send one command only."""
        self._socket.sendall(self._pack(tuple(words)))

    def receive(self) -> Any:
        """Wait for one answer."""
        while (answer := self._reader.gets()) is False:
            chunk = self._socket.recv(65536)
            if not chunk:
                raise ConnectionResetError("the server hung up")
            self._reader.feed(chunk)
        if isinstance(answer, Exception):
            raise ErrorReply(str(answer))
        return answer

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(address: tuple[str, int] | Path, patience: float) -> socket.socket:
    if isinstance(address, tuple):
        return socket.create_connection(address, timeout=patience)
    opened = socket.socket(socket.AF_UNIX)
    try:
        opened.settimeout(patience)
        opened.connect(str(address))
    except BaseException:
        opened.close()
        raise
    return opened
