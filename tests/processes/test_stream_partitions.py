"""The example that consumes a Redis stream with one consumer per partition, on a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verification.lab.redis import RedisServer

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "stream_partitions" / "stream_partitions.py"


def tell(server: RedisServer, example: Path = EXAMPLE) -> subprocess.CompletedProcess[str]:
    server.flush()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(example), server.url]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=110)


def test_a_late_consumer_damages_an_order_without_the_fence_and_not_with_it(redis_server: RedisServer) -> None:
    done = tell(redis_server)
    assert done.returncode == 0, done.stdout + done.stderr
    plain, _, fenced = done.stdout.partition("\nWITH THE FENCE")
    assert "DAMAGED" in plain
    assert "REFUSED" not in plain
    assert "every event was applied once and in order" in fenced
    assert "REFUSED" in fenced
