"""Five nodes for Redlock, one set for the session; a test that hurts a node makes a set of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from verification.lab.redlock import RedlockNodes

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def redlock_nodes() -> Iterator[RedlockNodes]:
    """Five nodes. Machines that run tests are busy, so a node gets more time than it would by default."""
    with RedlockNodes(5, max_ttl=10_000, answer_timeout=0.5) as nodes:
        yield nodes
