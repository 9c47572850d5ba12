"""Tables as SQLAlchemy and Django name them, on a file of SQLite: names, types, and the objects of a session."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from django.apps.registry import Apps
from django.db import connections, models, transaction
from sqlalchemy import Column, Date, ForeignKey, Integer, MetaData, String, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from leasehold.errors import ConfigurationError
from leasehold.sql import cas_update, lock_row
from leasehold.sql.tables.rows import Rows, check_key, check_values
from leasehold.sql.tables.tables import columns_of
from leasehold.sql.wires import Answer, wire_of
from tests.sql.desks import django_alias
from tests.unit.scripted_wire import ScriptedWire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY = date(2026, 3, 1)


class Base(DeclarativeBase):
    """Of the classes below."""


class Seat(Base):
    """A key of two columns, and an attribute whose column is called otherwise."""

    __tablename__ = "seats"
    row: Mapped[int] = mapped_column("row no", primary_key=True)
    place: Mapped[int] = mapped_column(primary_key=True)
    guest: Mapped[str | None] = mapped_column("the guest", String(20))
    note: Mapped[str | None] = mapped_column(String(20))
    day: Mapped[date] = mapped_column(Date)
    version: Mapped[int] = mapped_column(Integer)


class Person(Base):
    """Has a class below it with a table of its own."""

    __tablename__ = "people"
    id: Mapped[int] = mapped_column(primary_key=True)


class Employee(Person):
    """Its rows are in two tables."""

    __tablename__ = "employees"
    id: Mapped[int] = mapped_column(ForeignKey("people.id"), primary_key=True)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/a.db")
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        for place in (1, 2):
            session.add(Seat(row=1, place=place, guest="ann", note="old", day=DAY, version=1))
    yield engine
    engine.dispose()


KEY = {"row": 1, "place": 1}


def test_changes_that_the_session_has_not_written_yet_are_not_dropped(engine: sqlalchemy.Engine) -> None:
    """A compare-and-swap lets the session read again what it wrote, and nothing else."""
    with Session(engine, autoflush=False) as session:
        seat, other = session.get_one(Seat, (1, 1)), session.get_one(Seat, (1, 2))
        seat.note = "mine"
        other.guest = "cid"
        assert cas_update(session, Seat, {"guest": "bob"}, where=KEY, version=1) == 2
        assert (seat.guest, seat.version, seat.note) == ("bob", 2, "mine")
        assert other.guest == "cid"
        assert set(session.dirty) == {seat, other}
        session.commit()
        assert (seat.guest, seat.version, seat.note) == ("bob", 2, "mine")


def test_row_of_a_composite_key_finds_its_object_whatever_the_order_of_the_columns(engine: sqlalchemy.Engine) -> None:
    with Session(engine) as session:
        seat, other = session.get_one(Seat, (1, 1)), session.get_one(Seat, (1, 2))
        with engine.begin() as beside:
            beside.exec_driver_sql("UPDATE seats SET \"the guest\" = 'bob', version = 2")
        session.rollback()
        seats = [session.get_one(Seat, (1, place)) for place in (1, 2)]
        assert seats == [seat, other]
        with engine.begin() as beside:
            beside.exec_driver_sql("UPDATE seats SET \"the guest\" = 'cid', version = 3")
        session.commit()  # SQLite lets no snapshot write that is out of date
        seat.note = seat.note
        rows = Rows(wire_of(session), Seat)
        rows.refresh({"place": 1, "row": 1, "guest": "read", "version": 9, "note": "old", "day": DAY})
        assert (seat.guest, seat.version) == ("read", 9)
        assert (other.guest, other.version) == ("cid", 3)
        rows.refresh({"row": 1, "guest": "lost"})  # the key is not known
        assert (seat.guest, other.guest) == ("read", "cid")
        seat.day = date(2026, 4, 1)
        with pytest.raises(ConfigurationError, match="has changed day of this row of 'seats'"):
            rows.refresh({"row": 1, "place": 1, "guest": "again"})
        rows.refresh({"row": 1, "place": 2, "guest": "again"})
        assert (seat.guest, other.guest) == ("read", "again")


def test_plain_connection_has_no_objects(engine: sqlalchemy.Engine) -> None:
    with engine.begin() as tx:
        assert cas_update(tx, Seat, {"day": date(2026, 5, 1)}, where=KEY, version=1) == 2
        row = lock_row(tx, Seat, KEY)
        assert row == {**KEY, "guest": "ann", "note": "old", "day": date(2026, 5, 1), "version": 2}


def test_column_that_the_program_does_not_know_is_given_as_it_is(engine: sqlalchemy.Engine) -> None:
    with engine.begin() as tx:
        tx.exec_driver_sql("ALTER TABLE seats ADD COLUMN later TEXT DEFAULT 'x'")
        row = lock_row(tx, Seat, KEY)
        assert row is not None
        assert (row["later"], row["day"]) == ("x", DAY)


def test_what_is_no_single_table_is_refused(engine: sqlalchemy.Engine) -> None:
    people = Person.__table__.join(Employee.__table__)
    with engine.begin() as tx:
        wire = wire_of(tx)
        assert Rows(wire, Person).table == "people"
        for table in (Employee, people, sqlalchemy.select(Person).subquery()):
            with pytest.raises(ConfigurationError, match=r"exactly one table|is no table"):
                Rows(wire, table)
        with pytest.raises(ConfigurationError, match=r"'seats' has no column 'rwo'; there are day, guest, note, place"):
            Rows(wire, Seat).column("rwo")


def test_table_of_a_schema_is_named_with_it(engine: sqlalchemy.Engine) -> None:
    table = Table("t", MetaData(schema="shop"), Column("a b", Integer, key="ab"))
    with engine.begin() as tx:
        rows = Rows(wire_of(tx), table)
        assert (rows.name, rows.qualified("ab"), rows.table, rows.parts) == (
            '"shop"."t"', '"t"."a b"', "shop.t", ("shop", "t"),
        )  # fmt: skip


def test_table_of_a_framework_needs_a_connection_of_that_framework() -> None:
    invoice = invoice_model()
    with closing(sqlite3.connect(":memory:")) as connection:
        wire = wire_of(connection)
        for table, maker in ((Seat, "SQLAlchemy"), (Seat.__table__, "SQLAlchemy"), (invoice, "Django")):
            with pytest.raises(ConfigurationError, match=f"belongs to {maker}, and the connection does not"):
                columns_of(table, wire)
        pairs: list[Any] = [("a", "b", "c"), ("a",), ("a", 1)]
        for pair in pairs:
            with pytest.raises(ConfigurationError, match="by its schema and its name"):
                columns_of(pair, wire)
        with pytest.raises(ConfigurationError, match="is no table: give its name"):
            columns_of(7, wire)


# --- Django


def invoice_model() -> Any:
    django_alias("sqlite:///")  # configures Django, if no test did before

    class Customer(models.Model):  # type: ignore[misc] # Django has no types
        class Meta:
            app_label, apps = "leasehold_unit", Apps()

    class Document(models.Model):  # type: ignore[misc]
        title = models.CharField(max_length=20)

        class Meta:
            app_label, apps = "leasehold_unit", Customer._meta.apps

    class Invoice(Document):
        customer = models.ForeignKey(Customer, models.CASCADE, db_column="cust")
        readers = models.ManyToManyField(Customer, related_name="read")
        details = models.JSONField()

        class Meta:
            app_label, apps = "leasehold_unit", Customer._meta.apps
            db_table = "invoices"

    return Invoice


def test_field_of_django_is_known_by_its_names_and_only_if_its_column_is_here(tmp_path: Path) -> None:
    alias = django_alias(f"sqlite:///{tmp_path}/unit.db")
    with transaction.atomic(using=alias):
        rows = Rows(wire_of(alias), invoice_model())
        assert rows.name == '"invoices"'
        assert [rows.real_name(name) for name in ("customer", "customer_id", "pk", "details")] == [
            "cust", "cust", "document_ptr_id", "details",
        ]  # fmt: skip
        assert rows.bound("value", {"details": {"a": 1}, "customer": 7}) == {"value_0": '{"a": 1}', "value_1": 7}
        assert rows.read(Answer([(7, '{"a": 1}', "x")], 1, ("cust", "details", "later"))) == [
            {"customer_id": 7, "details": {"a": 1}, "later": "x"}
        ]
        for name in ("cust", "title", "readers", "nothing", "document_ptr_ids"):
            with pytest.raises(ConfigurationError, match=f"no field '{name}' with a column of its own"):
                rows.column(name)
    connections[alias].close()


# --- statements


def test_statements_name_what_they_mean_and_bind_the_rest() -> None:
    rows = Rows(ScriptedWire(dialect="mysql"), ("s%", "t%"))
    where = {"a": 1, "b%": 2}
    assert rows.select(where) == (
        "SELECT `t%%`.* FROM `s%%`.`t%%` WHERE `t%%`.`a` = %(key_0)s AND `t%%`.`b%%` = %(key_1)s"
    )
    assert rows.select_present(where) == f"{rows.select(where)} LOCK IN SHARE MODE"
    assert rows.insert(where) == "INSERT INTO `s%%`.`t%%` (`a`, `b%%`) VALUES (%(value_0)s, %(value_1)s)"
    assert rows.changes(where) == ["`a` = %(value_0)s", "`b%%` = %(value_1)s"]
    assert rows.bound("key", where) == {"key_0": 1, "key_1": 2}
    plain = Rows(ScriptedWire(dialect="postgresql"), "t")
    assert plain.select_present(where) == plain.select(where)
    assert (plain.table, plain.parts) == ("t", (None, "t"))


def test_a_key_names_one_row() -> None:
    rows = Rows(ScriptedWire(), "t")
    assert rows.one([], {"id": 1}) is None
    assert rows.one([{"id": 1}], {"id": 1}) == {"id": 1}
    with pytest.raises(ConfigurationError, match=r"where={'id': 1} fits 2 rows of t; roll back"):
        rows.one([{"id": 1}, {"id": 1}], {"id": 1})
    with pytest.raises(ConfigurationError, match="where= has None for 'b', 'c'"):
        check_key({"a": 1, "b": None, "c": None})
    mistakes: list[Any] = [{}, "id", None]
    for where in mistakes:
        with pytest.raises(ConfigurationError, match="where= must name the row by its key"):
            check_key(where)
    assert check_key({"a": 0}) == {"a": 0}
    assert check_values({}) == {}
    with pytest.raises(ConfigurationError, match="values must be columns"):
        check_values([("a", 1)])
