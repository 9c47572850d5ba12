"""Every store has the same modules under the same names: a reader who knows one store knows them all.

The plan is explained in `docs/explanation/design.md`. A module outside it is named here, with its reason.
"""

from __future__ import annotations

from pathlib import Path

import pytest

BACKENDS = Path(__file__).parents[2] / "src" / "leasehold" / "backends"
STORES = sorted(path for path in BACKENDS.iterdir() if path.is_dir() and path.name != "__pycache__")

PLAN = {
    "__init__",
    "store",  # from a URL, or a client of the user's own, to a backend
    "options",  # what the URL may say
    "backend",  # the port, as thin dispatch
    "acquire", "queue", "renew", "release",  # the protocol, where backend.py would outgrow a page
    "keys", "schema",  # how names become keys, nodes, rows
    "fences",  # where the numbers come from
    "inspect", "doctor", "records",  # the optional ports
    "notifications",  # being woken
    "connection", "pool", "wire", "blocking_wire", "asyncio_wire",  # talking to servers
    "errors",  # the driver's errors into ours
}  # fmt: skip

EXTRAS: dict[str, dict[str, str]] = {
    "nats": {"documents": "the bucket as the kit's Documents, on which the whole store stands"},
}


def modules(store: Path) -> set[str]:
    return {path.stem for path in store.glob("*.py")}


@pytest.mark.parametrize("store", STORES, ids=lambda path: path.name)
def test_a_store_has_only_modules_of_the_plan(store: Path) -> None:
    assert modules(store) - PLAN - set(EXTRAS.get(store.name, {})) == set()


@pytest.mark.parametrize("store", STORES, ids=lambda path: path.name)
def test_an_extra_is_there_and_outside_the_plan(store: Path) -> None:
    extras = EXTRAS.get(store.name, {})
    assert set(extras) <= modules(store)
    assert not set(extras) & PLAN
    assert all(extras.values())


@pytest.mark.parametrize("store", STORES, ids=lambda path: path.name)
def test_every_store_has_the_modules_that_a_reader_looks_for_first(store: Path) -> None:
    assert {"store", "options", "backend"} <= modules(store)


def test_only_stores_are_in_the_folder_of_stores() -> None:
    assert {path.stem for path in BACKENDS.glob("*.py")} == {"__init__"}
