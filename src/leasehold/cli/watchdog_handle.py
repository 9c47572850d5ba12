"""The wrapper's side of the watchdog: starts it, sends it messages, replaces it when it dies."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

from leasehold.cli import watchdog

__all__ = ["WatchdogHandle"]

REAP_LOOKS = 200
REAP_PAUSE = 0.001


class WatchdogHandle:
    """A watchdog over one process group. Made before the wrapper has threads, because it is a plain fork."""

    def __init__(self, group: int, kill_after: float) -> None:
        self._group = group
        self._kill_after = kill_after
        self._sent: dict[str, float] = {}  # the last message of each kind, for a replacement
        read_end, self._pipe = os.pipe()
        self.pid: int = os.fork()
        if self.pid == 0:
            _serve(read_end, group, kill_after)
        os.close(read_end)
        os.set_blocking(self._pipe, False)

    def lease_until(self, instant: float) -> None:
        """The lease is held until then, unless a later message replaces it."""
        self._send("lease", instant)

    def killing_at(self, instant: float) -> None:
        """TERM was sent; if the wrapper does not send KILL by then, the watchdog shall."""
        self._send("killing", instant)

    def dismiss(self) -> None:
        """Nothing is left to watch; may be called twice."""
        if self._pipe < 0:
            return
        with suppress(OSError):  # it is dead already; for a live one the end of the pipe would not mean `done`
            os.write(self._pipe, b"done\n")
        os.close(self._pipe)
        self._pipe = -1

    def reap(self) -> None:
        """Wait for its end, which comes within a moment, so that it does not stay as a zombie.

        A watchdog that does not end was stopped from outside, and has nothing left to do: it is killed.
        """
        with suppress(ChildProcessError):
            for _ in range(REAP_LOOKS):
                pid, _ = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    return
                time.sleep(REAP_PAUSE)
            self._kill()

    def replace(self) -> None:
        """The watchdog is dead or does not read: start another, as a program, because by now there are threads."""
        os.close(self._pipe)
        self._kill()
        read_end, self._pipe = os.pipe()
        program = [sys.executable, "-I", "-S", watchdog.__file__, str(self._group), repr(self._kill_after)]
        try:
            self.pid = os.posix_spawn(
                program[0], program, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, read_end, 0)]
            )
        finally:
            os.close(read_end)
        os.set_blocking(self._pipe, False)
        for word, instant in self._sent.items():
            self._send(word, instant)

    def _send(self, word: str, instant: float) -> None:
        self._sent[word] = instant
        try:
            os.write(self._pipe, f"{word} {instant!r}\n".encode())
        except BlockingIOError:  # the pipe is full: it has been stopped for an hour, and is of no use
            self.replace()
        except BrokenPipeError:
            pass  # it died; the supervisor's loop sees that and replaces it

    def _kill(self) -> None:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _serve(pipe: int, group: int, kill_after: float) -> None:
    """Be the watchdog; never returns into the wrapper's code."""
    code = 0
    try:
        watchdog.detach(pipe)
        watchdog.Watchdog(pipe, group, kill_after).watch()
    except BaseException:  # noqa: BLE001 - no output is left to write to; the wrapper sees the exit and replaces it
        code = 1
    finally:
        os._exit(code)
