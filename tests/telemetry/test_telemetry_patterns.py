"""What the metrics say about elections, jobs, keys, caches, partitions and guards."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold.sql import guard
from leasehold.telemetry.recorder import LEADER, PARTITIONS
from tests.waiting import two_in_turn

if TYPE_CHECKING:
    from pathlib import Path

    from tests.telemetry.reports import Report


def test_a_leader_is_a_one_while_it_leads(report: Report) -> None:
    with leasehold.connect("memory://") as client:
        report.switch_on(client)
        with client.election("boss").lead():
            assert report.value(LEADER, "memory", "boss") == 1
            with pytest.raises(leasehold.AcquireTimeout):
                client.election("boss", group="second").lead(0).__enter__()
            assert report.series(LEADER) == {("memory", "boss"): 1, ("memory", "second"): 0}
        assert report.series(LEADER)["memory", "boss"] == 0


def test_jobs_are_counted_by_outcome(report: Report) -> None:
    with leasehold.connect("memory://") as client:
        report.switch_on(client)
        job = client.once("report", slot="2026-11-15", on_failure="open")
        with pytest.raises(ValueError, match="of the job"), job.attempt():
            raise ValueError("of the job")
        with job.attempt() as run:
            assert run
        with job.attempt() as run:
            assert not run
        runs = report.series("leasehold.once.runs")
        assert {labels[2]: value for labels, value in runs.items()} == {"failed": 1, "done": 1, "skipped": 1}
        assert {labels[1] for labels in runs} == {"report"}


def test_keys_are_counted_by_outcome(report: Report) -> None:
    with leasehold.connect("memory://") as client:
        report.switch_on(client)
        keys = client.idempotency("payments")
        with keys.attempt("k1", "a") as attempt:
            with pytest.raises(leasehold.InFlight), keys.attempt("k1", "a"):
                pass
            attempt.complete(1)
        with keys.attempt("k1", "a") as attempt:
            assert attempt.replayed
        with pytest.raises(leasehold.KeyReused), keys.attempt("k1", "b"):
            pass
        found = {labels[1]: value for labels, value in report.series("leasehold.idempotency.requests").items()}
        assert found == {"executed": 1, "in_progress": 1, "replayed": 1, "mismatch": 1}


def test_caches_are_counted_by_what_was_found_and_built(report: Report) -> None:
    def fail() -> int:
        raise ValueError("of the build")

    with leasehold.connect("memory://") as client:
        report.switch_on(client)
        cache = client.cache("prices", ttl=60, beta=0)
        assert cache.get("a", lambda: 1) == 1
        assert cache.get("a", lambda: 2) == 1
        with pytest.raises(ValueError, match="of the build"):
            cache.get("b", fail)
        found = report.series("leasehold.cache.requests")
        assert found == {("memory", "prices", "miss"): 2, ("memory", "prices", "hit"): 1}
        assert report.value("leasehold.cache.build.duration", "memory") == 1
        assert report.value("leasehold.cache.failures", "memory", "build") == 1


def test_partitions_are_counted_while_they_are_owned(report: Report) -> None:
    with leasehold.connect("memory://") as client:
        report.switch_on(client)
        with client.partitions("stream", 3) as share:
            assert len(share.owned()) == 3
            assert report.value(PARTITIONS, "memory", "stream") == 3
            share.owned()[0].release()
            assert report.value(PARTITIONS, "memory", "stream") == 2
        assert report.value(PARTITIONS, "memory", "stream") == 0


def test_guards_count_writers_that_pass_and_late_ones(report: Report, tmp_path: Path) -> None:
    with leasehold.connect("memory://") as client, leasehold.connect("memory://") as other:
        report.switch_on(client)
        report.switch_on(other)  # guards are the process's: they are counted once
        late, current = two_in_turn(client.lock("x"))
        connection = sqlite3.connect(tmp_path / "data.db", isolation_level=None)
        for lease in (current, late):
            connection.execute("BEGIN")
            if lease is late:
                with pytest.raises(leasehold.StaleFence):
                    guard(connection, lease)
            else:
                guard(connection, lease)
            connection.execute("COMMIT")
        connection.close()
        assert report.series("leasehold.fence.checks") == {("ok",): 1, ("stale",): 1}
