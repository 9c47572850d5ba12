"""The leader of a ZooKeeper ensemble is stopped, killed or cut off while three processes contend for a lock.

Whatever happens: no two believe at the same time, fences rise, and when it is over every contender is served again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import leasehold
from tests.stores.zookeeper.zookeeper_support import Contender, Contest, check_history, looking_at, now
from verification.lab.namespaces import Network
from verification.lab.process import wait_until
from verification.lab.zookeeper import Ensemble

if TYPE_CHECKING:
    from collections.abc import Iterator

TTL = 4.0
QUICK = {"syncLimit": 10}  # followers miss their leader after a second


@pytest.fixture
def ensemble() -> Iterator[Ensemble]:
    with Ensemble(settings=QUICK) as servers:
        yield servers


def another_leads(ensemble: Ensemble, old: object) -> None:
    wait_until(
        lambda: any(one is not old and one.is_running and one.mode == "leader" for one in ensemble.servers),
        "the others do not elect a new leader",
    )


def test_a_stopped_leader_gives_no_second_grant(ensemble: Ensemble) -> None:
    with Contest(3, ensemble.url("/stopped"), TTL) as contest:
        leader = ensemble.leader()
        leader.pause()
        another_leads(ensemble, leader)
        contest.all_are_served()
        leader.resume()
        contest.all_are_served()


def test_a_killed_leader_gives_no_second_grant(ensemble: Ensemble) -> None:
    with Contest(3, ensemble.url("/killed"), TTL) as contest:
        for _ in range(2):
            leader = ensemble.leader()
            leader.kill()
            another_leads(ensemble, leader)
            contest.all_are_served()
            leader.start()
        contest.all_are_served()


def test_a_leader_that_is_cut_off_and_healed_gives_no_second_grant() -> None:
    with Network(3) as network:
        ensemble = Ensemble(settings=QUICK, hosts=[host.address for host in network.hosts])
        for server, host in zip(ensemble.servers, network.hosts, strict=True):
            server.prefix = tuple(host.prefix)
        with ensemble, Contest(3, ensemble.url("/cut"), TTL) as contest:
            leader = ensemble.leader()
            host = network.hosts[ensemble.servers.index(leader)]
            host.cut()
            another_leads(ensemble, leader)
            contest.all_are_served()
            host.heal()
            wait_until(lambda: leader.mode == "follower", "the old leader does not come back")
            contest.all_are_served()


def test_a_holder_beside_a_server_that_is_cut_off_is_not_fooled_by_its_answers() -> None:
    """The server goes on answering pings and reads by itself, while the leader ends the session."""
    with Network(3) as network:
        ensemble = Ensemble(settings={"syncLimit": 150}, hosts=[host.address for host in network.hosts])
        for server, host in zip(ensemble.servers, network.hosts, strict=True):
            server.prefix = tuple(host.prefix)
        with ensemble:
            lonely = ensemble.followers()[0]
            host = network.hosts[ensemble.servers.index(lonely)]
            others = ",".join(server.address for server in ensemble.servers if server is not lonely)
            inside = Contender(lonely.url("/fooled"), "contest", 2.0, 60.0, prefix=host.prefix)
            with leasehold.connect(f"zk://{others}/fooled", ttl=2) as eye:
                wait_until(lambda: eye.inspect("contest") is not None, "the holder does not begin")
            outside = Contender(f"zk://{others}/fooled", "contest", 2.0, 0.2)
            host.cut()
            outside.wait_for_grants(3)
            assert lonely.answers_inside(host.prefix), "the server had to be alive for this"
            inside.wait_until_it_had(1)
            host.heal()
            for contender in (inside, outside):
                contender.finish()
            check_history(sorted(inside.grants + outside.grants, key=lambda grant: grant["first"]))
            assert inside.grants[0]["end"].startswith("lost")


def test_without_a_majority_nothing_is_granted_and_afterwards_everything_is(ensemble: Ensemble) -> None:
    with Contest(3, ensemble.url("/majority"), TTL) as contest:
        for server in ensemble.followers():
            server.pause()
        stopped = now()
        time.sleep(TTL * 2)  # every grant expires meanwhile
        healed = now()
        for server in ensemble.servers:
            server.resume()
        contest.all_are_served()
        without = [grant for grant in contest.grants() if stopped + TTL < grant["last"] < healed]
    assert not without, "a grant was valid although there was no majority"


def test_nothing_is_left_over_when_all_is_over(ensemble: Ensemble) -> None:
    with Contest(3, ensemble.url("/left"), TTL):
        leader = ensemble.leader()
        leader.kill()
        another_leads(ensemble, leader)
        leader.start()
    with looking_at(ensemble) as eye:
        (lock,) = eye.get_children("/left/locks")
        wait_until(lambda: eye.get_children(f"/left/locks/{lock}") == [], "claims are left over")
    wait_until(lambda: sum(server.sessions() for server in ensemble.servers) == 0, "sessions are left over")
    assert sum(server.watches() for server in ensemble.servers) == 0
