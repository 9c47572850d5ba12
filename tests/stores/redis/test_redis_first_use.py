"""Both faces of the library in one process, neither of which has been used before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import leasehold

if TYPE_CHECKING:
    from verification.lab.redis import RedisServer
    from verification.lab.redis_cluster import RedisCluster

SCRIPT = Path(__file__).with_name("redis_first_use.py")
PROCESSES = 4


def outcomes(url: str) -> list[tuple[int, str]]:
    path = os.pathsep.join([str(Path(leasehold.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    started = [
        subprocess.Popen([sys.executable, str(SCRIPT), url], env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    return [(process.wait(120), process.communicate()[1].strip()) for process in started]


@pytest.mark.parametrize("kind", ["server", "cluster"])
def test_blocking_and_asyncio_clients_that_are_first_used_at_the_same_time_both_work(
    redis_server: RedisServer, cluster_nodes: RedisCluster, kind: str
) -> None:
    """They failed with errors of Python's import system: each loaded another part of redis-py."""
    url = redis_server.url if kind == "server" else cluster_nodes.url
    assert outcomes(url) == [(0, "")] * PROCESSES
