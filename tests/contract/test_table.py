"""Each store declares exactly the capabilities of the table, and the contract checks every one of them."""

from __future__ import annotations

from leasehold._runtimes.threads import ThreadRuntime
from leasehold._urls import find_store
from leasehold.testing import contract
from leasehold.values import Capability

STORES = {
    "memory": "memory://",
    "etcd": "etcd://nowhere",
    "mysql": "mysql://nowhere/locks",
    "mysql session": "mariadb://nowhere/locks?mode=session",
    "postgresql": "postgresql://nowhere",
    "postgresql session": "postgresql://nowhere?mode=session",
    "redis": "redis://nowhere",
    "redlock": "redlock://one,two,three",
    "sqlite": "sqlite:////nonexistent/locks.db",
    "zookeeper": "zk://nowhere",
}


def test_each_store_declares_exactly_what_the_table_requires() -> None:
    for store, url in STORES.items():
        backend = find_store(url).open_backend(ThreadRuntime())
        assert backend.capabilities == contract.REQUIRED[store], store


def test_every_capability_has_a_case() -> None:
    checked = {need for case in contract.CASES for need in case.needs}
    always = {Capability.EXCLUSIVE}  # every case without a need
    by_process_tests_of_their_stores = {Capability.SESSION}
    assert checked | always | by_process_tests_of_their_stores == set(Capability)


def test_case_names_are_unique() -> None:
    names = [str(case) for case in contract.CASES]
    assert len(names) == len(set(names))
