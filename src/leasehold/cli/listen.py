"""Where a server of the command line listens."""

from __future__ import annotations

from leasehold.errors import ConfigurationError

__all__ = ["listen_address"]


def listen_address(text: str) -> tuple[str, int]:
    """Host and port of --listen; an IPv6 address has brackets there."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ConfigurationError(f"--listen takes HOST:PORT, such as 127.0.0.1:9479, not {text!r}")
    return host.strip("[]"), int(port)
