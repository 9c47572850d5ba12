"""The bench on which simulated clients meet."""

from __future__ import annotations

import pytest

from tests.stores.etcd.etcd_bench import Bench


@pytest.fixture
def bench() -> Bench:
    """What a test runs on that is `simulated`."""
    return Bench()
