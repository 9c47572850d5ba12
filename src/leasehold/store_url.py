"""A store's address, taken apart; shown without its password."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from leasehold.errors import ConfigurationError

__all__ = ["StoreURL"]


@dataclass(frozen=True, slots=True)
class StoreURL:
    """`scheme://user:password@host:port/path?option=value`, or `scheme:path`."""

    scheme: str
    host: str
    port: int | None
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
            port = parts.port
        except ValueError as error:
            raise ConfigurationError(f"the store URL cannot be read: {error}") from None
        if parts.fragment:
            raise ConfigurationError("the store URL has a '#'; write it as %23 if it belongs to a name or password")
        options = parse_qsl(parts.query, keep_blank_values=True)
        if len(dict(options)) < len(options):
            raise ConfigurationError("the store URL gives the same option twice")
        # `hostname` is lower-cased, and the name of a memory store may have capitals
        host = parts.netloc.rpartition("@")[2]
        if port is not None:
            host = host.rpartition(":")[0]
        return cls(
            scheme=parts.scheme.lower(),
            host=unquote(host),
            port=port,
            path=unquote(parts.path),
            username=None if parts.username is None else unquote(parts.username),
            password=None if parts.password is None else unquote(parts.password),
            options=dict(options),
        )

    def refuse_options(self, *known: str) -> None:
        """Refuse every option that the store does not know, by name."""
        for option in self.options:
            if option not in known:
                allowed = f"it takes {', '.join(known)}" if known else "it takes none"
                raise ConfigurationError(f"{self.scheme}: has no option {option!r}; {allowed}")

    def __str__(self) -> str:
        """The address without password and options."""
        user = f"{self.username}@" if self.username else ""
        port = f":{self.port}" if self.port is not None else ""
        return f"{self.scheme}://{user}{self.host}{port}{self.path}"
