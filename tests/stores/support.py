"""What the fault tests share: workers in processes of their own, both runtimes, and waiting for conditions."""

from __future__ import annotations

import os
import selectors
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import leasehold
from leasehold._face.client import AsyncClient
from leasehold._urls import find_store
from tests.waiting import LIMIT, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from leasehold.testing import contract

__all__ = ["Flag", "Worker", "eventually", "files_given_to_ssl", "opened", "waiters"]


class Flag:
    """A signal; nobody waits for it."""

    def __init__(self) -> None:
        self.up = False

    def set(self) -> None:
        self.up = True

    def clear(self) -> None:
        self.up = False

    def is_set(self) -> bool:
        return self.up


def files_given_to_ssl(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What `ssl` is asked to load from now on: the file of authorities, and certificate, key and its password."""
    loaded: list[object] = []

    class Context:
        check_hostname = verify_mode = None

        def load_cert_chain(self, *files: str | None) -> None:
            loaded.append(files)

    def create(*, cafile: str | None) -> Context:
        loaded.append(cafile)
        return Context()

    monkeypatch.setattr(ssl, "create_default_context", create)
    return loaded


def waiters(client: leasehold.Client, name: str) -> int:
    """How many stand in line."""
    state = client.inspect(name)
    return 0 if state is None else len(state.waiting)


@asynccontextmanager
async def opened(driver: contract.Driver, url: str, **options: Any) -> AsyncIterator[AsyncClient]:
    """A client on the runtime of this driver."""
    async with AsyncClient(find_store(url), driver.runtime(), **options) as client:
        yield client


class Worker:
    """A process that runs one task of a program that prints a line per event."""

    program: ClassVar[Path] = Path(__file__).parent / "redis" / "redis_worker.py"

    def __init__(self, *words: object) -> None:
        source = str(Path(leasehold.__file__).parents[1])
        path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, str(self.program), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "PYTHONPATH": path},
        )
        self.pid = self._process.pid

    def line(self) -> list[str]:
        """The next line that it prints."""
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        assert words, f"the worker ended with {self._process.wait()}; its errors are above"
        return words

    def rest(self) -> list[str]:
        """Everything that it prints until its end."""
        output, _ = self._process.communicate(timeout=100)
        return output.splitlines()

    def is_silent(self, seconds: float) -> bool:
        """Whether it prints nothing for so long; call it only when every line before was read."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type] # it is a pipe
            return not selector.select(seconds)

    def say(self, word: str) -> None:
        """Tell it something."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def ask(self, word: str) -> list[str]:
        """Tell it something and read the answer."""
        self.say(word)
        return self.line()

    def send(self, number: int) -> None:
        """A signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._process.kill()
        self._process.wait()

    def ends(self) -> int:
        """Wait for its end; the exit code."""
        return self._process.wait(LIMIT)

    def stop(self) -> None:
        """Whatever it does, it ends now."""
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                with suppress(BrokenPipeError):
                    pipe.close()
