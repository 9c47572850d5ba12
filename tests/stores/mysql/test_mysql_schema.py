"""Whether the tables of MySQL are there, in which version, and what is done about it; no server."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold._backends.mysql.ddl import VERSION, statements
from leasehold._backends.mysql.packets import Answer, Result, ServerError
from leasehold._backends.mysql.schema import READ_VERSION, Schema
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable, OutcomeUnknown

LABEL = "mysql://h/db"
MAKING = [statement.encode() for statement in statements()]


def version(number: int) -> Answer:
    return Answer([Result([(b"%d" % number,)])])


def refused(code: int) -> Answer:
    return Answer([], ServerError(code, "HY000", "why"))


class Line:
    """A connection that answers the question for the version, and then the making, statement by statement."""

    def __init__(self, present: Answer, *made: Answer) -> None:
        self.present = present
        self.made = list(made)
        self.sent: list[bytes] = []
        self.until: set[float] = set()

    async def query(self, text: bytes, until: float) -> Answer:
        self.sent.append(text)
        self.until.add(until)
        if text == READ_VERSION:
            return self.present
        return self.made.pop(0) if self.made else Answer([Result([])])


@pytest.mark.parametrize(
    ("present", "made"),
    [
        (refused(1146), True),
        (Answer([Result([])]), True),  # another client has made the table, and not filled it yet
        (version(0), True),
        (version(VERSION - 1), True),
        (version(VERSION), False),
    ],
)
def test_tables_are_made_unless_they_are_there_in_this_version(present: Answer, made: bool) -> None:
    line, schema = Line(present), Schema(LABEL)
    connection: Any = line
    run(schema.check(connection, 9.0))
    assert line.sent == [READ_VERSION, *(MAKING if made else [])]
    assert line.until == {9.0}, "for no longer than the caller has use for it"
    assert schema.is_known is True


@pytest.mark.parametrize(
    ("line", "kind", "words", "sent"),
    [
        (Line(version(VERSION + 1)), BackendRejected, rf"newer leasehold \(version {VERSION + 1}, .* {VERSION}\)", 1),
        (Line(refused(1142)), BackendRejected, "--role", 1),
        (Line(refused(1053)), OutcomeUnknown, "why", 1),
        (Line(refused(1146), Answer([Result([])]), refused(1142)), BackendRejected, "--role", 3),
        (Line(refused(1146), refused(1021)), BackendUnavailable, "disk is full", 2),
    ],
)
def test_tables_that_cannot_be_used_or_made_are_looked_for_again(
    line: Line, kind: type[Exception], words: str, sent: int
) -> None:
    connection: Any = line
    schema = Schema(LABEL)
    with pytest.raises(kind, match=words):
        run(schema.check(connection, 9.0))
    assert len(line.sent) == sent, "nothing is made behind what could not be made"
    assert schema.is_known is False
