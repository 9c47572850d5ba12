"""Which server a Redis store asks: what is decided from the answers, without a server."""

from __future__ import annotations

import itertools
import math

import pytest

from leasehold.backends.redis.topology import DISCOVERY_TIMEOUT, newest, refused_by_all, share
from leasehold.backends.redis.wire import HASTY, STEP, Node, is_hasty, stepped
from leasehold.errors import BackendRejected, BackendUnavailable

OLD, NEW = Node("old"), Node("new")


@pytest.mark.parametrize("answers", list(itertools.permutations([(3, OLD), (3, OLD), (4, NEW)])))
def test_newest_configuration_counts_however_many_sentinels_name_an_older_one(
    answers: tuple[tuple[int, Node], ...],
) -> None:
    """After a fail-over one that was cut off still names the old primary, and that one may believe in it too."""
    assert newest(answers) == NEW


def test_refusal_counts_only_if_all_refuse() -> None:
    refused, away = BackendRejected("no"), BackendUnavailable("away")
    assert refused_by_all([refused, refused]) is refused
    assert refused_by_all([refused, away]) is None
    assert refused_by_all([away]) is None
    assert refused_by_all([]) is None


def test_each_of_several_servers_gets_a_share_of_the_time() -> None:
    assert share(100.0, 5) == DISCOVERY_TIMEOUT
    assert share(1.0, 5) == pytest.approx(0.2)
    assert share(0.0, 5) > 0, "a server that answers at once is asked"


@pytest.mark.parametrize("left", [0.0001, 0.01, 0.2, 0.25, 0.3, 0.9, 0.99999, 1.0, 1.7, 2.0, 5.0, math.inf])
def test_timeout_of_a_socket_is_neither_longer_than_a_step_too_long_nor_nothing(left: float) -> None:
    limit = stepped(2.0, left)
    assert 0.0 < limit <= 2.0
    assert min(left, 2.0) <= limit <= min(left, 2.0) + (STEP if left >= HASTY else 0.001)


def test_timeout_of_a_socket_seldom_changes() -> None:
    assert len({stepped(2.0, 1.0 - microseconds * 1e-6) for microseconds in range(1, 1000)}) == 1


def test_short_wait_proves_nothing_about_a_connection_unless_it_is_all_that_it_is_given() -> None:
    assert is_hasty(0.1, own=2.0)
    assert not is_hasty(0.1, own=0.1)
    assert not is_hasty(1.0, own=2.0)
