"""A store's address, taken apart; shown without its password.

A store of several servers names them all: `scheme://user:password@h1:1,h2,h3:3/path`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from leasehold._record import field, record
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["StoreURL", "refuse_unknown", "spelled"]


@record(frozen=True, slots=True)
class StoreURL:
    """`scheme://user:password@host:port/path?option=value`, or `scheme:path`."""

    scheme: str
    hosts: tuple[tuple[str, int | None], ...]
    path: str
    username: str | None
    password: str | None = field(repr=False)
    options: dict[str, str] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> StoreURL:
        """Take a URL apart, or say what is wrong with it. The message never repeats the URL: it may hold a password."""
        if ":" not in text:
            raise ConfigurationError("a store URL looks like memory://NAME or redis://host; this one has no scheme")
        try:
            parts = urlsplit(text)
        except ValueError as error:
            raise ConfigurationError(f"the store URL cannot be read: {error}") from None
        if parts.fragment:
            raise ConfigurationError("the store URL has a '#'; write it as %23 if it belongs to a name or password")
        options = parse_qsl(parts.query, keep_blank_values=True)
        if len(dict(options)) < len(options):
            raise ConfigurationError("the store URL gives the same option twice")
        return cls(
            scheme=parts.scheme.lower(),
            hosts=tuple(_host_and_port(text) for text in parts.netloc.rpartition("@")[2].split(",")),
            path=unquote(parts.path),
            username=None if parts.username is None else unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
            options=dict(options),
        )

    @property
    def host(self) -> str:
        """The host, where there is one only."""
        return self.hosts[0][0]

    @property
    def port(self) -> int | None:
        """Its port, where one was given."""
        return self.hosts[0][1]

    def refuse_several_hosts(self) -> None:
        """Refuse a list of hosts, for stores that are one server."""
        if len(self.hosts) > 1:
            raise ConfigurationError(f"{self.scheme}: takes one host, and this URL names {len(self.hosts)}")

    def refuse_options(self, *known: str) -> None:
        """Refuse every option that the store does not know, by name."""
        refuse_unknown(self.options, known, f"{self.scheme}:")

    def __str__(self) -> str:
        """The address without password and options."""
        user = f"{self.username}@" if self.username else ""
        return f"{self.scheme}://{user}{','.join(map(_shown, self.hosts))}{self.path}"


def refuse_unknown(options: Mapping[str, str], known: tuple[str, ...], owner: str) -> None:
    """Refuse every option that is not known, by name."""
    for option in options:
        if option not in known:
            allowed = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ConfigurationError(f"{owner} has no option {option!r}; {allowed}")


def spelled(options: Mapping[str, object]) -> dict[str, str]:
    """Options given as Python values, in the words that a URL has for them."""
    words: dict[str, str] = {}
    for name, value in options.items():
        if not isinstance(value, (str, int, float)):
            raise ConfigurationError(f"option {name} must be a text, a number, True or False, not {value!r}")
        words[name] = str(int(value)) if isinstance(value, bool) else str(value)
    return words


def _host_and_port(text: str) -> tuple[str, int | None]:
    """`host`, `host:port` or `[::1]:port`. Not lower-cased: the name of a memory store may have capitals."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, ""
    elif not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigurationError("the store URL has a port that is no number from 1 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigurationError("the store URL has a host with a ':'; write an IPv6 address as [::1]")
    return unquote(host), int(port) if port else None


def _shown(node: tuple[str, int | None]) -> str:
    host, port = node
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"
