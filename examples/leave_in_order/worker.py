"""A worker that leaves in order: told to end, it gives its locks back, and its successor goes on at once.

    LEASEHOLD_URL=sqlite:////tmp/locks.db python examples/leave_in_order/worker.py mailbox-1 mailbox-2

Start it twice, then stop the first with Ctrl-C, or with `kill`, and see the second take over. With `kill -9` the
second has to wait for the ttl. `worker.service` and `deployment.yaml` are its unit and its manifest.
"""

from __future__ import annotations

import sys
import time

import leasehold

TTL = 30
LEAVING = 5  # seconds to give the locks back; what stops the worker must be given more


def main(names: list[str]) -> None:
    """Take every name, and serve them until a lease is lost or the process is told to end."""
    client = leasehold.connect(ttl=TTL, label="worker")
    with client, client.release_on_signals(timeout=LEAVING), client.lock_all(names).hold(timeout=None) as leases:
        print("serving", *(f"{name} with fence {fence}" for name, fence in leases.fences.items()), flush=True)
        while not leases.lost.is_set():
            time.sleep(0.1)  # a piece of work, short enough to notice a loss


if __name__ == "__main__":
    try:
        main(sys.argv[1:] or ["mailbox"])
    except KeyboardInterrupt:
        sys.exit(130)
