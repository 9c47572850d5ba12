"""A fork while gRPC is at work leaves a child in which gRPC hangs. It knows calls only as something that is under way.

gRPC puts itself in order before a fork, but not while another thread is inside a call: then it does nothing, and what
that thread had locked stays locked in the child. So a fork waits for a moment until no blocking call is under way, and
holds new ones back meanwhile. Where that does not help (a call that gets no answer; asyncio, whose gRPC has a thread
that is always inside), the child refuses at once, in one sentence, instead of hanging.
"""

from __future__ import annotations

import os
import threading
import time

from leasehold.errors import ConfigurationError

__all__ = ["CALLS", "Calls"]

PATIENCE = 1.0  # seconds that a fork waits for the calls that are under way
PAUSE = 0.001


class Calls:
    """The blocking calls of this process that are under way; `with` it around each.

    There are no locks here: they would be what a fork leaves locked.
    """

    def __init__(self) -> None:
        self.inside: set[int] = set()  # threads; one that is left here by an interruption goes with its next call
        self.is_forking = False
        self.uses_asyncio = False
        self.is_broken = False  # this process was forked in the middle of a call

    def __enter__(self) -> None:
        thread = threading.get_ident()
        self.inside.add(thread)
        while self.is_forking:
            self.inside.discard(thread)
            time.sleep(PAUSE)
            self.inside.add(thread)

    def __exit__(self, *_: object) -> None:
        self.inside.discard(threading.get_ident())

    def check(self) -> None:
        """Refuse to use gRPC where it would hang."""
        if self.is_broken:
            raise ConfigurationError(
                "this process was forked while its parent used etcd, and gRPC cannot work in it; start it with "
                "multiprocessing's 'spawn' or 'forkserver', or fork before the first use of etcd"
            )

    # --- around a fork

    def before(self) -> None:
        """Wait until no call is under way, and let none begin."""
        self.is_forking = True
        deadline = time.monotonic() + PATIENCE
        while self.inside and time.monotonic() < deadline:
            time.sleep(PAUSE)

    def after_in_parent(self) -> None:
        """Go on."""
        self.is_forking = False

    def after_in_child(self) -> None:
        """Note whether gRPC can be used here."""
        self.is_broken = self.is_broken or self.uses_asyncio or bool(self.inside)
        self.inside = set()
        self.is_forking = False


CALLS = Calls()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=CALLS.before, after_in_parent=CALLS.after_in_parent, after_in_child=CALLS.after_in_child)
