"""Stores that give another ttl than was asked for say so, and the lease knows it."""

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


def news_of(client: Client) -> list[events.TtlDiffers]:
    news: list[events.TtlDiffers] = []
    client.on_event(lambda event: news.append(event) if isinstance(event, events.TtlDiffers) else None)
    return news


def wait_for(news: list[events.TtlDiffers]) -> None:
    patience = time.monotonic() + 30
    while not news:
        assert time.monotonic() < patience, "nothing was said about the ttl"
        time.sleep(0.01)


def test_etcd_gives_more_than_a_very_short_ttl_and_says_so(etcd_server: EtcdServer) -> None:
    with leasehold.connect(etcd_server.url) as client:
        news = news_of(client)
        with client.lock("given-ttl-short", ttl=0.5).hold() as lease:
            assert lease.ttl >= 1
        with client.lock("given-ttl-whole", ttl=30).hold() as lease:
            assert lease.ttl == 30
    assert [(event.name, event.asked, event.given >= 1) for event in news] == [("given-ttl-short", 0.5, True)]


def test_zookeeper_gives_no_more_than_its_sessions_have_and_says_so() -> None:
    with (
        ZooKeeperServer(settings={"maxSessionTimeout": 20_000}) as server,
        leasehold.connect(server.url("/given-ttl")) as client,
    ):
        news = news_of(client)
        with client.lock("x", ttl="1h").hold() as lease:
            wait_for(news)
            assert lease.ttl < 600
            with pytest.raises(ConfigurationError, match="can never pass"):
                lease.check(need=600)
            lease.check(need=0.1)
        with client.lock("x", ttl="1h").hold():
            pass
    assert [(event.name, event.asked) for event in news] == [("x", 3600)]
    assert news[0].given == pytest.approx(lease.ttl, rel=0.5)
