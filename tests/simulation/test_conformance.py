"""The simulated servers answer as real ones do; the long form is `make conformance`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from verification.simulation.conformance import compare
from verification.simulation.etcd import conformance as etcd
from verification.simulation.etcd.server import SimEtcd
from verification.simulation.mysql import conformance as mysql
from verification.simulation.mysql.server import SimMysql
from verification.simulation.nats import conformance as nats
from verification.simulation.nats.server import SimNats
from verification.simulation.redlock import conformance as redlock
from verification.simulation.zookeeper import conformance as zookeeper
from verification.simulation.zookeeper.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.etcd import EtcdServer
    from verification.lab.mariadb import MariadbServer
    from verification.lab.nats import NatsServer
    from verification.lab.redis import RedisServer
    from verification.lab.zookeeper import ZooKeeperServer

OPERATIONS = 1_000


@pytest.fixture(scope="module")
def patient_zookeeper() -> Iterator[ZooKeeperServer]:
    """A server that removes no idle parents while answers are compared."""
    with zookeeper.real_server() as server:
        yield server


def test_the_simulated_cluster_answers_as_etcd_does(etcd_server: EtcdServer) -> None:
    assert compare(etcd.against(etcd_server, 1), OPERATIONS).differences == []


def test_the_simulated_tables_answer_as_those_of_mariadb_do(mariadb: MariadbServer) -> None:
    assert compare(mysql.against(mariadb, 1), OPERATIONS).differences == []


def test_the_simulated_bucket_answers_as_nats_does(own_nats: NatsServer) -> None:
    assert compare(nats.against(own_nats, 1), OPERATIONS).differences == []


def test_a_simulated_node_answers_the_scripts_of_redlock_as_redis_does(redis_server: RedisServer) -> None:
    assert compare(redlock.against(redis_server, 1), OPERATIONS).differences == []


def test_the_simulated_ensemble_answers_as_zookeeper_does(patient_zookeeper: ZooKeeperServer) -> None:
    assert compare(zookeeper.against(patient_zookeeper, 1), OPERATIONS).differences == []


def test_an_ensemble_that_answers_otherwise_is_noticed(
    patient_zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tree, "below", lambda self, path: [name for name in self.names.get(path, ()) if name != "a"])
    assert compare(zookeeper.against(patient_zookeeper, 1), OPERATIONS).differences


def test_a_cluster_that_answers_otherwise_is_noticed(etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimEtcd, "_compare", lambda *_: True)
    assert compare(etcd.against(etcd_server, 1), OPERATIONS).differences


def test_a_bucket_that_answers_otherwise_is_noticed(own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = SimNats._publish
    monkeypatch.setattr(SimNats, "_publish", lambda self, request: publish(self, request._replace(headers="")))
    assert compare(nats.against(own_nats, 1), OPERATIONS).differences


@pytest.mark.parametrize("piece", ["last_insert_id", "row_count"])
def test_tables_that_answer_otherwise_are_noticed(
    mariadb: MariadbServer, monkeypatch: pytest.MonkeyPatch, piece: str
) -> None:
    monkeypatch.setattr(SimMysql, piece, lambda *_: 1)
    assert compare(mysql.against(mariadb, 1), OPERATIONS).differences
