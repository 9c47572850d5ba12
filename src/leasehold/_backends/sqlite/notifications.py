"""Waking a waiter in another process: a named pipe per client, in a directory beside the lock file.

A waiter's row names its client's pipe, the listener. The client that makes room writes the number of the row into it;
a thread of the waiting client reads that and raises the waiter's signal. The pipe and the thread exist only while the
client waits for something, and for a moment after. Nothing depends on a notification: a waiter asks again by itself
within a second.

A pipe without a reader is the pipe of a process that died: its waiter leaves the queue at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import stat
import struct
import threading
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leasehold._backends.sqlite.rows import Notification
    from leasehold.spi import Signal

__all__ = ["Notifications"]

LINGER = 2.0  # how long an idle listener stays, so that a loop of short waits does not start it each time
LOOK_AGAIN = 10.0  # how often a listener with waiters looks whether they still exist
YOUNG = 60.0  # a pipe under a provisional name may be about to be opened
_TOKEN = re.compile(r"[0-9a-f]{16}")
_NUMBER = struct.Struct("<q")
_NOBODY = 0  # a number that no waiter has: wakes the listener itself


class Notifications:
    """One client's pipe, and its way to the pipes of others."""

    def __init__(self, lock_file: str) -> None:
        self._lock_file = lock_file
        self._directory = f"{lock_file}-wake"
        self._mutex = threading.Lock()
        self._signals: weakref.WeakValueDictionary[int, Signal] = weakref.WeakValueDictionary()
        self._listener: _Listener | None = None
        self._unusable = not hasattr(os, "mkfifo")
        _ALL.add(self)

    # --- waiting

    def listen(self) -> str | None:
        """Be ready to be woken; returns the name of the pipe, None where there can be none."""
        with self._mutex:
            if self._listener is None or not self._listener.is_alive():
                self._listener = self._start()
            if self._listener is None:
                return None
            self._listener.wanted = True  # it must not retire before its new waiter is known
            return self._listener.token

    def expect(self, number: int, signal: Signal) -> None:
        """Raise this signal when the row of this number is notified. It is known weakly: the waiter holds it."""
        self._signals[number] = signal

    def close(self) -> None:
        """Stop listening, and wake all waiters: nothing else would before they ask again by themselves."""
        with self._mutex:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.end()
        for signal in list(self._signals.values()):
            signal.set()

    def retire(self, listener: _Listener) -> bool:
        """Let an idle listener end, unless it has a new waiter; called by the listener itself."""
        with self._mutex:
            if self._listener is not listener:
                return True
            if listener.wanted or self._signals:
                listener.wanted = False
                return False
            self._listener = None
            return True

    def _start(self) -> _Listener | None:
        if self._unusable:
            return None
        try:
            rights = stat.S_IMODE(os.stat(self._lock_file).st_mode) & 0o666  # noqa: PTH116
            self._make_directory(rights)
            listener = _Listener(self, self._directory, rights, self._signals)
        except OSError as error:
            self._unusable = True
            from logging import getLogger  # noqa: PLC0415 - only when there is something to say

            getLogger("leasehold.sqlite").warning(
                "no pipe can be made in %s (%s): waiters poll instead, and get a lock up to 0.2 s later; give this "
                "user the right to write there",
                self._directory,
                error.strerror,
            )
            return None
        if listener.token.startswith("0"):  # once in a while is enough
            self._sweep()
        listener.start()
        return listener

    def _make_directory(self, rights: int) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._directory, 0o700)  # noqa: PTH102
            os.chmod(self._directory, rights | (rights & 0o444) >> 2)  # noqa: PTH101 - may read: may enter
        if not stat.S_ISDIR(os.lstat(self._directory).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "it is a link or a file", self._directory)

    def _sweep(self) -> None:
        """Remove the pipes of processes that were killed."""
        for name in os.listdir(self._directory):  # noqa: PTH208
            path = f"{self._directory}/{name}"
            with contextlib.suppress(OSError):
                if name.startswith("new-"):
                    if time.time() - os.lstat(path).st_mtime > YOUNG:
                        os.unlink(path)  # noqa: PTH108
                elif _TOKEN.fullmatch(name):
                    _reach(path)

    # --- notifying

    def is_ours(self, listener: str) -> bool:
        """Whether this client has that listener."""
        return self._listener is not None and listener == self._listener.token

    def notify(self, notifications: Iterable[Notification]) -> list[Notification]:
        """Wake these waiters; returns those that are surely dead."""
        dead = []
        for each in notifications:
            if self.is_ours(each.listener):
                signal = self._signals.get(each.number)
                if signal is not None:
                    signal.set()
            elif _TOKEN.fullmatch(each.listener):
                alive = _reach(f"{self._directory}/{each.listener}", _NUMBER.pack(each.number))
                dead += [each] if alive is False else []
        return dead

    def after_fork_in_child(self) -> None:
        """The pipe is the parent's: a copy kept open here would make a dead parent look alive."""
        self._mutex = threading.Lock()
        if self._listener is not None:
            os.close(self._listener.descriptor)
        self._listener = None


class _Listener(threading.Thread):
    """Reads one pipe and raises the signals of the waiters that are notified."""

    def __init__(
        self, owner: Notifications, directory: str, rights: int, signals: weakref.WeakValueDictionary[int, Signal]
    ) -> None:
        super().__init__(name="leasehold sqlite wake-up", daemon=True)
        self.token = os.urandom(8).hex()
        self.wanted = True
        self._owner = owner
        self._path = f"{directory}/{self.token}"
        self._signals = signals
        self._ended = False
        self.descriptor = self._make_pipe(f"{directory}/new-{self.token}", rights)

    def _make_pipe(self, provisional: str, rights: int) -> int:
        os.mkfifo(provisional, 0o600)
        try:
            os.chmod(provisional, rights)  # noqa: PTH101 - all who may write the lock file may notify
            # Open for both, so that there is always a writer and the pipe never ends.
            descriptor = os.open(provisional, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            os.rename(provisional, self._path)  # noqa: PTH104 - from now on a pipe without a reader is a dead one
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(provisional)  # noqa: PTH108
            raise
        return descriptor

    def run(self) -> None:
        """Listen until there is no waiter any more."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        while not self._ended:
            if poll.poll((LOOK_AGAIN if self._signals else LINGER) * 1000):
                self._deliver()
            elif self._owner.retire(self):
                break
        with contextlib.suppress(OSError):
            os.unlink(self._path)  # noqa: PTH108
        os.close(self.descriptor)

    def end(self) -> None:
        """Stop at once."""
        self._ended = True
        if self.is_alive():
            with contextlib.suppress(OSError):  # it may have retired just now, or have plenty to read
                os.write(self.descriptor, _NUMBER.pack(_NOBODY))
            self.join(LINGER)

    def _deliver(self) -> None:
        try:
            data = os.read(self.descriptor, 512 * _NUMBER.size)  # each message is written at once, so never half
        except BlockingIOError:
            return
        for (number,) in _NUMBER.iter_unpack(data[: len(data) // _NUMBER.size * _NUMBER.size]):
            signal = self._signals.get(number)
            if signal is not None:
                signal.set()


def _reach(path: str, message: bytes = b"") -> bool | None:
    """Find the reader of a pipe, and send it a message; False if there is none, and then the pipe is removed.

    None if that is not known.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            return None
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108
        return False
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return None
        if message:
            os.write(descriptor, message)
    except OSError as error:
        return False if error.errno == errno.EPIPE else None  # full: it has enough to read already
    else:
        return True
    finally:
        os.close(descriptor)


_ALL: weakref.WeakSet[Notifications] = weakref.WeakSet()


def _leave_pipes_to_the_parent() -> None:
    for notifications in list(_ALL):
        notifications.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_pipes_to_the_parent)
