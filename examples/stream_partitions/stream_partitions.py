"""One consumer per partition of a Redis stream, instead of a lock per job. Real processes, really stopped and killed.

    python examples/stream_partitions/stream_partitions.py redis://localhost        # keys stream_partitions:* there

Events of orders are spread over 8 streams, all events of one order in the same stream, where they have an order. Each
stream is a partition, and each partition has one consumer at a time: no lock is taken for an event, and no two
processes ever work on the same order. A consumer keeps its position in the stream together with what it did, in one
step that the fence of its partition protects.

Anna is stopped (SIGSTOP) after she has read an event and before she has written what follows from it, for longer than
her lease. Ben and Cleo take over; Ben is killed. Then Anna is woken up, does not know that she slept, and writes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

import redis

import leasehold
from leasehold.fencing.redis import FencedRedis

COUNT = 8
TTL = 2.0
PREFIX = "stream_partitions"
PATIENCE = 100.0

# The effect and the position in one step: an event is applied, and will not be read again, or neither.
APPLY = """
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
return 1
"""


# --- who writes events


def produce(values: Any, first: int, last: int) -> None:
    """Event number n of twenty orders, for each n from first to last."""
    for number in range(first, last + 1):
        for order in range(20):
            stream = f"{PREFIX}:events:{leasehold.partition_of(f'order:{order}', COUNT)}"
            values.xadd(stream, {"order": order, "number": number})


# --- who consumes them


class Consumer:
    """Consumes one partition, from where its last owner had come to."""

    def __init__(self, values: Any, partition: leasehold.Partition, *, guarded: bool) -> None:
        self.partition = partition
        self._values = values
        self._fenced = FencedRedis(values, partition.lease)
        self._guarded = guarded
        self._stream = f"{PREFIX}:events:{partition.index}"
        if guarded:
            self._fenced.raise_fence()  # before the first read: from now on no earlier owner can write
        self._position = values.get(f"{self._stream}:position") or "0"

    def consume(self, orders: set[str]) -> None:
        """Handle a few events."""
        answer = self._values.xread({self._stream: self._position}, count=10) or []
        events = answer[0][1] if answer else []
        for identifier, event in events:
            self.partition.check()
            if "pause" in orders:
                orders.remove("pause")
                print(f"reads event {event['number']} of order {event['order']}, and is stopped")
                os.kill(os.getpid(), signal.SIGSTOP)
            self._apply(identifier, event)

    def _apply(self, identifier: str, event: dict[str, str]) -> None:
        keys = [f"{PREFIX}:done:{event['order']}", f"{self._stream}:position"]
        words = [event["number"], identifier]
        if self._guarded:
            self._fenced.run(APPLY, keys=keys, args=words)
        else:
            self._values.eval(APPLY, len(keys), *keys, *words)
        self._position = identifier


def take_part(url: str, *, guarded: bool, pause: bool) -> None:
    """Be a member until SIGTERM, and consume whatever partitions are ours."""
    orders = {"pause"} if pause else set()
    signal.signal(signal.SIGTERM, lambda *_: orders.add("stop"))
    values = redis.Redis.from_url(url, decode_responses=True)
    consumers: dict[leasehold.Partition, Consumer] = {}
    with leasehold.connect(url) as client, client.partitions("orders", COUNT, ttl=TTL) as share:
        print(f"takes part, with {len(share.owned())} partitions")
        while "stop" not in orders:
            owned = share.owned()
            consumers = {partition: consumers[partition] for partition in owned if partition in consumers}
            for partition in owned:
                try:
                    partition.check()
                    if partition not in consumers:
                        consumers[partition] = Consumer(values, partition, guarded=guarded)
                    consumers[partition].consume(orders)
                except leasehold.StaleFence as refusal:
                    print(f"is REFUSED: fence {refusal.fence} is stale, {refusal.highest} was here")
                except leasehold.LeaseLost:
                    print(f"learns that partition {partition.index} is lost")
                if partition.leaving:
                    partition.release()
            share.wait_change(0.05)


# --- the story


def tell(url: str, *, guarded: bool) -> list[str]:
    """Run Anna, Ben and Cleo; the orders whose events were not applied once and in order."""
    print(f"\n{'WITH' if guarded else 'WITHOUT'} THE FENCE", flush=True)
    values = redis.Redis.from_url(url, decode_responses=True)
    for key in [*values.scan_iter(f"{PREFIX}:*"), *values.scan_iter("leasehold:guard:leasehold:orders/*")]:
        values.delete(key)
    how = "guarded" if guarded else "plain"
    produce(values, 1, 5)
    anna = start(url, how, "pause")
    os.waitpid(anna.pid, os.WUNTRACED)  # she has stopped herself
    ben, cleo = start(url, how, "go"), start(url, how, "go")
    applied(values, 5)
    ben.kill()
    produce(values, 6, 10)
    applied(values, 10)
    anna.send_signal(signal.SIGCONT)
    produce(values, 11, 15)
    applied(values, 15)
    for name, process in (("Anna", anna), ("Ben", ben), ("Cleo", cleo)):
        process.terminate()
        for line in process.communicate()[0].splitlines():
            print(f"  {name:<5} {line}")
    expected = [str(number) for number in range(1, 16)]
    wrong = [str(order) for order in range(20) if values.lrange(f"{PREFIX}:done:{order}", 0, -1) != expected]
    damage = f"DAMAGED: order {', '.join(wrong)} had events twice or out of order"
    print(f"  {damage if wrong else 'every event was applied once and in order'}")
    return wrong


def applied(values: Any, last: int) -> None:
    """Wait until the last of the events was applied for each order."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if all(str(last) in values.lrange(f"{PREFIX}:done:{order}", -5, -1) for order in range(20)):
            return
        time.sleep(0.05)
    raise TimeoutError(f"the events up to {last} were never applied")


def start(*words: str) -> subprocess.Popen[str]:
    """A process of its own, which can be stopped as a whole."""
    return subprocess.Popen([sys.executable, "-u", __file__, "take", *words], stdout=subprocess.PIPE, text=True)


def main(words: list[str]) -> int:
    """Tell it twice; 0 if it went as told."""
    if words[:1] == ["take"]:
        _, url, how, pause = words
        with suppress(BrokenPipeError):
            take_part(url, guarded=how == "guarded", pause=pause == "pause")
        return 0
    if len(words) != 1:
        print(__doc__)
        return 2
    damaged, intact = tell(words[0], guarded=False), tell(words[0], guarded=True)
    return 0 if damaged and not intact else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
