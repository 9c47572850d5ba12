"""`leasehold exporter` as a program, over each kind of store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

import leasehold
from leasehold.values import Capability
from tests.waiting import eventually
from verification.lab.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[2] / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE)}
NAMESPACE = "exported"


def url_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder}/locks.db"
    if kind == "mysql":
        return str(request.getfixturevalue("mariadb_database"))
    fixture = {
        "redis": "redis_server", "redlock": "redlock_nodes", "postgres": "postgres", "etcd": "etcd_server",
        "zookeeper": "zookeeper_server", "nats": "nats_server",
    }[kind]  # fmt: skip
    url = request.getfixturevalue(fixture).url
    return str(url if isinstance(url, str) else url("/exported") if kind == "zookeeper" else url())


@contextmanager
def exporting(url: str, folder: Path, *words: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    port = free_port()
    command = [sys.executable, "-m", "leasehold", "exporter", "--url", url, "--namespace", NAMESPACE]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{port}", "--max-age", "50ms", *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=ENVIRONMENT,
        )  # fmt: skip
        try:
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.kill()
            process.wait()


def page(address: str, path: str = "/metrics") -> str:
    with suppress(OSError), urlopen(address + path, timeout=30) as answer:
        return str(answer.read().decode())
    return ""


@pytest.mark.parametrize("kind", ["sqlite", "redis", "redlock", "postgres", "mysql", "etcd", "zookeeper", "nats"])
def test_the_gauges_are_those_of_the_store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = url_of(kind, request, tmp_path)
    with leasehold.connect(url, namespace=NAMESPACE, ttl=10) as client:
        leases = [client.lock(f"order:{number}").acquire(30) for number in range(2)]
        waiter = threading.Thread(target=lambda: client.lock("order:0").acquire(120).release())
        waiter.start()
        queues = Capability.FIFO in client.capabilities
        with exporting(url, tmp_path) as (address, process):
            eventually(
                lambda: 'leasehold_fleet_locks_held{group="order"} 2' in page(address), (tmp_path / "log").read_text()
            )
            if queues:
                eventually(lambda: 'leasehold_fleet_waiters{group="order"} 1' in page(address))
            text = page(address)
            assert "leasehold_up 1.0" in text
            assert "order:0" not in text
            assert page(address, "/healthz") == "ok\n"
            with pytest.raises(HTTPError, match="404"):
                urlopen(f"{address}/secrets", timeout=30)
            for lease in leases:
                lease.release()
            waiter.join()
            eventually(lambda: 'leasehold_fleet_locks_held{group="order"} 0' in page(address))
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def test_a_store_inside_one_process_and_bad_addresses_are_refused(tmp_path: Path) -> None:
    for words, text in (
        (("--url", "memory://x"), "inside one process"),
        (("--url", f"sqlite:///{tmp_path}/x.db", "--listen", "9479"), "HOST:PORT"),
    ):
        command = [sys.executable, "-m", "leasehold", "exporter", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False)
        assert done.returncode == 78
        assert text in done.stderr
