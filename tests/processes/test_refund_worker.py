"""The example of a refund worker, as its readers run it: several workers, one of them killed."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from tests.waiting import catches
from verification.lab.process import wait_until

SHOP = Path(__file__).parents[2] / "examples" / "refund_worker" / "shop.py"
LIMIT = 120.0


def test_every_cancelled_order_is_refunded_once(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    command = [sys.executable, str(SHOP), str(path)]
    orders = [str(number) for number in (*range(1, 6), 3, -1)]
    subprocess.run([*command, "cancel", *orders], check=True)
    killed, worker = (subprocess.Popen([*command, "work"], stdout=subprocess.PIPE, text=True) for _ in range(2))
    try:
        with closing(sqlite3.connect(path, timeout=30)) as shop:

            def refunded() -> list[int]:
                return [number for (number,) in shop.execute("SELECT number FROM refund ORDER BY number")]

            def dead() -> int:
                return int(shop.execute("SELECT count(*) FROM leasehold_queue WHERE state = 'dead'").fetchone()[0])

            wait_until(refunded, "a refund", LIMIT)
            killed.kill()
            wait_until(lambda: len(refunded()) == 5 and dead() == 1, "all refunds", LIMIT)
            assert refunded() == [1, 2, 3, 4, 5]
        wait_until(lambda: catches(worker.pid, signal.SIGTERM), "the other worker at work", LIMIT)
        worker.send_signal(signal.SIGTERM)
        output, _ = worker.communicate(timeout=LIMIT)
        assert worker.returncode == 0
        assert "refunds" in output
    finally:
        for process in (killed, worker):
            process.kill()
            process.communicate()
