"""Runs the real program in real processes, over an SQLite file of the test's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import leasehold

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 30.0  # how long a test waits for something that should take a moment
SOURCE = Path(leasehold.__file__).parents[1]
PYTHON = sys.executable


def wait_for(condition: Callable[[], Any], what: str, limit: float = LIMIT) -> Any:
    """Wait until the condition gives something; fail with a sentence if it never does."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {limit:g} s in vain: {what}")


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in (b"Z", b"X")


def children_of(pid: int) -> list[int]:
    """The live children of a process."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(word) for word in text.split() if is_alive(int(word))]


def short_name(pid: int) -> str:
    """What ps calls the process."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def watchdog_of(wrapper: int) -> int | None:
    """The watchdog of a wrapper, once it is detached."""
    return next((pid for pid in children_of(wrapper) if short_name(pid) == "lease-watchdog"), None)


class CommandLine:
    """The program with a store, an environment and a mark by which everything it started can be found."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/locks.db"
        self.mark = uuid.uuid4().hex
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("LEASEHOLD")}
        self.environment = {
            **inherited,
            "PYTHONPATH": str(SOURCE),
            "LEASEHOLD_URL": self.url,
            "TEST_MARK": self.mark,
        }
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start `leasehold WORDS`; ended with the test at the latest."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = {**self.environment, **options.pop("env", {})}
        process = subprocess.Popen(
            [PYTHON, "-m", "leasehold", *words],
            env=environment,
            cwd=self.folder,
            **{"text": True, **pipes, **options},
        )
        self._started.append(process)
        return process

    def finish(self, *words: str, given: str | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run `leasehold WORDS` to its end."""
        if given is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(*words, **options)
        output, console = process.communicate(given, timeout=LIMIT)
        return subprocess.CompletedProcess(words, process.returncode, output, console)

    def hold(self, name: str, *options: str, script: str = "touch started; exec sleep 60") -> subprocess.Popen[str]:
        """Start a run of a shell script and wait until the script has made the file `started`."""
        marker = self.folder / "started"
        marker.unlink(missing_ok=True)
        process = self.start("run", name, *options, "--", "sh", "-c", script)
        wait_for(lambda: marker.exists() or process.poll() is not None, "the command starts")
        assert marker.exists(), process.communicate()
        return process

    def client(self) -> leasehold.Client:
        """A client of the library on the same store."""
        return leasehold.connect(self.url)

    def is_free(self, name: str) -> bool:
        """Whether nobody holds the name or waits for it."""
        with self.client() as client:
            return client.inspect(name) is None

    def queue(self, name: str) -> int:
        """How many wait for the name."""
        with self.client() as client:
            state = client.inspect(name)
        return 0 if state is None else len(state.waiting)

    def survivors(self) -> list[int]:
        """Every live process that carries the mark of this test."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                try:
                    marked = self.mark.encode() in (folder / "environ").read_bytes()
                except OSError:
                    continue
                if marked and is_alive(int(folder.name)):
                    found.append(int(folder.name))
        return found

    def close(self) -> None:
        """End whatever the test left running."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait()
        for pid in self.survivors():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
