"""`wait`: return when the lock is free. It only looks: it takes nothing, and stands in no queue."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.connection import announce, open_client, refuse_private_store
from leasehold.cli.inspect import conflict_block
from leasehold.cli.wait_line import WaitLine
from leasehold.errors import BackendError

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold import Client
    from leasehold.cli.output import Console

__all__ = ["wait"]

SHORTEST_PAUSE = 0.05


def wait(arguments: Namespace, console: Console) -> int:
    """The verb: 0 when it is free, 75 when --wait is over."""
    with open_client(arguments) as client:
        refuse_private_store(client)  # all is free there, and what comes after the wait would run unprotected
        announce(client, console)
        with WaitLine(client, [arguments.name], console, arguments.wait):
            free = _becomes_free(client, arguments)
        if free:
            return exit_codes.OK
        console.note(conflict_block(client, arguments.name))
    code = arguments.conflict_exit_code
    return exit_codes.BUSY if code is None else int(code)


def _becomes_free(client: Client, arguments: Namespace) -> bool:
    """Look until it is free; False when time is up. A store that is away is asked again until then."""
    end = float("inf") if arguments.wait is None else time.monotonic() + arguments.wait
    pause, seen = max(arguments.every, SHORTEST_PAUSE), False
    while True:
        try:
            state = client.inspect(arguments.name)
            seen = True
        except BackendError:
            if time.monotonic() >= end or (not seen and arguments.wait is None):
                raise
        else:
            if state is None or not (state.holdings or state.paused):
                return True
        left = end - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
