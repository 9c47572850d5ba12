"""The doctor of PostgreSQL, request by request: what it sends, and what becomes of its connection when that fails."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold._backends.postgres import doctor, errors
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable
from leasehold.findings import Level

LABEL = "postgresql://h/db"
FACTS = {
    "number": "150004", "version": "15.4", "standby": "f", "read_only": "off", "synchronous": "on", "fsync": "on",
    "standbys": "", "replicas": "0", "statement_timeout": "0", "transaction_timeout": "", "lock_timeout": "0",
    "idle_timeout": "0", "isolation": "read committed", "connections": "5", "most": "97", "role": "locks", "usage": "t",
    "made": "t", "rights": "t", "may_create": "t", "dead": "0",
}  # fmt: skip


def answer(facts: dict[str, str] | None = None, rows: int = 1) -> Any:
    values = list({**FACTS, "moment": str(time.time()), **(facts or {})}.items())
    return SimpleNamespace(
        status=2, ntuples=rows, nfields=len(values), error_field=lambda _: None, error_message=b"",
        fname=lambda column: values[column][0].encode(), get_value=lambda _, column: values[column][1].encode(),
    )  # fmt: skip


def refusal(code: str) -> Any:
    fields = {errors.SQLSTATE: code.encode(), errors.SEVERITY: b"ERROR"}
    return SimpleNamespace(status=7, ntuples=0, error_field=fields.get, error_message=b"ERROR:  refused")


class Server:
    """A source with one connection, whose requests are answered from a script."""

    label = LABEL

    def __init__(self, begin: Any = None, facts: Any = None, *, direct: bool = True) -> None:
        self.begin = begin or answer()
        self.facts = facts or answer()
        self.is_direct = direct
        self.did: list[object] = []
        self.source = self

    async def take(self) -> Server:
        return self

    def give(self, connection: object) -> None:
        assert connection is self
        self.did.append("given back")

    def discard(self, connection: object, *, dead: bool) -> None:
        assert connection is self
        self.did.append(f"discarded, dead={dead}")

    async def run_script(self, script: bytes) -> Any:
        self.did.append(script)
        return self.begin

    async def execute(self, statement: Any, values: Any) -> Any:
        self.did.append(values)
        assert b"pg_settings" in statement.text
        if isinstance(self.facts, BaseException):
            raise self.facts
        return self.facts

    def examine(self, *, has_listen_url: bool = False) -> dict[str, Any]:
        executor: Any = self
        found = run(doctor.examine(executor, "mine", ThreadRuntime(), has_listen_url=has_listen_url))
        return {finding.check: finding for finding in found}


def test_one_query_in_a_transaction_of_its_own_has_all_facts_and_the_connection_is_given_back() -> None:
    server = Server()
    found = server.examine()
    assert server.did == [
        b"BEGIN; SET LOCAL statement_timeout = 0", (b"mine",), b"ROLLBACK", "given back",
    ]  # fmt: skip
    assert set(found) == {
        "PostgreSQL", "role", "durability", "failover", "pooler", "server clock", "timeouts", "isolation",
        "connections", "dead rows", "rights",
    }  # fmt: skip
    assert {finding.level for finding in found.values()} == {Level.OK}
    assert "mine" in found["rights"].found


@pytest.mark.parametrize(
    ("direct", "listens", "level"), [(True, False, Level.OK), (False, True, Level.OK), (False, False, Level.WARNING)]
)
def test_a_session_that_another_process_answers_is_behind_a_pooler(direct: bool, listens: bool, level: Level) -> None:
    assert Server(direct=direct).examine(has_listen_url=listens)["pooler"].level is level


@pytest.mark.parametrize("code", [errors.CANCELLED, errors.LOCK_TIMEOUT])
def test_a_query_that_was_cancelled_is_the_only_finding(code: str) -> None:
    server = Server(facts=refusal(code))
    (finding,) = server.examine().values()
    assert (finding.check, finding.level) == ("timeouts", Level.PROBLEM)
    assert "was cancelled: " in finding.found
    assert "no other check was made" in finding.advice
    assert server.did[-2:] == [b"ROLLBACK", "given back"]


@pytest.mark.parametrize(
    ("begin", "facts", "kind"),
    [
        (refusal("57P03"), None, BackendUnavailable),
        (refusal("25P02"), None, BackendRejected),
        (None, refusal("42501"), BackendRejected),
        (None, answer(rows=0), BackendError),
    ],
)
def test_a_query_that_was_refused_is_an_error_and_its_transaction_is_over(
    begin: Any, facts: Any, kind: type[Exception]
) -> None:
    server = Server(begin, facts)
    with pytest.raises(kind):
        server.examine()
    assert ((b"mine",) in server.did) is (begin is None), "nothing is asked outside of the transaction"
    assert server.did[-2:] == [b"ROLLBACK", "given back"]


def test_a_connection_that_failed_under_the_query_is_given_up() -> None:
    server = Server(facts=BackendUnavailable("away"))
    with pytest.raises(BackendUnavailable, match="away"):
        server.examine()
    assert server.did[-1] == "discarded, dead=False"


@pytest.mark.parametrize(
    ("facts", "name", "level", "words"),
    [
        ({"connections": "90", "most": "100"}, "connections", Level.OK, "90 of 100 in use"),
        ({"connections": "91", "most": "100"}, "connections", Level.WARNING, "91 of 100 in use"),
        ({"moment": str(time.time() - 10 * 86_400)}, "server clock", Level.WARNING, "-86"),
        ({"moment": str(time.time() + 10 * 86_400)}, "server clock", Level.WARNING, "+86"),
        ({"replicas": "2", "lag": "0.0"}, "failover", Level.WARNING, "2 standbys seen, at most 0.000 s behind, none"),
        ({"replicas": "2", "standbys": "*"}, "failover", Level.OK, "2 standbys seen, synchronous"),
        ({"standby": "t", "behind": "0"}, "role", Level.PROBLEM, "a read-only standby, 0.0 s behind"),
    ],
)
def test_what_the_query_says_is_judged(facts: dict[str, str], name: str, level: Level, words: str) -> None:
    finding = Server(facts=answer(facts)).examine()[name]
    assert finding.level is level
    assert words in finding.found
