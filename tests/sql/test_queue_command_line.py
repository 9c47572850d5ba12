"""`leasehold queue` and `leasehold schema queue` on each database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from leasehold.cli.main import main
from leasehold.sql import Queue, queue_schema
from leasehold.sql.database_url import _open_mysql
from tests.sql.queue_connect import connect
from tests.sql.queue_places import DATABASES, queue_url

if TYPE_CHECKING:
    from pathlib import Path

queue = Queue("refunds", max_attempts=1)


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    url = queue_url(request, request.param)
    monkeypatch.setenv("LEASEHOLD_DATABASE", url)
    connection = connect(url)
    queue.enqueue(connection, {"payment": 17}, key="refund-17")
    queue.enqueue(connection, 2, delay="1h")
    connection.commit()
    (job,) = queue.claim(connection)
    queue.fail(connection, job, ValueError("the bank \x1b[31mis closed"))
    connection.commit()
    connection.close()
    return url


@pytest.fixture
def program(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str) -> tuple[int, str]:
        code = main(list(words))
        return code, capsys.readouterr().out

    return run


def test_an_operator_sees_and_retries_dead_jobs(url: str, program: Any) -> None:
    del url
    code, text = program("queue", "ls")
    assert code == 0
    assert text.splitlines()[1].split()[:6] == ["refunds", "0", "1", "0", "1", "0"]
    (dead,) = [json.loads(line) for line in program("queue", "ls", "--dead", "--json")[1].splitlines()]
    assert (dead["queue"], dead["state"], dead["payload"], dead["schema"]) == ("refunds", "dead", {"payment": 17}, 1)
    number = str(dead["id"])
    code, text = program("queue", "info", number)
    assert code == 0
    assert f"job {number} of 'refunds' is dead" in text
    assert "ValueError: the bank \\x1b[31mis closed" in text  # nothing steers the terminal
    assert program("queue", "info", "999999") == (1, "there is no job 999999\n")
    assert program("queue", "retry", number) == (0, "retried 1 job\n")
    assert program("queue", "retry", number) == (1, "retried 0 jobs\n")
    assert program("queue", "retry", "refunds", "--dead") == (1, "retried 0 jobs\n")
    code, text = program("queue", "ls", "refunds")
    assert [line.split()[2] for line in text.splitlines()[1:]] == ["ready", "ready"]


def test_an_operator_removes_what_is_over(url: str, program: Any) -> None:
    assert program("queue", "purge", "refunds", "--older-than", "0s") == (1, "removed 0 jobs\n")
    code, text = program("queue", "purge", "refunds", "--dead", "--older-than", "0s", "--json", "--url", url)
    assert (code, json.loads(text)["removed"]) == (0, 1)
    assert program("queue", "ls", "--dead")[1].count("\n") == 1


def test_what_cannot_be_done_is_said(tmp_path: Path, program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert program("queue", "ls", "--url", str(tmp_path / "none.db"))[0] == 78
    assert program("queue", "ls", "--url", "redis://host")[0] == 78
    assert program("queue", "ls", "--url", "postgresql://user:secret@127.0.0.1:1/db")[0] == 69
    assert program("queue", "info", "x", "--url", "a.db")[0] == 78
    assert program("queue", "purge", "--url", "a.db")[0] == 78
    assert program("queue", "ls")[0] == 78
    assert "secret" not in capsys.readouterr().err


@pytest.mark.parametrize("dialect", DATABASES)
def test_the_table_is_printed(dialect: str, program: Any) -> None:
    assert program("schema", "queue", "--dialect", dialect) == (0, queue_schema(dialect).rstrip() + "\n")


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("mysql://", ("localhost", 3306, "root", "", "")),
        ("mysql://db/shop", ("db", 3306, "root", "", "shop")),
        ("mariadb://ana:p%40ss%2Fword@db:3307/shop", ("db", 3307, "ana", "p@ss/word", "shop")),
        ("mysql://a%40na:x@db/sh%20op", ("db", 3306, "a@na", "x", "sh op")),
    ],
)
def test_a_url_of_mysql_is_read_with_its_encoded_characters(
    url: str, options: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr("pymysql.connect", given.update)
    _open_mysql(url)
    assert tuple(given[name] for name in ("host", "port", "user", "password", "database")) == options
