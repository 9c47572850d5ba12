"""The dashboard over each kind of store, and over one that is away for a while."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.values import Capability
from tests.telemetry.test_exporter_stores import url_of
from tests.waiting import eventually
from tests.web.serving import dashboard_at, program

if TYPE_CHECKING:
    from pathlib import Path

    from verification.lab.proxy import FaultProxy

NAMESPACE = "shown"
KINDS = ("memory", "sqlite", "redis", "redlock", "postgres", "mysql", "etcd", "zookeeper", "nats")


def store_url(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "memory":
        return "memory://shown"
    return url_of(kind, request, folder)


@pytest.mark.parametrize("kind", KINDS)
def test_locks_queues_runs_and_orders_are_those_of_the_store(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = store_url(kind, request, tmp_path)
    client = leasehold.connect(url, namespace=NAMESPACE, ttl=20, label="worker-1", slow_wait=None)
    lease = client.lock("a/b: ü", reason="charging").acquire(30)
    waiter = threading.Thread(target=lambda: client.lock("a/b: ü").acquire(120).release())
    waiter.start()
    has = client.capabilities.__contains__
    with dashboard_at(url, namespace=NAMESPACE, jobs=["job"]) as address, program(address) as caller:

        def lock() -> Any:
            return caller.facts("lock", name="a/b: ü")["lock"]

        if has(Capability.FIFO):
            eventually(lambda: lock()["waiters"] == 1)
        else:
            assert "keeps no queue" in caller.get("").text
        listed = caller.facts("locks")["locks"][0]
        assert listed["name"] == "a/b: ü"
        for facts in (lock(), listed):
            (holding,) = facts["holdings"]
            assert (holding["fence"], holding["holder"]["label"]) == (lease.fence, "worker-1")
            assert holding["holder"]["reason"] == "charging"
            assert 0 < holding["expires_in"] <= holding["ttl_seen"]
        if has(Capability.RECORD):
            client.once("job", slot="monday").run(lambda: None)
            eventually(lambda: caller.facts("jobs")["jobs"][0]["last_run"] is not None)
        order = {"name": "a/b: ü", "fence": lease.fence, "confirm": "a/b: ü", "reason": "test", "now": True}
        assert caller.order("break", **order).json()["done"], "the waiter gets it now"
        waiter.join()
        for page in ("", "leaders", "jobs", "keys", "partitions", "doctor"):
            assert caller.get(page).status_code == 200, page
    lease.release()
    client.close(release=True)


def test_a_store_that_is_away_is_said_to_be_and_the_page_recovers(redis_proxy: FaultProxy) -> None:
    url = "redis://{}:{}/0".format(*redis_proxy.address)
    with dashboard_at(url) as address, program(address) as caller, leasehold.connect(url) as client:
        with client.lock("still shown").hold():
            assert caller.facts("locks")["error"] is None
        redis_proxy.refuse()
        eventually(lambda: caller.get("api/v1/locks").status_code == 503)
        text = caller.get("").text
        assert "The store does not answer" in text
        assert "still shown" in text
        assert "does not answer" in caller.get("leaders").text
        assert caller.get("lock?name=x").status_code == 503
        redis_proxy.accept()
        eventually(lambda: caller.get("api/v1/locks").status_code == 200)
        assert "The store does not answer" not in caller.get("").text


def test_a_store_that_hangs_is_away_until_it_answers_again(redis_proxy: FaultProxy) -> None:
    url = "redis://{}:{}/0".format(*redis_proxy.address)
    with dashboard_at(url) as address, program(address) as caller:
        assert caller.get("api/v1/locks").status_code == 200
        redis_proxy.black_hole()
        eventually(lambda: "The store does not answer" in caller.get("").text)
        redis_proxy.heal()
        redis_proxy.cut()
        eventually(lambda: caller.get("api/v1/locks").status_code == 200)
