"""What lends connections: a pool or an engine of the user's own. Each driver has a module of its own for its kinds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

from leasehold._backends.postgres.deadlines import in_time, in_time_async
from leasehold._words import kind_of
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.postgres.driver import AnyConnection
    from leasehold.spi import Runtime

__all__ = ["EngineLender", "Lender", "OneLoop", "label_of", "lender_for", "require_process"]


class Lender(Protocol):
    """One kind of pool. A loan is the object that has to be given back."""

    blocking: bool
    label: str
    driver_errors: tuple[type[Exception], ...]  # what the driver raises when the server cannot be reached, or refuses

    async def borrow(self, seconds: float) -> tuple[Any, Any]:
        """A loan and the driver's connection, within so many seconds."""

    async def give_back(self, loan: Any, *, broken: bool) -> None:
        """End a loan; a broken connection must not be lent again."""

    def check(self) -> None:
        """Refuse to work where it cannot."""

    def connection(self, driver_connection: Any, runtime: Runtime, timeout: float) -> AnyConnection | None:
        """Ours over the driver's; None if that is closed."""

    async def another(
        self, like: Any, runtime: Runtime, timeout: float, is_over: Callable[[], bool]
    ) -> AnyConnection | None:
        """A connection of our own, made as this one of the driver's was; None where that cannot be."""


class EngineLender:
    """A SQLAlchemy engine for PostgreSQL, plain or async. It notices a fork by itself.

    Its pool waits for as long as the engine's own settings say, and a new connection for as long as the driver's do.
    Where that may happen, it runs beside the caller, which gives up in time.
    """

    driver_errors: tuple[type[Exception], ...]

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._one_loop = OneLoop()
        self.blocking = not hasattr(engine, "sync_engine")
        url = engine.url
        self.label = label_of({"user": url.username, "host": url.host, "port": url.port, "dbname": url.database})

    async def borrow(self, seconds: float) -> tuple[Any, Any]:
        from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - it is there: we were given its engine

        try:
            if self.blocking:
                connect = self._engine.connect
                loan = connect() if self._has_idle() else in_time(connect, lambda late: late.close(), seconds)
                return loan, loan.connection.driver_connection
            if self._has_idle():
                loan = await self._engine.connect()
            else:
                loan = await in_time_async(self._lend, lambda late: late.close(), seconds)
            return loan, (await loan.get_raw_connection()).driver_connection
        except DBAPIError as error:
            for below in (error.orig, getattr(error.orig, "__cause__", None)):  # some drivers are wrapped twice
                if isinstance(below, self.driver_errors):
                    raise below from None
            raise

    async def _lend(self) -> Any:
        return await self._engine.connect()

    def _has_idle(self) -> bool:
        """Whether there is a connection that is lent without a round trip to the server."""
        pool = self._engine.pool
        return getattr(pool, "_pre_ping", True) is False and getattr(pool, "checkedin", int)() > 0

    async def give_back(self, loan: Any, *, broken: bool) -> None:
        if self.blocking:
            if broken:
                loan.invalidate()
            loan.close()
            return
        if broken:
            await loan.invalidate()
        await loan.close()

    def check(self) -> None:
        """An async engine keeps connections of one event loop, unless it keeps none."""
        if not self.blocking and type(self._engine.pool).__name__ != "NullPool":
            self._one_loop.require(self._engine.pool)


def label_of(facts: dict[str, Any]) -> str:
    """What messages call the database."""
    user = f"{facts['user']}@" if facts.get("user") else ""
    port = f":{facts['port']}" if facts.get("port") else ""
    return f"postgresql://{user}{facts.get('host') or ''}{port}/{facts.get('dbname') or ''}"


class OneLoop:
    """Remembers the event loop whose connections are in a pool, and refuses another."""

    def __init__(self) -> None:
        self._home: Any = None
        self._pool: Any = None

    def require(self, pool: Any) -> None:
        """Refuse a loop whose requests would wait for ever for an answer that arrives on another one."""
        import asyncio  # noqa: PLC0415 - only pools of asyncio come here

        running = asyncio.get_running_loop()
        if self._pool is not pool:  # the first, or the new one of an engine that was disposed
            self._home, self._pool = getattr(pool, "_loop", None) or running, pool
        if self._home is not running:
            raise ConfigurationError(
                "the connections of this pool or engine belong to the event loop that it was first used on, so the "
                "client cannot serve another one; give connect_async() a postgresql:// URL, or make the pool and the "
                "client on each loop"
            )


def require_process(process: int) -> None:
    """Refuse to work in a child of the process that made the pool."""
    if os.getpid() != process:
        raise ConfigurationError(
            "this pool belongs to the process that made it, and its connections do not survive a fork; make the "
            "pool, and the client, in each process"
        )


def lender_for(client: Any) -> Lender:
    """The lender for a pool or an engine; anything else is refused with what can be passed. Loads only its driver."""
    if hasattr(client, "getconn") and hasattr(client, "putconn"):
        from leasehold._backends.postgres.psycopg_lender import PsycopgPool  # noqa: PLC0415 - see above

        return PsycopgPool(client)
    if hasattr(client, "acquire") and hasattr(client, "release"):
        from leasehold._backends.postgres.asyncpg_lender import AsyncpgPool  # noqa: PLC0415

        return AsyncpgPool(client)
    if hasattr(client, "dialect") and hasattr(client, "url"):
        return _for_engine(client)
    raise ConfigurationError(
        f"cannot lock with {kind_of(client)}: a lock needs connections that are in no transaction of yours; "
        "pass a pool of psycopg_pool or asyncpg, a SQLAlchemy engine or a postgresql:// URL"
    )


def _for_engine(engine: Any) -> Lender:
    dialect = engine.dialect
    if dialect.name == "postgresql" and dialect.driver in ("psycopg", "psycopg_async"):
        from leasehold._backends.postgres.psycopg_lender import PsycopgEngine  # noqa: PLC0415

        return PsycopgEngine(engine)
    if dialect.name == "postgresql" and dialect.driver == "asyncpg":
        from leasehold._backends.postgres.asyncpg_lender import AsyncpgEngine  # noqa: PLC0415

        return AsyncpgEngine(engine)
    raise ConfigurationError(
        f"cannot lock with an engine for {dialect.name}+{dialect.driver}: make one with a postgresql+psycopg:// or "
        "postgresql+asyncpg:// URL"
    )
