"""A process of the fleet: reports itself to Prometheus, and does what its lines of standard input say."""

from __future__ import annotations

import sys
from contextlib import ExitStack

from prometheus_client import start_http_server

import leasehold
from leasehold import telemetry


def main(url: str, port: int) -> None:
    """Serve metrics, and obey: `pairs N`, `hold NAME`, `release NAME`, `lose NAME`, `lead`, `end`."""
    client = leasehold.connect(url, ttl=3)
    telemetry.prometheus(client)
    start_http_server(port, "127.0.0.1")
    held: dict[str, leasehold.Lease] = {}
    leading = ExitStack()  # who drops the block does not lead any more
    print("ready", flush=True)  # noqa: T201 - the test reads it
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "pairs":
            for number in range(int(rest)):
                with client.lock(f"order:{number}", group="order:{id}").hold():
                    pass
        elif word == "hold":
            held[rest] = client.lock(rest, group="kept").acquire(60)
        elif word == "release":
            held.pop(rest).release()
        elif word == "lead":
            leading.enter_context(client.election("boss").lead())
        elif word == "end":
            return
        print("done", flush=True)  # noqa: T201 - so is this


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
