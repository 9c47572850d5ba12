"""Leaders that are paused, killed, cut off and slow to stop, as real processes on real stores.

Each process writes down, on the clock that all share, between which instants its reads of `is_leader` succeeded. No two
processes may have led at one instant; on Redis, after a failover that loses what it had acknowledged, they may.
"""

from __future__ import annotations

import signal
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.forms import sized
from verification.lab.elections import Candidates, Span, overlaps
from verification.lab.postgres import postgres_url
from verification.lab.process import wait_until
from verification.lab.redis import RedisServer

if TYPE_CHECKING:
    from pathlib import Path

    from verification.lab.etcd import EtcdServer
    from verification.lab.postgres import PostgresServer
    from verification.lab.zookeeper import ZooKeeperServer

TIMINGS = (3.5, 2.0, 0.4)
STOPPING = 0.5  # seconds that a body takes to stop: less than what is left of the ttl after the renew deadline
ROUNDS = sized(1, 10)


@pytest.fixture(params=["sqlite", "postgresql", "etcd", "zookeeper"])
def candidates(request: pytest.FixtureRequest, tmp_path: Path) -> Candidates:
    """Three candidates that stop slowly."""
    if request.param == "sqlite":
        return Candidates(lambda _: f"sqlite:///{tmp_path}/locks.db", None, timings=TIMINGS, slow=STOPPING)
    if request.param == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        return Candidates(
            lambda place: postgres_url(int(place.rpartition(":")[2]), "postgres", "postgres"),
            ("127.0.0.1", postgres.port),
            timings=TIMINGS,
            slow=STOPPING,
        )
    if request.param == "etcd":
        etcd: EtcdServer = request.getfixturevalue("etcd_server")
        return Candidates(lambda place: f"etcd://{place}", ("127.0.0.1", etcd.port), timings=TIMINGS, slow=STOPPING)
    zookeeper: ZooKeeperServer = request.getfixturevalue("zookeeper_server")
    return Candidates(
        lambda place: f"zk://{place}/elections", (zookeeper.host, zookeeper.port), timings=TIMINGS, slow=STOPPING
    )


def bodies_that_met(spans: list[Span]) -> list[tuple[Span, Span]]:
    """Pairs of bodies of which the later began before the earlier had ended."""
    ran = sorted((span for span in spans if span.began), key=lambda span: span.fence)
    return [(one, two) for one, two in pairwise(ran) if one.ended and one.ended > two.began]


@pytest.mark.timeout(400)
def test_no_two_lead_at_one_instant_whatever_happens_to_the_leader(candidates: Candidates) -> None:
    with candidates:
        leader, term = candidates.leader()
        for _ in range(ROUNDS):
            if leader.proxy is not None:  # cut off: it stops by its own clock, slowly, before its successor starts
                leader.proxy.black_hole()
                successor, next_term = candidates.leader(term)
                leader.wait_end_of_body(term)
                assert bodies_that_met(candidates.spans()) == []
                leader.proxy.heal()
                leader.proxy.cut()
                leader, term = successor, next_term
            leader.send(signal.SIGSTOP)
            successor, next_term = candidates.leader(term)
            leader.send(signal.SIGCONT)
            leader.wait_end_of_body(term)
            leader, term = successor, next_term
            leader.send(signal.SIGKILL)
            leader, term = candidates.leader(term)
            candidates.add()
        spans = candidates.spans()
    assert overlaps(spans) == []
    assert len(spans) >= 3


@pytest.mark.timeout(400)
def test_a_leader_that_resigns_is_followed_long_before_its_ttl_is_over(candidates: Candidates) -> None:
    candidates._timings = (60.0, 40.0, 2.0)  # so long that nothing but the resignation can end a term
    with candidates:
        leader, term = candidates.leader()
        for _ in range(sized(1, 5)):
            candidates.settle()
            resigned = leader.send(signal.SIGTERM)
            assert leader.process.wait(60) == 0
            leader, term = candidates.leader(term)
            assert term.first - resigned < 30  # not by the ttl; how fast is measured by `python -m benchmarks election`
        assert overlaps(candidates.spans()) == []


def test_terms_that_overlap_are_found() -> None:
    """A check that cannot fail checks nothing."""
    first = Span(1, 10, first=1.0, last=5.0, began=1.0, ended=5.5)
    assert overlaps([Span(2, 11, first=5.1, last=6.0, began=5.2, ended=0.0), first]) == []
    late = Span(2, 11, first=4.9, last=6.0, began=5.2, ended=0.0)
    assert len(overlaps([late, first])) == 1
    assert bodies_that_met([late, first]) == [(first, late)]


@pytest.mark.timeout(400)
def test_a_redis_failover_that_loses_the_term_shows_two_leaders_whose_fences_are_in_order() -> None:
    """What no lock on one Redis can prevent: the replica that is promoted never got the term. The fence orders them."""
    with RedisServer("primary") as primary, RedisServer("replica", replica_of=primary) as replica:
        wait_until(primary.has_replicated, "the replica does not follow")
        replica.ask("REPLICAOF", "NO", "ONE")  # cut off; what is acknowledged from now on never gets there
        servers = [primary]
        with Candidates(lambda _: servers[-1].url, None, number=1, timings=(60.0, 40.0, 15.0)) as candidates:
            old, term = candidates.leader()
            primary.kill()
            servers.append(replica)  # the failover: clients are sent there
            candidates.add()
            _, next_term = candidates.leader(term)
            wait_until(lambda: old.spans()[0].last > next_term.first, "the old leader does not lead on")
            assert len(overlaps(candidates.spans())) == 1
            assert next_term.fence > term.fence
