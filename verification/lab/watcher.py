"""Servers and programs do not outlive the process of the tests, however it ends: a watcher beside it ends them.

The watcher is this file run as a program. It reads from a pipe whose only writer is the process of the tests: what was
started, one line each, and what has ended since. When the pipe is closed, by an end in good order or by SIGKILL, the
watcher ends the processes that are left, runs the commands that take networks down, and removes folders.

A signal upon the death of the parent (PR_SET_PDEATHSIG) would not do: it is sent when the *thread* that started the
server ends, and it cannot remove a folder or a network. The watcher has a session of its own, so that a signal to the
terminal or to the group of the tests does not reach it. It only waits, so the scheduler's shares are as they were.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "forget_command",
    "forget_folder",
    "forget_process",
    "watch_command",
    "watch_descendants",
    "watch_folder",
    "watch_process",
]

GRACE = 5.0  # seconds for a server that gives shared memory back before it ends
KILL_LIMIT = 20.0
MARK = "STARTED_BY_TESTS"  # in the environment of all that the process of the tests starts from now on
_LOCK = threading.Lock()
_STARTED: list[subprocess.Popen[bytes]] = []


def watch_folder(folder: Path) -> None:
    """Remove it in the end, and end every process that works in it."""
    _send("folder", str(folder))


def forget_folder(folder: Path) -> None:
    """It was removed."""
    _send("-folder", str(folder))


def watch_process(pid: int, number: signal.Signals) -> None:
    """End it with this signal, and with SIGKILL if that does not help."""
    _send("process", [pid, int(number)])


def forget_process(pid: int, number: signal.Signals) -> None:
    """It has ended: its number may be given to another."""
    _send("-process", [pid, int(number)])


def watch_command(words: Sequence[str]) -> None:
    """Run it in the end, after all processes have ended."""
    _send("command", list(words))


def forget_command(words: Sequence[str]) -> None:
    """It is not needed any more."""
    _send("-command", list(words))


def watch_descendants() -> None:
    """End whatever this process starts from now on and leaves behind: above all programs that a test has stopped.

    A program that reads from a pipe of the tests ends by itself when they are killed, but not while it is stopped.
    """
    os.environ[MARK] = f"{os.getpid()}-{os.urandom(8).hex()}"
    _send("mark", os.environ[MARK])


# --- in the process of the tests


def _send(kind: str, what: object) -> None:
    line = json.dumps([kind, what]).encode() + b"\n"
    with _LOCK, contextlib.suppress(BrokenPipeError):  # the watcher was killed: the tests go on without it
        pipe = _watcher().stdin
        assert pipe is not None
        pipe.write(line)


def _watcher() -> subprocess.Popen[bytes]:
    if not _STARTED:
        _STARTED.append(
            subprocess.Popen(
                [sys.executable, "-I", "-S", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # a pipe that is inherited would never be at its end
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={name: value for name, value in os.environ.items() if name != MARK},
                bufsize=0,
                start_new_session=True,
            )
        )
    return _STARTED[0]


@atexit.register
def _finish() -> None:
    """Nothing is left by now, unless something has failed."""
    while _STARTED:
        watcher = _STARTED.pop()
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait()


def _leave_it_to_the_parent() -> None:
    """In a forked child: it must not keep the pipe open, and starts a watcher of its own if it needs one."""
    global _LOCK  # noqa: PLW0603 - a thread of the parent's may have held it
    _LOCK = threading.Lock()
    while _STARTED:
        inherited = _STARTED.pop()
        inherited.returncode = 0  # it is no child of this process
        assert inherited.stdin is not None
        inherited.stdin.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_it_to_the_parent)


# --- in the watcher


def main() -> None:
    """Read until the tests have ended, then clear away."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    left: dict[str, list[Any]] = {"folder": [], "process": [], "command": [], "mark": []}
    for line in sys.stdin:
        kind, what = json.loads(line)
        if not kind.startswith("-"):
            left[kind].append(what)
        elif what in left[kind[1:]]:
            left[kind[1:]].remove(what)
    folders = [Path(folder) for folder in left["folder"]]
    _end_processes(dict(left["process"]), folders, left["mark"])
    for words in left["command"]:
        subprocess.run(words, check=False)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _end_processes(pids: dict[int, int], folders: list[Path], marks: list[str]) -> None:
    for pid, number in pids.items():
        _signal(pid, number)
    for pid in [*pids, *_left_in(folders, marks)]:
        _signal(pid, signal.SIGCONT)
    gentle = {pid for pid, number in pids.items() if number != signal.SIGKILL}
    deadline = time.monotonic() + GRACE
    while any(map(_is_alive, gentle)) and time.monotonic() < deadline:
        time.sleep(0.02)
    deadline = time.monotonic() + KILL_LIMIT
    while (alive := [*filter(_is_alive, pids), *_left_in(folders, marks)]) and time.monotonic() < deadline:
        for pid in alive:
            _signal(pid, signal.SIGKILL)
        time.sleep(0.02)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _is_alive(pid: int) -> bool:
    """Whether it runs: one that has ended and is kept for its parent does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except PermissionError:
        return True
    except OSError:
        return False


def _left_in(folders: list[Path], marks: list[str]) -> Iterator[int]:
    """The children of servers, what was started at the very end and not announced any more, and what has a mark."""
    wanted = {f"{MARK}={mark}".encode() for mark in marks}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            place = (entry / "cwd").readlink()
            is_marked = bool(wanted) and not wanted.isdisjoint((entry / "environ").read_bytes().split(b"\0"))
            if is_marked or any(place == folder or folder in place.parents for folder in folders):
                pid = int(entry.name)
                if _is_alive(pid):
                    yield pid


if __name__ == "__main__":
    main()
