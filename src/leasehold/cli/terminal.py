"""The terminal belongs to one process group at a time; the command must be that group if it is to read from it.

It is handed over before the command starts, and taken back when it ends or stops. In a pipeline it is handed over only
when the command reads from it (the kernel stops it with SIGTTIN): a pager at the end of the pipeline needs it too.
"""

from __future__ import annotations

import os
import signal
import stat

__all__ = ["Terminal"]

STANDARD_INPUT = 0
STANDARD_OUTPUT = 1


class Terminal:
    """The terminal on standard input, if there is one and the wrapper had it."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._own_group = os.getpgrp()
        self.is_present: bool = os.isatty(STANDARD_INPUT)

    def offer(self) -> None:
        """Before the command starts: hand over, unless the command is part of a pipeline."""
        if self.is_present and not _is_pipe(STANDARD_OUTPUT):
            self.hand_over()

    def hand_over(self) -> bool:
        """Give the terminal to the command; False if the wrapper does not have it."""
        if not self.is_present or self._foreground() != self._own_group:
            return False
        return self._assign(self._group)

    def take_back(self) -> bool:
        """Take it from the command; True if the command had it."""
        if not self.is_present or self._foreground() != self._group:
            return False
        return self._assign(self._own_group)

    def stop_with_child(self) -> None:
        """The command was stopped from the keyboard: stop too, so that the shell gives its prompt.

        While stopped nothing is renewed; the watchdog ends the command if that lasts beyond the lease.
        """
        os.killpg(self._own_group, signal.SIGTSTP)

    def _foreground(self) -> int:
        try:
            return os.tcgetpgrp(STANDARD_INPUT)
        except OSError:  # hung up
            return -1

    def _assign(self, group: int) -> bool:
        try:
            os.tcsetpgrp(STANDARD_INPUT, group)
        except OSError:
            return False
        return True


def _is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False
