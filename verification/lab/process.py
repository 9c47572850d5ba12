"""A server process of our own: a free port, a folder of its own, stopped by pid. It knows no store.

However the process of the tests ends, its servers end with it; see `watcher`.

Each store has a file beside this one, which knows the command line and how to tell that the server answers.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from verification.lab import watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["ServerProcess", "as_account", "find_program", "free_port", "wait_until"]

START_LIMIT = 60.0
STOP_LIMIT = 20.0
SERVER_PORTS = (12_000, 32_000)
ROOM_FOR_SERVERS = 4 * 2**30  # all servers of a run have their files there at the same time
DEBIAN_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/sbin")  # not on everybody's path


def _folder_in_memory() -> str | None:
    """Where servers keep their files: in memory, where there is room; None is the usual folder for such files.

    A disk that stalls for a second makes a server silent for a second, which no test of a lock can tell from a fault.
    """
    folder = "/dev/shm"
    has_room = os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > ROOM_FOR_SERVERS
    return folder if has_room else None


def free_port() -> int:
    """A port of the loopback interface that nobody uses now, and no other test will be given.

    It is below those that the system gives to clients: while a server is down, a client that asks for it again and
    again could otherwise be given that very port, connect to itself, and keep the server from coming back.
    """
    while True:
        port = random.randrange(*SERVER_PORTS)
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _RESERVED and _reserve(port):
                return port


_RESERVED: dict[int, int] = {}  # the port, and a descriptor that stands for it


def _reserve(port: int) -> bool:
    """Keep a port from the tests of other processes, also while its server is down or about to start.

    Two that chose the same would talk to one server, and each flush what the other has stored. A name that is no file
    belongs to one process of the host at a time, and goes with it.
    """
    if sys.platform != "linux":
        _RESERVED[port] = -1
        return True
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0leasehold-lab-port-{port}")
    except OSError:
        name.close()
        return False
    _RESERVED[port] = name.detach()
    return True


def _give_back(port: int) -> None:
    descriptor = _RESERVED.pop(port, -1)
    if descriptor >= 0:
        os.close(descriptor)


def find_program(name: str, package: str) -> str:
    """The path of a program, or an error that says which package has it: a missing server is a failure, not a skip.

    Not one in a virtual environment: there a wheel may have put another version under the same name.
    """
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if not _is_in_environment(folder)]
    found = shutil.which(name, path=os.pathsep.join([*folders, *DEBIAN_FOLDERS]))
    if found is None:
        raise RuntimeError(f"{name} is not installed; on Debian and Ubuntu: apt install {package} (or: make servers)")
    return found


def _is_in_environment(folder: str) -> bool:
    return Path(folder, os.pardir, "pyvenv.cfg").exists()


def as_account(account: str | None, *command: str | Path) -> list[str]:
    """The words that run a program as that account; None: as this one.

    Not by `subprocess`, which has to fork for that: a process in which gRPC has run does not survive every fork.
    """
    words = [str(word) for word in command]
    if account is None:
        return words
    return ["setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups", *words]


def wait_until(condition: Callable[[], object], what: str, limit: float = START_LIMIT) -> None:
    """Wait for a condition; an error names what did not come."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {limit:.0f} s")
        time.sleep(0.01)


class ServerProcess:
    """One server. `folder` is its own and is removed with it; its output goes to `folder/log`.

    Faults: `pause` and `resume` (SIGSTOP, SIGCONT), `kill` (SIGKILL), `stop` (SIGTERM), `start` again on the same
    folder and port. `on_disk`: its files are not kept in memory, so that it waits for a disk as servers do.
    """

    last_signal: ClassVar[signal.Signals] = signal.SIGKILL  # what ends it when the tests were killed

    def __init__(self, name: str, *, user: str | None = None, on_disk: bool = False) -> None:
        self.name = name
        self.port = free_port()
        place = None if on_disk else _folder_in_memory()
        self.folder = Path(tempfile.mkdtemp(prefix=f"leasehold-{name}-", dir=place)).resolve()
        watcher.watch_folder(self.folder)
        self._user = user if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self.variables: dict[str, str] = {}  # of its environment, over the usual ones
        self._process: subprocess.Popen[bytes] | None = None
        _LIVE.add(self)

    # --- what each kind of server says

    def command(self) -> Sequence[str]:
        """The command line."""
        raise NotImplementedError

    def is_ready(self) -> bool:
        """Whether it answers; may raise while it does not."""
        raise NotImplementedError

    def environment(self) -> dict[str, str] | None:
        """The environment of the process; None is ours."""
        return None

    # --- life

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process without waiting, for servers that only answer once their peers run too.

        Not in a session of its own: Linux shares out the cores between sessions first, and all tests together would get
        no more than one busy server, so that leases with a short ttl run out on two cores.
        """
        environment = self.environment()
        if self.variables:
            environment = {**(environment or os.environ), **self.variables}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                as_account(self._user, *self.command()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment,
                process_group=0,  # Ctrl-C is not for it
            )
        watcher.watch_process(self._process.pid, self.last_signal)

    def start(self) -> None:
        """Start, and wait until it answers."""
        self.launch()
        self.wait_ready()

    def wait_ready(self, limit: float = START_LIMIT) -> None:
        """Wait until it answers; if the process ended instead, show its log."""

        def ready() -> bool:
            if not self.is_running:
                raise RuntimeError(f"{self.name} ended instead of starting:\n{self.log()[-2000:]}")
            with suppress(Exception):
                return self.is_ready()
            return False

        wait_until(ready, f"{self.name} does not answer", limit)

    def log(self) -> str:
        """What it has written so far."""
        return (self.folder / "log").read_text(errors="replace")

    def pause(self) -> None:
        """Stop it without ending it: it keeps its connections and does not answer."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in good order."""
        self._end(signal.SIGTERM)

    def remove(self) -> None:
        """End it and remove its folder."""
        self.kill()
        _give_back(self.port)
        shutil.rmtree(self.folder, ignore_errors=True)
        watcher.forget_folder(self.folder)
        _LIVE.discard(self)

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
        try:
            process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        watcher.forget_process(process.pid, self.last_signal)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


_LIVE: weakref.WeakSet[ServerProcess] = weakref.WeakSet()


@atexit.register
def _remove_all() -> None:
    for server in list(_LIVE):
        server.remove()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LIVE.clear)  # they are the parent's
