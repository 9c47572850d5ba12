"""The wrapper's side of the guardian: start it, keep it informed, replace it when it dies."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

from leasehold.cli import guardian

__all__ = ["Guard"]

REAP_LOOKS = 200
REAP_PAUSE = 0.001


class Guard:
    """A guardian over one process group. Made before the wrapper has threads, because it is a plain fork."""

    def __init__(self, group: int, kill_after: float) -> None:
        self._group = group
        self._kill_after = kill_after
        self._told: dict[str, float] = {}
        read_end, self._pipe = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _serve(read_end, group, kill_after)
        os.close(read_end)
        os.set_blocking(self._pipe, False)

    def lease_until(self, instant: float) -> None:
        """The lease is ours until then, unless told again."""
        self._tell("lease", instant)

    def killing_at(self, instant: float) -> None:
        """TERM was sent; if the wrapper does not send KILL then, the guardian shall."""
        self._tell("killing", instant)

    def dismiss(self) -> None:
        """Nothing is left to guard; may be called twice."""
        if self._pipe < 0:
            return
        with suppress(OSError):  # it is dead, and the end of the pipe would say the same
            os.write(self._pipe, b"done\n")
        os.close(self._pipe)
        self._pipe = -1

    def reap(self) -> None:
        """Bury it, so that it does not stay as a zombie where nobody else does that. It ends within a moment.

        One that does not was stopped by somebody, and has nothing to do any more.
        """
        with suppress(ChildProcessError):
            for _ in range(REAP_LOOKS):
                pid, _ = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    return
                time.sleep(REAP_PAUSE)
            self._bury()

    def replace(self) -> None:
        """The guardian is dead or deaf: start another one, as a program, because by now there are threads."""
        os.close(self._pipe)
        self._bury()
        read_end, self._pipe = os.pipe()
        program = [sys.executable, "-I", "-S", guardian.__file__, str(self._group), repr(self._kill_after)]
        try:
            self.pid = os.posix_spawn(
                program[0], program, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, read_end, 0)]
            )
        finally:
            os.close(read_end)
        os.set_blocking(self._pipe, False)
        for word, instant in self._told.items():
            self._tell(word, instant)

    def _tell(self, word: str, instant: float) -> None:
        self._told[word] = instant
        try:
            os.write(self._pipe, f"{word} {instant!r}\n".encode())
        except BlockingIOError:  # it has not listened for an hour: it is stopped, and no use
            self.replace()
        except BrokenPipeError:
            pass  # it died; the wrapper's loop sees that and replaces it

    def _bury(self) -> None:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _serve(pipe: int, group: int, kill_after: float) -> None:
    """Be the guardian; never returns into the wrapper's code."""
    code = 0
    try:
        guardian.stand_aside(pipe)
        guardian.Guardian(pipe, group, kill_after).watch()
    except BaseException:  # noqa: BLE001 - nobody is there to tell; the wrapper sees the exit and replaces us
        code = 1
    finally:
        os._exit(code)
