"""SQLAlchemy: a session whose every transaction begins with the guard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import leasehold
from leasehold.errors import ConfigurationError, StaleFence
from leasehold.integrations.sqlalchemy import fenced
from tests.waiting import two_in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy.engine import Engine


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    with engine.begin() as tx:
        tx.execute(text("CREATE TABLE stock (left INTEGER)"))
        tx.execute(text("INSERT INTO stock VALUES (10)"))
    yield engine
    engine.dispose()


@pytest.fixture
def leases() -> tuple[leasehold.Lease, leasehold.Lease]:
    with leasehold.connect("memory://") as client:
        return two_in_turn(client.lock("stock"))


def left(engine: Engine) -> int:
    with engine.begin() as tx:
        return int(tx.execute(text("SELECT left FROM stock")).scalar_one())


SELL = text("UPDATE stock SET left = left - 1")


def test_every_transaction_of_the_session_is_guarded(
    engine: Engine, leases: tuple[leasehold.Lease, leasehold.Lease]
) -> None:
    late, current = leases
    with Session(engine) as session, fenced(session, late):
        session.execute(SELL)
        session.commit()
        with Session(engine) as other, fenced(other, current):
            other.execute(SELL)
            other.commit()
        with pytest.raises(StaleFence):
            session.execute(SELL)  # begins another transaction
        session.rollback()
    assert left(engine) == 8


def test_a_session_is_guarded_for_the_resource_that_was_named(
    engine: Engine, leases: tuple[leasehold.Lease, leasehold.Lease]
) -> None:
    late, current = leases
    for lease, resource in ((current, "shelf"), (late, "cellar"), (current, "cellar")):
        with Session(engine) as session, fenced(session, lease, resource=resource), session.begin():
            session.execute(SELL)
    for resource in ("shelf", "cellar"):
        with Session(engine) as session, fenced(session, late, resource=resource), pytest.raises(StaleFence):
            session.execute(SELL)
    assert left(engine) == 7


def test_savepoint_is_a_part_of_its_transaction_and_after_the_block_nothing_is_guarded(
    engine: Engine, leases: tuple[leasehold.Lease, leasehold.Lease]
) -> None:
    late, current = leases
    session = scoped_session(sessionmaker(engine))
    with fenced(session, late), session.begin(), session.begin_nested():
        session.execute(SELL)
    with fenced(session, current), session.begin():
        session.execute(SELL)
    with session.begin():
        session.execute(SELL)
    with pytest.raises(StaleFence), fenced(session, late), session.begin():
        session.execute(SELL)
    session.remove()
    assert left(engine) == 7


def test_after_a_block_that_failed_nothing_is_guarded_either(
    engine: Engine, leases: tuple[leasehold.Lease, leasehold.Lease]
) -> None:
    late, current = leases
    with Session(engine) as session:
        with pytest.raises(ZeroDivisionError), fenced(session, late):
            raise ZeroDivisionError
        with Session(engine) as other, fenced(other, current), other.begin():
            other.execute(SELL)
        session.execute(SELL)
        session.commit()
    assert left(engine) == 8


def test_session_that_has_read_already_is_refused(
    engine: Engine, leases: tuple[leasehold.Lease, leasehold.Lease]
) -> None:
    with Session(engine) as session:
        session.execute(text("SELECT left FROM stock"))
        with pytest.raises(ConfigurationError, match="begun a transaction already"):
            fenced(session, leases[1]).__enter__()
    with engine.connect() as connection, pytest.raises(ConfigurationError, match="Session or AsyncSession"):
        fenced(connection, leases[1]).__enter__()


def test_async_session_is_guarded_too(
    engine: Engine, tmp_path: Path, leases: tuple[leasehold.Lease, leasehold.Lease]
) -> None:
    async def main() -> None:
        late, current = leases
        twin = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
        async with AsyncSession(twin) as session:
            with fenced(session, current):
                await session.execute(SELL)
                await session.commit()
            with fenced(session, late), pytest.raises(StaleFence):
                await session.execute(SELL)
        await twin.dispose()

    asyncio.run(main())
    assert left(engine) == 9
