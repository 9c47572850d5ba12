"""The watchdog: a small process that ends a command whose wrapper died, hung, or was stopped beyond its lease.

It reads from a pipe whose other end only the wrapper has, so the end of the pipe is the end of the wrapper, whatever
caused it. The parent-death signal of Linux would reach the direct child only; the watchdog reaches the whole group. It
is forked before the wrapper has threads, and started as a program of its own when it has to be replaced, so this file
imports nothing of leasehold.

Messages, one a line: `lease T` (held until the instant T), `killing T` (the wrapper sent TERM; KILL is due at T),
`done` (the command ended; exit). Instants are on the clock of `now`, which all processes of the host share.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

__all__ = ["Watchdog", "detach", "main", "now", "signal_group"]

GRACE = 0.25  # the wrapper itself acts at the end of the lease; the watchdog only if it does not
LONGEST_WAIT = 1.0  # timers stop while the host is suspended, so the clock is read at least this often
ORPHAN_LOOK = 0.02  # how often to check whether the group of a dead wrapper has gone
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_IGNORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGTSTP")


def now() -> float:
    """Seconds on a clock that never steps, runs during suspend, and is the same for every process."""
    return time.clock_gettime(_CLOCK)


def signal_group(group: int, number: int) -> bool:
    """Send a signal to every process of the group; False if there is none left."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # a member changed its user; the others got it
        return True
    return True


def detach(pipe: int) -> None:
    """Keep nothing of the wrapper's: no descriptor but the pipe, no session, no terminal, no signal meant for it."""
    for name in _IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    with suppress(PermissionError):  # already the leader of a session
        os.setsid()
    empty = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        if standard != pipe:
            os.dup2(empty, standard)
    os.closerange(3, pipe)
    os.closerange(max(pipe + 1, 3), 1 << 20)
    with suppress(OSError):  # for ps(1), and only on Linux
        own_name = os.open("/proc/self/comm", os.O_WRONLY)
        os.write(own_name, b"lease-watchdog")
        os.close(own_name)


class Watchdog:
    """Decides from messages and the clock when the group has to end."""

    def __init__(self, pipe: int, group: int, kill_after: float) -> None:
        self._pipe = pipe
        self._group = group
        self._kill_after = kill_after
        self._lease_ends = float("inf")
        self._kill_at = float("inf")
        self._terminated = False
        self._orphaned = False
        self._rest = b""

    def watch(self) -> None:
        """Return when the wrapper sends `done`, or when its group is gone."""
        while True:
            instant = now()
            # This process may have been paused too: messages sent before `instant` count before the clock does.
            if not self._orphaned and not self._read_messages(0.0):
                return
            self._act(instant)
            if self._orphaned:
                if self._kill_at == float("inf") or not signal_group(self._group, 0):
                    return
                time.sleep(max(0.0, min(ORPHAN_LOOK, self._kill_at - now())))
            elif not self._read_messages(self._patience()):
                return

    def _patience(self) -> float:
        """How long nothing can be due."""
        due = self._kill_at if self._terminated else self._lease_ends + GRACE
        return max(0.0, min(LONGEST_WAIT, due - now()))

    def _act(self, instant: float) -> None:
        if not self._terminated and (self._orphaned or instant >= self._lease_ends + GRACE):
            self._terminated = True
            # The next holder must not meet an orphan that ignores TERM, so an orphan gets KILL at the lease's end.
            limit = max(self._lease_ends, instant) if self._orphaned else float("inf")
            self._kill_at = min(instant + self._kill_after, limit)
            if not signal_group(self._group, signal.SIGTERM):
                self._kill_at = float("inf")
                return
            signal_group(self._group, signal.SIGCONT)  # a stopped process cannot act on TERM
        if instant >= self._kill_at:
            self._kill_at = float("inf")
            signal_group(self._group, signal.SIGKILL)

    def _read_messages(self, patience: float) -> bool:
        """Wait up to `patience` for messages and apply them; False after `done`."""
        readable, _, _ = select.select([self._pipe], [], [], patience)
        if not readable:
            return True
        received = os.read(self._pipe, 4096)
        if not received:
            self._orphaned = True
            return True
        *lines, self._rest = (self._rest + received).split(b"\n")
        return all(self._apply(line) for line in lines)

    def _apply(self, line: bytes) -> bool:
        word, _, instant = line.partition(b" ")
        if word == b"lease":
            self._lease_ends = float(instant)
        elif word == b"killing":
            self._terminated = True
            self._kill_at = float(instant)
        return word != b"done"


def main() -> None:
    """Replace a watchdog that died: the pipe is stdin, the group and the patience are arguments."""
    group, kill_after = int(sys.argv[1]), float(sys.argv[2])
    detach(0)
    Watchdog(0, group, kill_after).watch()


if __name__ == "__main__":
    main()
