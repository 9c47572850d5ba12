"""A member that shares partitions and writes to a fenced resource; started by the tests beside it.

Words: URL, folder, number of partitions, ttl. Every line of the log in the folder is one write of one process, so their
order is the order in which things happened:

    begin INDEX FENCE PID TIME      it has the partition; TIME is after the grant
    held INDEX FENCE PID TIME       a check has passed that began at TIME
    accepted INDEX FENCE PID TIME   the resource took a write
    refused INDEX FENCE PID TIME    the resource had seen a higher fence

After SIGUSR1 it stops itself between its next check and the write that belongs to it. SIGTERM lets it leave in order.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import leasehold

if TYPE_CHECKING:
    from leasehold import Partition

orders: set[str] = set()  # what signals have asked for


class Resource:
    """One number for each partition, the highest fence that wrote there, and the log."""

    def __init__(self, folder: Path) -> None:
        self._fences = os.open(folder / "fences", os.O_RDWR)
        self._log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND)

    def note(self, what: str, partition: Partition, at: float) -> None:
        os.write(self._log, f"{what} {partition.index} {partition.fence} {os.getpid()} {at:.6f}\n".encode())

    def write(self, partition: Partition) -> None:
        """Accept or refuse, as one step."""
        fcntl.flock(self._fences, fcntl.LOCK_EX)
        try:
            place = partition.index * 8
            (highest,) = struct.unpack("q", os.pread(self._fences, 8, place))
            if partition.fence >= highest:
                os.pwrite(self._fences, struct.pack("q", partition.fence), place)
            self.note("accepted" if partition.fence >= highest else "refused", partition, time.monotonic())
        finally:
            fcntl.flock(self._fences, fcntl.LOCK_UN)


def work(partition: Partition, resource: Resource) -> None:
    began = time.monotonic()
    partition.check()
    resource.note("held", partition, began)
    if "nap" in orders:
        orders.remove("nap")
        os.kill(os.getpid(), signal.SIGSTOP)
    resource.write(partition)


def main() -> None:
    url, folder, count, ttl = sys.argv[1:]
    resource = Resource(Path(folder))
    known: set[Partition] = set()
    client = leasehold.connect(url)
    with client, client.partitions("orders", int(count), ttl=float(ttl), retry=float(ttl) / 10) as share:
        while "stop" not in orders:
            owned = share.owned()
            for partition in owned:
                if partition not in known:
                    resource.note("begin", partition, time.monotonic())
                with suppress(leasehold.LeaseLost):
                    work(partition, resource)
                if partition.leaving:
                    partition.release()
            known = set(owned)
            share.wait_change(0.1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: orders.add("stop"))
    signal.signal(signal.SIGUSR1, lambda *_: orders.add("nap"))
    while "stop" not in orders:
        with suppress(leasehold.BackendError):  # on a busy machine a store may take too long to let it join
            main()
