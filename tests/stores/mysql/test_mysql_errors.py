"""What the store makes of an error of MySQL: surely not applied, perhaps applied, or refused for good; no server."""

from __future__ import annotations

import pymysql
import pytest

from leasehold._backends.mysql import errors
from leasehold._backends.mysql.packets import ServerError
from leasehold.errors import BackendRejected, BackendUnavailable, OutcomeUnknown

LABEL = "mysql://host/db"


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (1040, BackendUnavailable, "max_connections"),
        (1041, BackendUnavailable, "no memory"),
        (1021, BackendUnavailable, "disk is full"),
        (1114, BackendUnavailable, "a table of the server is full"),
        (1203, BackendUnavailable, "max_user_connections"),
        (1205, BackendUnavailable, "stayed locked"),
        (1213, BackendUnavailable, "deadlock"),
        (1226, BackendUnavailable, "limit of its account"),
        (1317, BackendUnavailable, "by an operator"),
        (1969, BackendUnavailable, "max_statement_time"),
        (3024, BackendUnavailable, "max_execution_time"),
        (1047, BackendUnavailable, "not ready"),
        (1290, BackendUnavailable, "read-only"),
        (1792, BackendUnavailable, "read-only"),
        (1836, BackendUnavailable, "read-only"),
        (3100, BackendUnavailable, "read-only"),
        (1044, BackendRejected, "may not use this database"),
        (1045, BackendRejected, "check the URL"),
        (1049, BackendRejected, "no such database"),
        (1142, BackendRejected, "leasehold schema mysql --role"),
        (1143, BackendRejected, "leasehold schema mysql --role"),
        (1227, BackendRejected, "leasehold schema mysql --role"),
        (1251, BackendRejected, "another plugin"),
        (1071, BackendRejected, "16 KB"),
        (1698, BackendRejected, "socket or plugin"),
        (1820, BackendRejected, "expired"),
        (1862, BackendRejected, "expired"),
        (2026, BackendRejected, "tls_ca"),
        (3118, BackendRejected, "locked"),
        (1146, BackendRejected, "leasehold schema mysql"),
        (1064, BackendRejected, "refused the request"),
    ],
)
def test_each_error_of_mysql_has_its_meaning_and_its_advice(code: int, kind: type, words: str) -> None:
    error = errors.translated(ServerError(code, "HY000", "why"), LABEL)
    assert type(error) is kind
    assert words in str(error)
    assert f"why ({code})" in str(error)
    assert error.backend == LABEL
    assert str(error).startswith(LABEL)


@pytest.mark.parametrize(
    ("code", "state"),
    [
        *((code, "HY000") for code in (1053, 1077, 1079, 1080, 1152, 1184, 1927, 3169, 4031)),
        (1158, "08S01"),
        (1040, "08004"),
    ],
)
def test_a_connection_that_mysql_ends_leaves_the_outcome_open(code: int, state: str) -> None:
    found = ServerError(code, state, "why")
    assert errors.is_ended(found)
    assert errors.is_stale(found)
    error = errors.translated(found, LABEL)
    assert type(error) is OutcomeUnknown
    assert "why" in str(error)


def test_a_connection_to_a_server_that_takes_no_writes_any_more_is_replaced() -> None:
    assert all(errors.is_stale(ServerError(code, "HY000", "")) for code in (1290, 1792, 1836, 3100))
    assert not any(errors.is_stale(ServerError(code, "HY000", "")) for code in (1146, 1205, 1213, 1317, 1045))
    assert not errors.is_ended(ServerError(1290, "HY000", ""))


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (pymysql.OperationalError(1045, "Access denied"), BackendRejected, "check the URL: Access denied (1045)"),
        (pymysql.OperationalError(1049, "Unknown database"), BackendRejected, "no such database"),
        (pymysql.OperationalError(1040, "Too many"), BackendUnavailable, "max_connections"),
        (pymysql.OperationalError(2026, "no"), BackendRejected, "tls_ca"),
        (pymysql.OperationalError(2003, "certificate verify failed"), BackendRejected, "tls_ca"),
        (pymysql.OperationalError(2003, "SSL is required"), BackendRejected, "tls_ca"),
        (pymysql.OperationalError(2003, "Can't\n connect"), BackendUnavailable, "cannot be reached: Can't connect"),
        (OSError(111, "refused"), BackendUnavailable, "cannot be reached: refused"),
        (OSError(), BackendUnavailable, "cannot be reached"),
    ],
)
def test_why_mysql_cannot_be_reached(error: Exception, kind: type, words: str) -> None:
    found = errors.connect_failed(error, LABEL)
    assert type(found) is kind
    assert words in str(found)
    assert found.backend == LABEL


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (None, "no answer in time"),
        (ConnectionError("the server closed"), "the server closed"),
        (IndexError(), "IndexError"),
    ],
)
def test_a_request_without_an_answer_says_why(cause: Exception | None, words: str) -> None:
    unknown = errors.lost(cause, LABEL)
    assert type(unknown) is OutcomeUnknown
    assert words in str(unknown)
    assert unknown.backend == LABEL
    unavailable = errors.unanswered(unknown, LABEL)
    assert type(unavailable) is BackendUnavailable
    assert (str(unavailable), unavailable.backend) == (str(unknown), LABEL)
