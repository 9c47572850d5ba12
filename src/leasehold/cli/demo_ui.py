"""`demo --ui`: the dashboard on the demonstration's store, while its stories run and until Ctrl-C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold._blocking import connect
from leasehold.cli.demo_fleet import fleet_at_work
from leasehold.cli.ui import LOCAL_NAMES, serving, wait_for_a_signal

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.cli.output import Console

__all__ = ["dashboard_of"]

HOST = "127.0.0.1"


def dashboard_of(store: str, console: Console, play: Callable[[], int]) -> int:
    """Serve the dashboard, play the stories beside it, and wait for a signal."""
    from leasehold.web import Role, Viewer, dashboard  # noqa: PLC0415 - the extra `web`

    viewer = Viewer("you", Role.WRITE)
    with fleet_at_work(store), connect(store, label="leasehold demo") as client:
        app = dashboard(client, auth=lambda _: viewer, hosts=LOCAL_NAMES, title="leasehold demo")
        with serving(app, HOST, 0) as url:
            console.note(f"dashboard: {url} (you may break and pause everything there)")
            code = play()
            console.note(f"the dashboard stays at {url} until Ctrl-C")
            wait_for_a_signal()
    return code
