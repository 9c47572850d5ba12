"""A program of greenlets: `python greenlets.py URL`. It says what the test wants to know, one line each."""

from __future__ import annotations

import sys

from gevent import monkey

monkey.patch_all()

import gevent  # noqa: E402 - gevent wants to be first

import leasehold  # noqa: E402


def main(url: str) -> None:
    """Hold, let another greenlet wait, and see that a third one runs all the while."""
    ticks: list[int] = []

    def tick() -> None:
        while True:
            ticks.append(1)
            gevent.sleep(0.01)

    def wait() -> int:
        waits.set()
        with client.lock("x").hold(timeout=60) as lease:
            return lease.fence

    client = leasehold.connect(url, ttl=5, namespace="greenlets")
    first = client.lock("x").acquire(timeout=60)
    waits = gevent.event.Event()
    ticking, waiter = gevent.spawn(tick), gevent.spawn(wait)
    waits.wait(60)
    while leasehold.Capability.FIFO in client.capabilities and not getattr(client.inspect("x"), "waiting", ()):
        gevent.sleep(0.01)
    before = len(ticks)
    gevent.sleep(0.3)
    sys.stdout.write(f"{'runs' if len(ticks) > before + 3 else 'stands still'}\n")
    first.release()
    waiter.join(60)
    sys.stdout.write(f"{'rises' if (waiter.value or 0) > first.fence else 'nothing'}\n")
    ticking.kill()
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
