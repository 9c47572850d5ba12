"""The contract: what every store must do, as cases written once and run over store x runtime.

    from leasehold.testing import contract

    class MyHarness(contract.Harness):
        ttl = 1.0                               # the shortest ttl that it honours
        def open_store(self): return MyStore("...")

    @pytest.mark.parametrize("case", contract.CASES, ids=str)
    @pytest.mark.parametrize("driver", contract.DRIVERS)
    def test_contract(case, driver):
        contract.check(case, MyHarness(), driver())

Each case is tagged by what decides whether its promise is kept, the store or the core. `STORE_CASES` are the first, for
one more server behind a backend that passes all of them elsewhere.

There are no skips. The capabilities are those that the backend declares; a case that needs another one checks instead
that asking for it is refused. `python -m leasehold.testing.contract URL` runs it all without pytest.
"""

from leasehold.testing.contract.cases import CASES, STORE_CASES, Case
from leasehold.testing.contract.drivers import DRIVERS, AsyncioDriver, Driver, ThreadDriver
from leasehold.testing.contract.harness import Harness, MemoryHarness, UrlHarness
from leasehold.testing.contract.lab import Lab
from leasehold.testing.contract.runner import check
from leasehold.testing.contract.table import REQUIRED

__all__ = [
    "CASES",
    "DRIVERS",
    "REQUIRED",
    "STORE_CASES",
    "AsyncioDriver",
    "Case",
    "Driver",
    "Harness",
    "Lab",
    "MemoryHarness",
    "ThreadDriver",
    "UrlHarness",
    "check",
]
