"""A peer that speaks the protocol of NATS as it is told: for what a real server does too rarely."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Link", "ScriptedServer"]

INFO = {"version": "2.10.0", "headers": True, "jetstream": True, "max_payload": 1_048_576}


class Link:
    """One connection of a client; `lines` has all that it sent but the bodies of messages."""

    def __init__(self, server: ScriptedServer, plain: socket.socket) -> None:
        self._server = server
        self._socket = plain
        self._buffer = b""
        self.lines: list[str] = []
        self.ended = threading.Event()

    def send(self, text: str) -> None:
        """Send this to the client."""
        with suppress(OSError):
            self._socket.sendall(text.encode())

    def answer(self, reply: str, body: str = "{}", status: str = "") -> None:
        """Answer one request."""
        if status:
            head = f"NATS/1.0 {status}\r\n\r\n"
            self.send(f"HMSG {reply} 1 {len(head)} {len(head)}\r\n{head}\r\n")
        else:
            self.send(f"MSG {reply} 1 {len(body)}\r\n{body}\r\n")

    def cut(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def serve(self) -> None:
        """Greet, then hand each line to the server's script."""
        try:
            if self._server.greets:
                self.send(f"INFO {json.dumps({**INFO, **self._server.info})}\r\n")
            while (line := self._line()) is not None:
                self.lines.append(line)
                words = line.split()
                if words[0] in ("PUB", "HPUB"):
                    body = self._bytes(int(words[-1]) + 2)[:-2]
                    self._server.script(self, words[1], words[2], body)
                elif words[0] == "PING":
                    self._server.on_ping(self)
        except (OSError, EOFError):
            pass
        finally:
            self.ended.set()
            self._socket.close()

    def _line(self) -> str | None:
        while b"\r\n" not in self._buffer:
            if not (more := self._socket.recv(65536)):
                return None
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line.decode()

    def _bytes(self, number: int) -> bytes:
        while len(self._buffer) < number:
            if not (more := self._socket.recv(65536)):
                raise EOFError
            self._buffer += more
        found, self._buffer = self._buffer[:number], self._buffer[number:]
        return found


class ScriptedServer:
    """It answers every request with its own subject, unless `script` is replaced."""

    def __init__(self) -> None:
        self.info: dict[str, Any] = {}
        self.greets = True
        self.links: list[Link] = []
        self.script: Callable[[Link, str, str, bytes], object] = self.echo
        self.on_ping: Callable[[Link], object] = lambda link: link.send("PONG\r\n")

    def echo(self, link: Link, subject: str, reply: str, body: bytes) -> None:
        """Answer with the subject."""
        link.answer(reply, json.dumps(subject))

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()
        return str(host), int(port)

    def open_links(self) -> list[Link]:
        """Those that have not ended."""
        return [link for link in self.links if not link.ended.is_set()]

    def __enter__(self) -> ScriptedServer:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=50)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self.links:
            link.cut()
        self._thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                link = Link(self, plain)
                self.links.append(link)
                threading.Thread(target=link.serve, daemon=True).start()
