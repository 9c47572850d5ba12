"""The command as a process that exists before the lock is held, and becomes the command when the lock is.

It is forked while the wrapper has no threads, in a process group of its own, and waits on a pipe. So its pid is known
to the watchdog before the command can run: there is no instant at which the command runs unwatched. If the wrapper dies
while waiting for the lock, the pipe ends and the process exits without having run anything.
"""

from __future__ import annotations

import errno
import os
import select
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.watchdog import signal_group

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Child", "CommandFailed", "find_command", "group_is_alive"]

GO = b"\0go"  # ends the message to start: a part of it, from a wrapper that died over it, starts nothing
START_LOOK = 0.02  # how often the lease is checked until the command has started
_BUILTINS = {".", ":", "alias", "cd", "eval", "exec", "exit", "export", "set", "shift", "source", "trap", "ulimit",
             "umask", "unset", "wait"}  # fmt: skip
_PYTHON_IGNORES = ("SIGPIPE", "SIGXFSZ")  # by the interpreter at its start; the command would inherit it


class CommandFailed(Exception):
    """The command could not be started; `code` is the exit code for it."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def find_command(command: str) -> None:
    """Raise `CommandFailed` before the wait for the lock, rather than after it, if there is no such command."""
    if os.path.dirname(command):  # noqa: PTH120 - pathlib would cost more than everything else here
        candidates = [command]
    else:
        candidates = [os.path.join(folder or ".", command) for folder in os.get_exec_path()]  # noqa: PTH118
    found = [candidate for candidate in candidates if os.path.isfile(candidate)]  # noqa: PTH113
    if not found:
        if os.path.isdir(command) and os.path.dirname(command):  # noqa: PTH112, PTH120
            raise CommandFailed(f"{command} is a directory, not a command", exit_codes.NOT_EXECUTABLE)
        if os.path.dirname(command) and _is_forbidden(command):  # noqa: PTH120
            raise CommandFailed(f"{command}: this user may not look into its directory", exit_codes.NOT_EXECUTABLE)
        raise CommandFailed(f"{command}: command not found{_shell_hint(command)}", exit_codes.NOT_FOUND)
    if not any(os.access(candidate, os.X_OK) for candidate in found):
        raise CommandFailed(
            f"{found[0]} is not executable; chmod +x it, or write its interpreter before it", exit_codes.NOT_EXECUTABLE
        )


def _is_forbidden(command: str) -> bool:
    try:
        os.stat(command)  # noqa: PTH116
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _shell_hint(command: str) -> str:
    """What to write instead, if the command looks as if it was meant for a shell."""
    if command in _BUILTINS or set(command) & set(" \t;|&<>$"):
        from leasehold.cli.output import shell_word  # noqa: PLC0415 - only for mistakes

        return f"; it is started without a shell, so write: sh -c {shell_word(command)}"
    return ""


class Child:
    """The process that becomes the command. `pid` is also the number of its process group."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._command = command
        start_read, self._start = os.pipe()
        self._status, status_write = os.pipe()
        self.pid: int = os.fork()
        if self.pid == 0:
            os.close(self._start)
            _become(command, environment, start_read, status_write)
        self.is_over: bool = False  # ended and reaped: its number may belong to another process by now
        self._is_started = False
        os.close(start_read)
        os.close(status_write)
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(self.pid, self.pid)  # both sides do it, so that neither has to wait for the other

    def start(self, facts: Mapping[str, str], meanwhile: Callable[[], object]) -> None:
        """Become the command now, with these variables added. Raises `CommandFailed` when that is impossible.

        On a busy host this may take longer than the lease has left, so `meanwhile` is called again and again: it passes
        renewals on to the watchdog, which would otherwise end a command whose lease is in good order.
        """
        message = "\0".join(f"{name}={value}" for name, value in facts.items()).encode("utf-8", "surrogateescape") + GO
        with suppress(BrokenPipeError):  # it was killed during the wait, as its exit status will show
            while message:
                message = message[os.write(self._start, message) :]
        self._is_started = True
        os.close(self._start)
        while not select.select([self._status], [], [], START_LOOK)[0]:
            meanwhile()
        error_number = os.read(self._status, 64)  # empty when exec succeeded, which closes the pipe
        os.close(self._status)
        if error_number:
            self._reap()
            raise _failure(self._command[0], int(error_number))

    def discard(self) -> None:
        """Kill what still runs: there is no lock, or an error happened under it. Does nothing after the end."""
        if self.is_over:
            return
        if not self._is_started:
            os.close(self._start)
            os.close(self._status)
        signal_group(self.pid, signal.SIGKILL)
        os.kill(self.pid, signal.SIGKILL)  # it may not have made its group yet
        self._reap()

    def _reap(self) -> None:
        os.waitpid(self.pid, 0)
        self.is_over = True


def _become(command: list[str], environment: dict[str, str], start: int, status: int) -> None:
    """Wait for the message to start, then be the command; never returns into the wrapper's code."""
    try:
        os.setpgid(0, 0)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        for name in _PYTHON_IGNORES:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_DFL)
        message = _read_all(start)
        if message.endswith(GO):
            for fact in message.removesuffix(GO).decode("utf-8", "surrogateescape").split("\0"):
                name, _, value = fact.partition("=")
                environment[name] = value
            os.execvpe(command[0], command, environment)  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(status, b"%d" % (error.errno or errno.EIO))
    except BaseException:  # noqa: BLE001 - the wrapper reports it; a traceback here would be a second report
        os.write(status, b"%d" % errno.EIO)
    finally:
        os._exit(exit_codes.INTERNAL)


def _read_all(pipe: int) -> bytes:
    """What the wrapper sends until it closes its end."""
    parts = []
    while part := os.read(pipe, 65536):
        parts.append(part)
    return b"".join(parts)


def _failure(command: str, number: int) -> CommandFailed:
    if number == errno.ENOENT:
        return CommandFailed(f"{command}: {os.strerror(number)}", exit_codes.NOT_FOUND)
    hint = "; a script needs a first line such as #!/bin/sh" if number == errno.ENOEXEC else ""
    return CommandFailed(f"{command}: {os.strerror(number)}{hint}", exit_codes.NOT_EXECUTABLE)


def group_is_alive(group: int) -> bool:
    """Whether a live process is left in the group; a dead member that has not been reaped does not count."""
    if not signal_group(group, 0):
        return False
    try:
        numbers = [entry for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208 - no pathlib: start-up cost
    except OSError:
        return True  # no /proc here: dead members count until they are reaped
    return any(_is_live_member(number, group) for number in numbers)


def _is_live_member(number: str, group: int) -> bool:
    with suppress(OSError, ValueError), open(f"/proc/{number}/stat", "rb") as file:  # noqa: PTH123
        # The name in parentheses may contain anything, so fields are read after its end: state, parent, group.
        state, _, member_of = file.read().rpartition(b")")[2].split()[:3]
        return int(member_of) == group and state not in (b"Z", b"X")
    return False
