"""The contract over the newest PostgreSQL that comes as a wheel: rows whole, sessions in the groups that meet it.

What a session-mode client does by itself (bad input, names, interruption) does not depend on the server's version,
and is run over Debian's PostgreSQL only.
"""

from __future__ import annotations

from leasehold.testing import contract
from tests.contract.by_turns import by_turns
from verification.lab.postgres import PostgresServer

GROUPS = {"ownership", "expiry", "fences", "modes", "operators", "processes"}
IN_SESSIONS = [case for case in contract.STORE_CASES if case.group in GROUPS]


@by_turns(contract.STORE_CASES, every=3)
def test_contract(case: contract.Case, driver: type[contract.Driver], newer_postgres: PostgresServer) -> None:
    harness = contract.UrlHarness(
        newer_postgres.url(), contract.REQUIRED["postgresql"], ttl=0.5, swept="_backends kit/pool", stride=7
    )
    contract.check(case, harness, driver())


@by_turns(IN_SESSIONS, every=3)
def test_contract_in_sessions(
    case: contract.Case, driver: type[contract.Driver], newer_postgres: PostgresServer
) -> None:
    url = f"{newer_postgres.url()}?mode=session"
    contract.check(
        case,
        contract.UrlHarness(url, contract.REQUIRED["postgresql session"], ttl=0.5, swept="_backends kit/pool"),
        driver(),
    )
