"""The dashboard: the locks of a store in a browser, mounted in an application or served by `leasehold ui`.

    app.mount("/locks", leasehold.web.dashboard("redis://db-1", auth=my_auth))

It reads by default. Who may change something is decided by `auth`: a callable that is given the request and
returns a `Viewer`, or None to refuse it. It needs the extra `web`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold._lazy import LazyNames

if TYPE_CHECKING:
    from leasehold.web.app import dashboard
    from leasehold.web.auth import Auth, BasicAuth, ProxyHeader, Role, Viewer, hash_password

__all__ = ["Auth", "BasicAuth", "ProxyHeader", "Role", "Viewer", "dashboard", "hash_password"]

_names = LazyNames(
    __name__,
    {
        "leasehold.web.app": ["dashboard"],
        "leasehold.web.auth": ["Auth", "BasicAuth", "ProxyHeader", "Role", "Viewer", "hash_password"],
    },
)

if not TYPE_CHECKING:  # so that type checkers refuse a name that is not there

    def __getattr__(name: str) -> Any:
        try:
            return _names.find(name)
        except ModuleNotFoundError as missing:
            from leasehold.errors import ConfigurationError  # noqa: PLC0415 - not needed when all goes well

            raise ConfigurationError(
                f"the dashboard needs {missing.name}, which is not installed: pip install 'leasehold[web]'"
            ) from missing
