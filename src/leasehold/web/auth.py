"""Who looks at the dashboard, and whether they may change something. There is no login here: a callable decides.

It is given the connection of a request and returns a `Viewer`, or None to refuse it; it may be `async`. Two are here:
`BasicAuth` with hashed passwords, and `ProxyHeader` for a proxy that has done the login already.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, TypeAlias

import anyio
import anyio.to_thread

from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from starlette.requests import HTTPConnection

__all__ = ["Auth", "BasicAuth", "ProxyHeader", "Role", "Viewer", "hash_password", "read_users"]

SCHEME = "scrypt"
COST = 2**14  # about 30 ms and 16 MiB for each password that is tried
GUESSES = 2  # passwords that are tried at the same time; further guesses wait
REMEMBERED = 256  # credentials that were right are not hashed again with every request


class Role(StrEnum):
    """What a viewer may do."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks; the name goes into the audit and is shown to the holders of broken locks."""

    name: str
    role: Role = Role.READ

    @property
    def may_write(self) -> bool:
        """Whether this viewer may change something."""
        return self.role is Role.WRITE


Auth: TypeAlias = "Callable[[HTTPConnection], Viewer | Awaitable[Viewer | None] | None]"


def hash_password(password: str) -> str:
    """What `BasicAuth` keeps instead of a password."""
    salt = secrets.token_hex(16)
    return f"{SCHEME}${salt}${_digest(password, salt)}"


def _digest(password: str, salt: str) -> str:
    return hashlib.scrypt(password.encode(), salt=salt.encode(), n=COST, r=8, p=1).hex()


def read_users(text: str) -> dict[str, tuple[Role, str]]:
    """The users of a file with a line `name:role:hash` for each; empty lines and those after # are left out."""
    users = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, rest = line.strip().partition(":")
        role, _, hashed = rest.partition(":")
        if not name or role not in set(Role) or not hashed.startswith(f"{SCHEME}$") or hashed.count("$") != 2:
            raise ConfigurationError(
                f"line {number} of the file of users is not name:role:hash, with the role read or write; make a hash "
                "with: leasehold ui --hash-password"
            )
        users[name] = (Role(role), hashed)
    if not users:
        raise ConfigurationError("the file of users has none; add a line name:role:hash")
    return users


class BasicAuth:
    """HTTP basic authentication: `users` gives each name a role and what `hash_password` made of the password.

    It is only as private as the connection: use it behind TLS, or on the loopback address.
    """

    challenge: str = 'Basic realm="leasehold", charset="UTF-8"'

    def __init__(self, users: Mapping[str, tuple[Role, str]]) -> None:
        self._users = dict(users)
        self._nobody = hash_password(secrets.token_hex(8))  # compared with for unknown names, to take as long
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, Viewer] = {}
        self._limiter: anyio.CapacityLimiter | None = None

    async def __call__(self, connection: HTTPConnection) -> Viewer | None:
        """The user whose name and password the request carries; None for any other."""
        header = connection.headers.get("authorization", "")
        mark = hmac.digest(self._key, header.encode("utf-8", "surrogateescape"), "sha256")
        known = self._known.get(mark)
        if known is not None:
            return known
        credentials = _credentials(header)
        if credentials is None:
            return None
        name, password = credentials
        role, hashed = self._users.get(name, (Role.READ, self._nobody))
        salt, expected = hashed.split("$")[1:]
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(GUESSES)
        found = await anyio.to_thread.run_sync(_digest, password, salt, limiter=self._limiter)
        if not hmac.compare_digest(found, expected) or name not in self._users:
            return None
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        viewer = self._known[mark] = Viewer(name, role)
        return viewer


def _credentials(header: str) -> tuple[str, str] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, found, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (name, password) if found else None


class ProxyHeader:
    """A proxy has done the login, and names the user in a header. Only requests from `addresses` are believed.

    The proxy must remove the header from what its own callers send. `writers` are the users who may change something.
    """

    def __init__(
        self, header: str, *, addresses: Iterable[str] = ("127.0.0.1", "::1"), writers: Iterable[str] = ()
    ) -> None:
        self._header = header
        try:
            self._networks = tuple(ip_network(address) for address in addresses)
        except ValueError as error:
            raise ConfigurationError(f"a proxy is trusted by its address or network, and {error}") from None
        self._writers = frozenset(writers)

    def __call__(self, connection: HTTPConnection) -> Viewer | None:
        """The user whom the proxy names; None if it names none, or if the request is not from the proxy."""
        names = connection.headers.getlist(self._header)
        if connection.client is None or len(names) != 1 or not names[0].strip():
            return None
        try:
            address = ip_address(connection.client.host)
        except ValueError:
            return None
        if not any(address in network for network in self._networks):
            return None
        name = names[0].strip()
        return Viewer(name, Role.WRITE if name in self._writers else Role.READ)
