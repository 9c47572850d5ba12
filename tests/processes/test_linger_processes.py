"""Processes that end or fork while a lock lingers. The ttl is ten minutes: what is free was given back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import leasehold
from tests.waiting import LIMIT

if TYPE_CHECKING:
    from verification.lab.redis import RedisServer

WORKER = Path(__file__).with_name("linger_worker.py")
SOURCE = Path(leasehold.__file__).parents[1]


@pytest.mark.parametrize("story", ["close", "signal", "fork"])
@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_a_process_that_ends_gives_back_what_lingers(
    store: str, story: str, tmp_path: Path, redis_server: RedisServer
) -> None:
    url = f"sqlite:///{tmp_path}/locks.db" if store == "sqlite" else redis_server.url
    namespace = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, str(WORKER), story, url, namespace],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    try:
        assert process.stdout is not None
        if story == "fork":
            assert process.stdout.readline().split() == ["child", "True"]
        said = process.stdout.readline().split()
        assert said[:1] == ["parked"], process.communicate()[1]
        if story == "signal":
            process.send_signal(signal.SIGTERM)
        _, complaint = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.wait()
    assert complaint == ""
    assert process.returncode == (-signal.SIGTERM if story == "signal" else 0)
    with leasehold.connect(url, namespace=namespace) as client:
        lease = client.lock("x").acquire(timeout=LIMIT)  # of ten minutes
        assert lease.fence > int(said[1]) + 1
        lease.release()
