"""Tables by what a framework calls them: Core tables, mapped classes and models of Django, with their types."""

from __future__ import annotations

import enum
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from django.db import connections, transaction
from sqlalchemy import JSON, Column, DateTime, Enum, Integer, MetaData, String, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from leasehold.errors import ConfigurationError, VersionConflict
from leasehold.sql import cas_update, insert_once, lock_row, lock_rows
from tests.sql.desks import django_alias, sqlalchemy_url
from tests.sql.pairs import fresh_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATABASES = ["postgresql", "mysql", "sqlite"]
DAY = datetime(2026, 3, 1, 12, 30)


class State(enum.Enum):
    """Stored by its name."""

    NEW = 1
    PAID = 2


class Base(DeclarativeBase):
    """Of the class below."""


class Order(Base):
    """Columns whose names are not those of the attributes, and types that the driver does not know."""

    __tablename__ = "orders"
    number: Mapped[int] = mapped_column("id", primary_key=True, autoincrement=False)
    state: Mapped[State] = mapped_column("the state", Enum(State))
    details: Mapped[dict[str, Any]] = mapped_column(JSON)
    day: Mapped[datetime] = mapped_column(DateTime)
    seen: Mapped[int] = mapped_column("version")


CORE = Table("items", MetaData(), Column("name", String(30), key="title", primary_key=True), Column("version", Integer))


@pytest.fixture(params=DATABASES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(fresh_url(request, request.param, tmp_path)))
    Base.metadata.create_all(engine)
    CORE.create(engine)
    yield engine
    engine.dispose()


def new(number: int = 1) -> dict[str, Any]:
    return {"number": number, "state": State.NEW, "details": {"a": [1]}, "day": DAY, "seen": 1}


def test_mapped_class_gives_names_and_types(engine: sqlalchemy.Engine) -> None:
    with engine.begin() as tx:
        assert insert_once(tx, Order, new(), key="number") == (True, new())
        assert insert_once(tx, Order, {**new(), "state": State.PAID}, key="number") == (False, new())
        values = {"state": State.PAID, "details": {"b": None}}
        assert cas_update(tx, Order, values, where={"number": 1}, version=1, column="seen") == 2
        with pytest.raises(VersionConflict) as caught:
            cas_update(tx, Order, values, where={"number": 1}, version=1, column="seen")
        assert caught.value.current == {**new(), **values, "seen": 2}
        assert caught.value.version == 2
        assert lock_row(tx, Order, {"number": 1}) == caught.value.current
        with pytest.raises(ConfigurationError, match="no column 'id'"):
            lock_row(tx, Order, {"id": 1})


def test_core_table_gives_names(engine: sqlalchemy.Engine) -> None:
    with engine.begin() as tx:
        assert insert_once(tx, CORE, {"title": "a", "version": 1}, key="title").inserted
        assert cas_update(tx, CORE, {}, where={"title": "a"}, version=1) == 2
        assert lock_rows(tx, CORE, [{"title": "a"}]) == [{"title": "a", "version": 2}]


@pytest.mark.parametrize("engine", ["postgresql", "mysql"], indirect=True)
def test_object_that_a_session_holds_has_what_was_locked_and_written(engine: sqlalchemy.Engine) -> None:
    """Otherwise a program would lock a row, and then decide on what its session had read before."""
    with engine.begin() as tx:
        insert_once(tx, Order, new(), key="number")
    with Session(engine) as session:
        order = session.get_one(Order, 1)
        with engine.begin() as other:
            cas_update(other, Order, {"state": State.PAID}, where={"number": 1}, version=1, column="seen")
        assert order.state is State.NEW
        lock_row(session, Order, {"number": 1})
        assert (order.state, order.seen) == (State.PAID, 2)
        assert not session.dirty
        order.state = State.NEW
        with pytest.raises(ConfigurationError, match="has changed state"):
            lock_row(session, Order, {"number": 1})
        session.refresh(order)
        cas_update(session, Order, {"details": {}}, where={"number": 1}, version=2, column="seen")
        assert (order.details, order.seen) == ({}, 3)


@contextmanager
def django_model(url: str) -> Iterator[tuple[str, Any]]:
    from django.apps.registry import Apps
    from django.db import models

    alias = django_alias(url)

    class Invoice(models.Model):  # type: ignore[misc] # Django has no types
        """Names and types of its own."""

        number = models.IntegerField(primary_key=True, db_column="id")
        details = models.JSONField()
        at = models.DateTimeField()
        version = models.IntegerField()

        class Meta:
            app_label = "leasehold_tests"
            db_table = "invoices"
            apps = Apps()

    with connections[alias].schema_editor() as editor:
        editor.create_model(Invoice)
    yield alias, Invoice
    connections[alias].close()


@pytest.mark.parametrize("database", DATABASES)
def test_model_of_django_gives_names_and_types(request: pytest.FixtureRequest, tmp_path: Path, database: str) -> None:
    at = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    row = {"number": 7, "details": {"a": [1]}, "at": at, "version": 1}
    with django_model(fresh_url(request, database, tmp_path)) as (alias, invoice), transaction.atomic(using=alias):
        assert insert_once(alias, invoice, row, key="number") == (True, row)
        assert cas_update(alias, invoice, {"details": {}}, where={"pk": 7}, version=1) == 2
        assert lock_row(alias, invoice, {"number": 7}) == {**row, "details": {}, "version": 2}
        assert invoice.objects.using(alias).get(pk=7).details == {}
        with pytest.raises(ConfigurationError, match="no field"):
            lock_row(alias, invoice, {"id": 7})


def test_class_of_another_framework_is_refused(engine: sqlalchemy.Engine, tmp_path: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(tmp_path / "y.db")) as connection:
        for table in (Order, CORE, 7, ("a", "b", "c"), object):
            with pytest.raises(ConfigurationError):
                lock_row(connection, table, {"number": 1})
