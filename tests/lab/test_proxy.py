"""The fault proxy leaves nothing behind: what it forgot would be reported in whatever test comes next."""

from __future__ import annotations

import gc
import socket
import threading
import warnings
from contextlib import suppress

from verification.lab.proxy import FaultProxy


def test_proxy_that_stops_while_clients_connect_leaves_no_socket_open() -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=4096) as server,
        warnings.catch_warnings(record=True) as left_open,
    ):
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(20):
            _stop_while_clients_connect(server.getsockname())
            gc.collect()
    assert [str(warning.message) for warning in left_open] == []


def _stop_while_clients_connect(target: tuple[str, int]) -> None:
    connected = threading.Event()

    def connect() -> None:
        with suppress(OSError):
            for _ in range(20):
                with socket.create_connection(proxy.address, 5):
                    connected.set()

    with FaultProxy(target) as proxy:
        threads = [threading.Thread(target=connect) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert connected.wait(60)
    for thread in threads:
        thread.join()
