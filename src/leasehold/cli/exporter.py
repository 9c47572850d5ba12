"""`exporter`: the locks of the whole fleet as metrics for Prometheus, from one place."""

from __future__ import annotations

import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from leasehold.cli import exit_codes
from leasehold.cli.connection import announce, open_client, refuse_private_store
from leasehold.cli.listen import listen_address
from leasehold.errors import ConfigurationError
from leasehold.fleet import FleetReader, Groups, summary

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from leasehold.cli.output import Console
    from leasehold.fleet import FleetState

__all__ = ["FLEET_METRICS", "exporter", "metrics_page"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SLOW_CALLER = 10.0  # seconds after which a caller that says nothing is hung up on

UP = "leasehold_up"
FLEET_METRICS = {
    UP: "1 if the store answered, 0 if it is away; the other values are missing then.",
    "leasehold_fleet_locks_held": "Locks that are held in the store, by whatever process.",
    "leasehold_fleet_waiters": "Calls that wait in the queues of the store.",
    "leasehold_fleet_longest_hold_seconds": "For how long the lock is held that has been held longest.",
    "leasehold_fleet_queue_stalled_seconds": "For how long a lock with waiters was seen with the same holders.",
    "leasehold_fleet_paused": "Names that an operator has paused.",
    "leasehold_exporter_read_seconds": "How long the store took for the last answer.",
    "leasehold_exporter_age_seconds": "How old the last answer is.",
}


def exporter(arguments: Namespace, console: Console) -> int:
    """Serve until a signal ends it."""
    host, port = listen_address(arguments.listen)
    with open_client(arguments, label="leasehold exporter") as client:
        refuse_private_store(client)
        announce(client, console)
        reader = FleetReader(
            client, prefix=arguments.prefix, max_age=arguments.max_age, patience=max(arguments.patience, 0.1)
        )
        page = _Page(reader, Groups(arguments.group or (), arguments.max_groups))
        server = _server(host, port, page)
        console.note(f"serving http://{server.server_name}:{server.server_port}/metrics")
        _serve(server)
    return exit_codes.OK


def metrics_page(state: FleetState, groups: Groups, now: float) -> str:
    """The page in Prometheus' text format."""
    samples: dict[str, list[tuple[str | None, float]]] = {UP: [(None, float(state.error is None))]}
    if state.error is None:
        for group, facts in summary(state, groups).items():
            samples.setdefault("leasehold_fleet_locks_held", []).append((group, facts.held))
            samples.setdefault("leasehold_fleet_waiters", []).append((group, facts.waiters))
            samples.setdefault("leasehold_fleet_longest_hold_seconds", []).append((group, facts.longest_hold))
            samples.setdefault("leasehold_fleet_queue_stalled_seconds", []).append((group, facts.stalled))
            samples.setdefault("leasehold_fleet_paused", []).append((group, facts.paused))
        samples["leasehold_exporter_read_seconds"] = [(None, state.took)]
        samples["leasehold_exporter_age_seconds"] = [(None, max(0.0, now - state.read_at))]
    return "".join(f"{line}\n" for name, values in samples.items() for line in _lines(name, values))


def _lines(name: str, values: list[tuple[str | None, float]]) -> Iterator[str]:
    yield f"# HELP {name} {FLEET_METRICS[name]}"
    yield f"# TYPE {name} gauge"
    for group, value in values:
        labels = "" if group is None else f'{{group="{_escaped(group)}"}}'
        yield f"{name}{labels} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class _Page:
    """What the server answers, by path."""

    def __init__(self, reader: FleetReader, groups: Groups) -> None:
        self._reader = reader
        self._groups = groups

    def answer(self, path: str) -> tuple[int, str, str]:
        """Status, type and text. The process is healthy while it answers; a store that is away is no reason to end."""
        if path == "/metrics":
            text = metrics_page(self._reader.read(), self._groups, time.monotonic())
            return 200, CONTENT_TYPE, text
        if path == "/healthz":
            return 200, "text/plain; charset=utf-8", "ok\n"
        if path == "/":
            return 200, "text/plain; charset=utf-8", "leasehold exporter: see /metrics and /healthz\n"
        return 404, "text/plain; charset=utf-8", "see /metrics and /healthz\n"


def _server(host: str, port: int, page: _Page) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        timeout = SLOW_CALLER
        server_version, sys_version = "leasehold", ""

        def do_GET(self) -> None:
            status, kind, text = page.answer(self.path.partition("?")[0])
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

        def log_message(self, *_: Any) -> None:
            """No line for each scrape."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise ConfigurationError(f"cannot listen at {host}:{port}: {error.strerror or error}; use --listen") from error
    server.daemon_threads = True
    return server


def _serve(server: ThreadingHTTPServer) -> None:
    """Until TERM or INT."""

    def stop(*_: object) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()  # it waits for the loop that this interrupts

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.serve_forever(poll_interval=0.2)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        server.server_close()
