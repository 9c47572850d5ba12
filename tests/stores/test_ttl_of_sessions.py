"""Stores that give another ttl than was requested report it, and the lease knows it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold import events
from leasehold.errors import ConfigurationError
from verification.lab.zookeeper import ZooKeeperServer

if TYPE_CHECKING:
    from leasehold import Client
    from verification.lab.etcd import EtcdServer


def reports_of(client: Client) -> list[events.TtlDiffers]:
    reports: list[events.TtlDiffers] = []
    client.on_event(lambda event: reports.append(event) if isinstance(event, events.TtlDiffers) else None)
    return reports


def wait_for(reports: list[events.TtlDiffers]) -> None:
    deadline = time.monotonic() + 30
    while not reports:
        assert time.monotonic() < deadline, "the ttl was not reported"
        time.sleep(0.01)


def test_etcd_gives_more_than_a_very_short_ttl_and_reports_it(etcd_server: EtcdServer) -> None:
    with leasehold.connect(etcd_server.url) as client:
        reports = reports_of(client)
        with client.lock("given-ttl-short", ttl=0.5).hold() as lease:
            assert lease.ttl >= 1
        with client.lock("given-ttl-whole", ttl=30).hold() as lease:
            assert lease.ttl == 30
    assert [(event.name, event.asked, event.given >= 1) for event in reports] == [("given-ttl-short", 0.5, True)]


def test_zookeeper_gives_no_more_than_its_sessions_have_and_reports_it() -> None:
    with (
        ZooKeeperServer(settings={"maxSessionTimeout": 20_000}) as server,
        leasehold.connect(server.url("/given-ttl")) as client,
    ):
        reports = reports_of(client)
        with client.lock("x", ttl="1h").hold() as lease:
            wait_for(reports)
            assert lease.ttl < 600
            with pytest.raises(ConfigurationError, match="can never pass"):
                lease.check(need=600)
            lease.check(need=0.1)
        with client.lock("x", ttl="1h").hold():
            pass
    assert [(event.name, event.asked) for event in reports] == [("x", 3600)]
    assert reports[0].given == pytest.approx(lease.ttl, rel=0.5)
