"""Values on their way to PostgreSQL and back, over each driver; and the errors that are not in a table elsewhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from leasehold._backends.postgres import ddl, errors, statements
from leasehold._backends.postgres.asyncpg_connection import _Fetched, _Refused, _with_casts
from leasehold._backends.postgres.statements import Answer, Statement, Statements
from leasehold._runtimes.threads import ThreadRuntime
from leasehold.errors import BackendRejected, BackendUnavailable, OutcomeUnknown
from leasehold.kit.holder import holder_to_json
from leasehold.values import Claim, Holder, Mode

HOLDER = Holder("db-3", 7, "nightly", "the report")
HARD = ["a", "", 'q"q', "b\\b", "{x,y}", "NULL", "ä\n\t", " ", "\\x41"]


def test_arrays_of_any_text_and_of_any_bytes_come_out_as_they_went_in(database: str) -> None:
    with psycopg.connect(database) as connection:
        texts = statements.array(text.encode() for text in HARD)
        cursor = connection.execute("SELECT %s::text::text[]", (texts.decode(),))
        assert cursor.fetchone() == (HARD,)
        blobs = [text.encode() for text in HARD] + [b"\x00\xff\\x"]
        cursor = connection.execute("SELECT %s::text::bytea[]", (statements.array(blobs, binary=True).decode(),))
        assert cursor.fetchone() == (blobs,)


def test_numbers_lose_nothing() -> None:
    for value in (0.1, 1e-9, 60.0, 3, 1e300):
        assert float(statements.number(value)) == value
        assert statements.seconds(statements.number(value)) == value
    assert statements.seconds(None) is None


def test_keys_with_a_prefix_end_before_the_first_behind_them() -> None:
    for prefix in ("ns:", "a", "é", "\U0001f512"):
        first = prefix.encode()
        behind = statements.upper_bound(first)
        assert first <= (prefix + "\U0010ffff").encode() < behind
        assert behind[:-1] == first[:-1]
        assert behind[-1] == first[-1] + 1


def test_a_claim_becomes_the_parameters_of_its_function() -> None:
    claim = Claim("ns:x", ThreadRuntime().owner(), 1.5, Mode.PERMIT, 3, 0.25, HOLDER, 4)
    stored = holder_to_json(HOLDER).encode()
    assert statements.claim_values(claim, 9) == [
        b"ns:x", claim.owner.encode(), b"1.5", b"permit", b"3", b"0.25", stored, b"9", b"f", None, b"f", b"4",
    ]  # fmt: skip
    assert statements.claim_values(claim, 0, waits=True, channel=b"bell", in_session=True)[7:] == [
        b"0", b"t", b"bell", b"t", b"4",
    ]  # fmt: skip


def test_the_text_of_each_holder_is_its_own() -> None:
    """The last one is kept."""
    other = Holder("db-4", 8)
    for holder in (HOLDER, HOLDER, other, HOLDER, Holder("db-3", 7, "nightly", "the report")):
        assert statements.holder_text(holder) == holder_to_json(holder).encode()


def test_a_holder_of_another_program_is_shown_as_it_is() -> None:
    assert statements.holder_from(None) is None
    assert statements.holder_from(holder_to_json(HOLDER).encode()) == HOLDER
    assert statements.holder_from(b"somebody \xff") == Holder("somebody \ufffd", 0)


def test_the_answer_for_a_claim_is_its_row_and_nothing_for_one_that_is_not_there() -> None:
    rows: Any = SimpleNamespace(get_value=lambda row, column: b"%d.%d" % (row, column))
    assert [Answer(rows, 1.0).value(column) for column in (0, 3)] == [b"0.0", b"0.3"]
    assert Answer(rows, 1.0, 2, 1).value(4) == b"2.5"
    assert Answer(rows, 1.0, None, 1).value(4) is None


def test_every_statement_is_for_its_schema_and_binds_what_it_declares() -> None:
    made = Statements("My_locks")
    for statement in vars(made).values():
        if isinstance(statement, Statement):
            assert b"@schema@" not in statement.text
            assert len(statement.types) == len(statement.formats) == len(set(statements_places(statement)))
            assert statement.formats == tuple(int(kind == statements.BYTEA) for kind in statement.types)
            assert b'"My_locks".' in statement.text or b"pg_catalog" in statement.text
    hot = {name for name, statement in vars(made).items() if isinstance(statement, Statement) and statement.hot}
    assert hot == {"acquire", "turn", "release", "renew", "handovers", "turns"}
    names = [statement.name for statement in vars(made).values() if isinstance(statement, Statement)]
    assert len(set(names)) == len(names), "two that are prepared under one name would be one"


def statements_places(statement: Statement) -> list[bytes]:
    import re

    return re.findall(rb"\$\d+", statement.text)


def test_rights_are_for_the_tables_of_the_schema_and_the_role_is_quoted() -> None:
    assert ddl.grants("My_locks", 'wor"ker').splitlines() == [
        'GRANT USAGE ON SCHEMA "My_locks" TO "wor""ker";',
        'GRANT SELECT, INSERT, UPDATE, DELETE ON "My_locks".lock, "My_locks".claim, "My_locks".record TO "wor""ker";',
        'GRANT SELECT, UPDATE ON "My_locks".about TO "wor""ker";',
    ]


# --- asyncpg


def test_values_of_asyncpg_are_written_as_the_server_would() -> None:
    fetched = _Fetched([{"a": 1}, {"a": 2}])
    assert (fetched.ntuples, fetched.nfields, fetched.fname(0)) == (2, 1, b"a")
    fetched = _Fetched([(True, False, None, b"\x00", 7, 1.5, "x")])
    assert [fetched.get_value(0, column) for column in range(7)] == [b"t", b"f", None, b"\x00", b"7", b"1.5", b"x"]
    done = _Fetched("DROP TABLE")
    assert (done.ntuples, done.nfields, done.error_field(errors.SQLSTATE)) == (0, 0, None)


@pytest.mark.parametrize(
    ("severity", "translated", "expected"),
    [("FATAL", "FATAL", b"FATAL"), (None, "ERROR", b"ERROR"), ("PANIC", "X", b"PANIC")],
)
def test_an_error_of_asyncpg_has_the_fields_of_the_protocol(
    severity: str | None, translated: str, expected: bytes
) -> None:
    refused = _Refused(SimpleNamespace(message="why", sqlstate="57P01", severity_en=severity, severity=translated))
    assert refused.error_field(errors.SQLSTATE) == b"57P01"
    assert refused.error_field(errors.SEVERITY) == expected
    assert refused.error_field(errors.MESSAGE) == b"why"
    assert refused.error_field(ord("D")) is None
    assert refused.error_message == b"why"
    assert errors.is_fatal(refused) is (expected != b"ERROR")


def test_each_parameter_over_asyncpg_is_a_text_or_bytes_of_which_the_server_makes_its_type() -> None:
    kinds = (
        statements.BYTEA, statements.TEXT, statements.BOOL, statements.INT4, statements.INT8, statements.FLOAT8,
        statements.BYTEA_ARRAY, statements.TEXT_ARRAY, statements.INT8_ARRAY, statements.FLOAT8_ARRAY,
    )  # fmt: skip
    places = ", ".join(f"${number}" for number in range(1, len(kinds) + 1))
    text = _with_casts(Statement(b"x", f"SELECT f({places})".encode(), kinds, (0,) * len(kinds)))
    as_text = "CAST(CAST(${} AS pg_catalog.text) AS {})"
    types = [
        "boolean", "integer", "bigint", "double precision", "pg_catalog.bytea[]", "pg_catalog.text[]", "bigint[]",
        "double precision[]",
    ]  # fmt: skip
    parts = ["CAST($1 AS pg_catalog.bytea)", "CAST($2 AS pg_catalog.text)"]
    parts += [as_text.format(number, kind) for number, kind in enumerate(types, 3)]
    assert text == f"SELECT f({', '.join(parts)})"


# --- errors


LABEL = "postgresql://h/db"


def error(code: str, message: bytes | None = b"why\nmore", severity: str = "ERROR", whole: bytes = b"whole") -> Any:
    fields = {errors.SQLSTATE: code.encode(), errors.SEVERITY: severity.encode(), errors.MESSAGE: message}
    return SimpleNamespace(error_field=fields.get, error_message=whole)


@pytest.mark.parametrize("code", ["26000", "42P05"])
def test_a_pooler_that_loses_prepared_statements_is_explained(code: str) -> None:
    found = errors.translated(error(code), LABEL)
    assert type(found) is BackendRejected
    assert "statement_cache_size=0" in str(found)


def test_a_request_without_an_answer_says_why() -> None:
    unknown = errors.lost(psycopg.OperationalError("server closed\nthe connection"), LABEL)
    assert (type(unknown), unknown.backend) == (OutcomeUnknown, LABEL)
    assert str(unknown).endswith("not answered: server closed")
    assert "no answer in time" in str(errors.lost(None, LABEL))
    assert "no reason given" in str(errors.lost(psycopg.OperationalError(""), LABEL))


def test_a_listener_that_ended_says_why() -> None:
    found = errors.not_listening(psycopg.OperationalError("server closed\nthe connection"), LABEL)
    assert (type(found), found.backend) == (BackendUnavailable, LABEL)
    assert str(found).endswith("has ended: server closed")
    assert str(errors.not_listening(None, LABEL)).endswith("has ended")


def test_the_message_of_an_error_is_its_first_line_or_that_of_the_whole() -> None:
    assert errors.message(error("42501")) == "why"
    assert errors.message(error("42501", None, whole=b"  whole\nmore")) == "whole"
    assert errors.message(error("42501", b"\xff why")) == "\ufffd why"


@pytest.mark.parametrize(
    ("code", "severity", "fatal"),
    [
        ("57P01", "FATAL", True),
        ("57P01", "PANIC", True),
        ("57P01", "ERROR", False),
        ("", "ERROR", True),
        ("42501", "ERROR", False),
    ],
)
def test_an_answer_after_which_the_connection_is_gone_is_known_by_its_severity(
    code: str, severity: str, fatal: bool
) -> None:
    assert errors.is_fatal(error(code, severity=severity)) is fatal


def test_who_may_not_see_a_database_is_told_at_once() -> None:
    found = errors.connect_failed(psycopg.OperationalError('permission denied for database "x"\n'), LABEL)
    assert (type(found), found.backend) == (BackendRejected, LABEL)
    away = errors.connect_failed(psycopg.OperationalError("timeout\nexpired"), LABEL)
    assert (type(away), away.backend) == (BackendUnavailable, LABEL)
    assert str(away).endswith("timeout expired")
