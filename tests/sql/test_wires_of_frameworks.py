"""What SQLAlchemy and Django give as a transaction, and what its state is, on a file of SQLite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy
from django.db import connections, transaction
from django.utils.connection import ConnectionProxy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

from leasehold.errors import ConfigurationError
from leasehold.sql.wires import Transaction, async_twin, wire_of
from tests.sql.desks import django_alias

if TYPE_CHECKING:
    from pathlib import Path


class Base(DeclarativeBase):
    """Of the class below."""


class Thing(Base):
    """Any."""

    __tablename__ = "things"
    id: Mapped[int] = mapped_column(primary_key=True)


def test_connection_of_django_is_known_by_its_alias_its_proxy_and_itself(tmp_path: Path) -> None:
    alias = django_alias(f"sqlite:///{tmp_path}/wires.db")
    proxy = ConnectionProxy(connections, alias)
    for tx in (alias, connections[alias], proxy):
        wire = wire_of(tx)
        assert (wire.dialect, wire.is_async, wire.holds_objects) == ("sqlite", False, False)
        assert wire.transaction() is Transaction.AUTOCOMMIT
        with transaction.atomic(using=alias):
            assert wire.transaction() is Transaction.OPEN
            assert wire.driver is connections[alias].connection
    connections[alias].set_autocommit(False)
    assert wire_of(alias).transaction() is Transaction.OPENS
    connections[alias].rollback()
    connections[alias].set_autocommit(True)
    connections[alias].close()
    assert wire_of(alias).driver is not None, "it connects, if it is not yet"
    connections[alias].close()
    with pytest.raises(ConfigurationError, match=r"not a ConnectionHandler: with transaction\.atomic"):
        wire_of(connections)


def test_connection_and_sessions_of_sqlalchemy_are_known(tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/wires.db")
    Base.metadata.create_all(engine)
    sessions = scoped_session(sessionmaker(engine))
    with engine.begin() as connection, Session(engine) as session:
        for tx in (connection, session, sessions):
            wire = wire_of(tx)
            assert (wire.dialect, wire.is_async, async_twin(tx)) == ("sqlite", False, None)
            assert wire.transaction() is Transaction.OPENS
        assert wire_of(connection).driver is connection.connection.driver_connection
    sessions.remove()
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        assert wire_of(connection).transaction() is Transaction.AUTOCOMMIT
    with pytest.raises(ConfigurationError, match=r"not an Engine: with engine\.begin"):
        wire_of(engine)
    asynchronous = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/wires.db")
    later = asynchronous.connect()
    assert async_twin(later) is later
    with pytest.raises(ConfigurationError, match=r"AsyncConnection is async: write await guard_async"):
        wire_of(later)
    engine.dispose()


def test_session_holds_objects_until_they_are_to_be_read_again(tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/wires.db")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        held = [wire_of(session).holds_objects]
        made = [Thing(id=1), Thing(id=2)]  # a session holds them as long as somebody else does
        session.add_all(made)
        session.flush()
        held.append(wire_of(session).holds_objects)
        session.commit()  # which lets all of them be read again
        held.append(wire_of(session).holds_objects)
        things = session.scalars(sqlalchemy.select(Thing)).all()
        session.expire(things[0])
        held.append(wire_of(session).holds_objects)
        session.expire_all()
        held.append(wire_of(session).holds_objects)
        assert held == [False, True, False, True, False]
        session.refresh(made[0])
        assert not wire_of(session.connection()).holds_objects
    engine.dispose()
