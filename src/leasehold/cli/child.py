"""The command as a process that exists before the lock is held, and becomes the command when told.

It is forked while the wrapper has no threads, in a process group of its own, and waits on a pipe. So its pid is known
to the guardian before the command can run: there is no instant at which the command runs unguarded. If the wrapper dies
while waiting for the lock, the pipe ends and the process goes away without having run anything.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.guardian import signal_group

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Child", "CommandFailed", "find_command"]

LONGEST_WORD = 4096  # a fence and a slot; a pipe passes so much in one piece
TAKEOVER_LOOK = 0.02  # how often to look at the lease until the command has taken over
_OF_THE_SHELL = {".", ":", "alias", "cd", "eval", "exec", "exit", "export", "set", "shift", "source", "trap", "ulimit",
                 "umask", "unset", "wait"}  # fmt: skip
_PYTHON_IGNORES = ("SIGPIPE", "SIGXFSZ")  # Python does so at its start, and it would be inherited


class CommandFailed(Exception):
    """The command could not be started; `code` is the exit code for it."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def find_command(command: str) -> None:
    """Complain before the wait for the lock, rather than after it, when the command cannot be there."""
    if os.path.dirname(command):  # noqa: PTH120 - pathlib would cost more than everything else here
        candidates = [command]
    else:
        candidates = [os.path.join(folder or ".", command) for folder in os.get_exec_path()]  # noqa: PTH118
    found = [candidate for candidate in candidates if os.path.isfile(candidate)]  # noqa: PTH113
    if not found:
        if os.path.isdir(command) and os.path.dirname(command):  # noqa: PTH112, PTH120
            raise CommandFailed(f"{command} is a directory", exit_codes.NOT_EXECUTABLE)
        if os.path.dirname(command) and _is_forbidden(command):  # noqa: PTH120
            raise CommandFailed(f"{command}: this user may not look into its folder", exit_codes.NOT_EXECUTABLE)
        raise CommandFailed(f"{command}: command not found{_shell_hint(command)}", exit_codes.NOT_FOUND)
    if not any(os.access(candidate, os.X_OK) for candidate in found):
        raise CommandFailed(f"{found[0]} is not executable", exit_codes.NOT_EXECUTABLE)


def _is_forbidden(command: str) -> bool:
    try:
        os.stat(command)  # noqa: PTH116
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _shell_hint(command: str) -> str:
    """The command is started without a shell, which some expect to be there."""
    if command in _OF_THE_SHELL or set(command) & set(" \t;|&<>$"):
        from leasehold.cli.output import shell_word  # noqa: PLC0415 - only for mistakes

        return f"; there is no shell in between, so write: sh -c {shell_word(command)}"
    return ""


class Child:
    """The process that becomes the command. `pid` is also the number of its process group."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._command = command
        start_read, self._start = os.pipe()
        self._status, status_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._start)
            _become(command, environment, start_read, status_write)
        self.is_over = False  # it has ended and was buried, so its number may belong to somebody else
        self._is_started = False
        os.close(start_read)
        os.close(status_write)
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(self.pid, self.pid)  # both sides do it, so that neither has to wait for the other

    def start(self, fence: int, slot: str | None, meanwhile: Callable[[], object]) -> None:
        """Become the command now. Raises `CommandFailed` when that is impossible.

        On a busy host this may take longer than the lease has left, so `meanwhile` is called again and again: it tells
        the guardian of renewals, which else would end a command whose lease is in good order.
        """
        word = f"{fence}" if slot is None else f"{fence} {slot}"
        with suppress(BrokenPipeError):  # somebody killed it while we waited; its exit status says so
            os.write(self._start, word.encode())
        self._is_started = True
        os.close(self._start)
        while not select.select([self._status], [], [], TAKEOVER_LOOK)[0]:
            meanwhile()
        trouble = os.read(self._status, 64)  # ends without a word when the command takes over
        os.close(self._status)
        if trouble:
            self._bury()
            raise _failure(self._command[0], int(trouble))

    def discard(self) -> None:
        """Leave nothing running: there is no lock, or something went wrong under it. Does nothing after the end."""
        if self.is_over:
            return
        if not self._is_started:
            os.close(self._start)
            os.close(self._status)
        signal_group(self.pid, signal.SIGKILL)
        os.kill(self.pid, signal.SIGKILL)  # it may not have made its group yet
        self._bury()

    def _bury(self) -> None:
        os.waitpid(self.pid, 0)
        self.is_over = True


def _become(command: list[str], environment: dict[str, str], start: int, status: int) -> None:
    """Wait for the word to start, then be the command; never returns into the wrapper's code."""
    try:
        os.setpgid(0, 0)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        for name in _PYTHON_IGNORES:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_DFL)
        word = os.read(start, LONGEST_WORD)
        if word:
            environment["LEASEHOLD_FENCE"], space, slot = word.decode().partition(" ")
            if space:
                environment["LEASEHOLD_SLOT"] = slot
            os.execvpe(command[0], command, environment)  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(status, b"%d" % (error.errno or errno.EIO))
    except BaseException:  # noqa: BLE001 - a traceback of this process would only puzzle
        os.write(status, b"%d" % errno.EIO)
    finally:
        os._exit(exit_codes.INTERNAL)


def _failure(command: str, number: int) -> CommandFailed:
    if number == errno.ENOENT:
        return CommandFailed(f"{command}: {os.strerror(number)}", exit_codes.NOT_FOUND)
    hint = "; a script needs a first line such as #!/bin/sh" if number == errno.ENOEXEC else ""
    return CommandFailed(f"{command}: {os.strerror(number)}{hint}", exit_codes.NOT_EXECUTABLE)
