"""Says once that a blocking call waits inside a running event loop, which stands still meanwhile."""

from __future__ import annotations

import sys

__all__ = ["notice_stopped_loop"]

_TEXT = (
    "a blocking call of leasehold waits inside a running event loop, and no task of it runs meanwhile; use "
    "connect_async() there, or await asyncio.to_thread(...)"
)
_said: list[str] = []


def notice_stopped_loop() -> None:
    """To be called before a thread blocks. A program without asyncio has no loop, and does not load it for this."""
    # Another thread may be importing it just now: what is not there yet runs no loop either.
    running_loop = getattr(sys.modules.get("asyncio.events"), "_get_running_loop", None)
    if running_loop is None or _said or running_loop() is None:
        return
    _said.append(_TEXT)
    import logging  # noqa: PLC0415 - which asyncio has loaded

    logging.getLogger("leasehold").warning(_TEXT)
