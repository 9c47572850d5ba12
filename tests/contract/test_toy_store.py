"""The whole contract over the toy store of `examples/`, reached by other processes through its entry point."""

from __future__ import annotations

import os
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import leasehold
from examples.toy_store.toy_store import ToyStore
from leasehold.testing import ManualClock, contract
from leasehold.values import Capability
from tests.contract.by_turns import by_turns
from tests.forms import sized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.spi import Runtime, Store

PROJECT = Path(__file__).resolve().parents[2] / "examples" / "toy_store"


class ToyHarness(contract.Harness):
    """One file for one case. The clock is turned by hand, except where other processes take part."""

    capabilities = frozenset(Capability) - {Capability.PUSH, Capability.SESSION}
    stride = sized(7, 1)  # it writes its whole file with every request; the lines of the core are memory's as well

    def __init__(self) -> None:
        # A release that got no answer goes on in the background, and may write while the folder is removed.
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._path = str(Path(self._folder.name) / "locks.json")
        self.clock: ManualClock | None = ManualClock()

    def open_store(self) -> Store:
        if self.clock is None:
            return ToyStore(self._path)
        now = self.clock.now
        return ToyStore(self._path, lambda: 1_767_225_600.0 + now(), pause=0)  # nobody turns the clock during a call

    def url_for_children(self) -> str:
        self.clock = None  # other processes live in real time
        return f"toy://{self._path}"

    async def pass_time(self, runtime: Runtime, seconds: float) -> None:
        if self.clock is None:
            await runtime.sleep(seconds)
        else:
            self.clock.advance(seconds)

    def stop(self) -> None:
        if self.clock is not None:
            self.clock.advance(1_000_000)  # let everybody go who still waits for it
        self._folder.cleanup()


@pytest.fixture(autouse=True, scope="module")
def _installed() -> Iterator[None]:
    """As `pip install examples/toy_store` would leave it: the metadata that names the store."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    ((group, points),) = project["entry-points"].items()
    with tempfile.TemporaryDirectory() as site, pytest.MonkeyPatch.context() as patch:
        info = Path(site) / f"toy_store-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
        lines = [f"{name} = {target}" for name, target in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
        paths = [site, str(PROJECT)]
        patch.setenv("PYTHONPATH", os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]))
        for path in paths:
            patch.syspath_prepend(path)
        yield


@by_turns(contract.CASES)
def test_the_toy_store_keeps_the_contract(case: contract.Case, driver: type[contract.Driver]) -> None:
    contract.check(case, ToyHarness(), driver())


def test_its_url_is_found_through_the_entry_point(tmp_path: Path) -> None:
    with leasehold.connect(f"toy://{tmp_path}/locks.json") as client, client.lock("report").hold() as lease:
        assert lease.fence > 1


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text("not ours")
    with leasehold.connect(f"toy://{path}") as client, pytest.raises(leasehold.BackendRejected):
        client.lock("report").acquire()
    assert path.read_text() == "not ours"
