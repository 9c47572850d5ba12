"""The program of a client: reads its order from the command line, works until TERM, writes events to its pipe.

    python -m verification.lab.client ORDER

It is started by `verification.lab.cell`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from importlib import import_module

from verification.lab.history import Kind
from verification.lab.workloads import Client, Order

__all__ = ["main"]

LOOK = 0.1


def main() -> None:
    """One client, or several as threads of this process, where the store is the memory of one process."""
    order = Order(**json.loads(sys.argv[1]))
    run = import_module(f"verification.lab.workloads.{order.workload}").run
    clients = [Client(order, order.number + place) for place in range(order.threads)]

    def stop(*_: object) -> None:
        for client in clients:
            client.stop.set()

    def work(client: Client) -> None:
        try:
            client.pen.note(Kind.STARTED)
            run(client)
        except Exception as error:
            traceback.print_exc()
            client.pen.note(Kind.FAILED, detail=f"client ended: {type(error).__name__}: {error}")
            os._exit(3)

    signal.signal(signal.SIGTERM, stop)
    threads = [threading.Thread(target=work, args=[client]) for client in clients]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        threads[0].join(LOOK)  # again and again: a signal that another thread was given does not end a wait
        threads.sort(key=lambda thread: not thread.is_alive())
    os._exit(0)  # what a peer left running does not keep the process


if __name__ == "__main__":
    main()
