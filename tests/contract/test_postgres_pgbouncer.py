"""The contract over rows, through a PgBouncer that pools transactions: without a way around it all cases, and the cases
of waiting once more with one (`listen_url`), on which messages arrive.
"""

from __future__ import annotations

from urllib.parse import quote

from leasehold.testing import contract
from tests.contract.by_turns import by_turns
from verification.lab.pgbouncer import PgBouncer
from verification.lab.postgres import PostgresServer

OF_WAITING = [case for case in contract.STORE_CASES if case.group in ("waiting", "queueing", "modes")]


@by_turns(contract.STORE_CASES, first=1, every=3)
def test_contract(case: contract.Case, driver: type[contract.Driver], pgbouncer: PgBouncer) -> None:
    harness = contract.UrlHarness(
        pgbouncer.url(), contract.REQUIRED["postgresql"], ttl=0.5, swept="_backends kit/pool", stride=7
    )
    contract.check(case, harness, driver())


@by_turns(OF_WAITING, first=1)
def test_contract_with_a_way_around(
    case: contract.Case, driver: type[contract.Driver], pgbouncer: PgBouncer, postgres: PostgresServer
) -> None:
    url = f"{pgbouncer.url()}?listen_url={quote(postgres.url(), safe='')}"
    contract.check(
        case, contract.UrlHarness(url, contract.REQUIRED["postgresql"], ttl=0.5, swept="_backends kit/pool"), driver()
    )
