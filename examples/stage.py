"""What the examples share: processes that start together, a place where effects are counted, lines on the terminal.

An example is a story that is told twice, without leasehold and with it, by several processes:

    if __name__ == "__main__":
        raise SystemExit(play(story, __doc__))    # story(stage) tells both, and returns stage.verdict()

`stage.together(function, [...])` calls a function of the example in one new process for each tuple of arguments, at the
same moment; the stage itself is its first argument there.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import leasehold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Actor", "Ledger", "Stage", "act", "execute", "play", "transaction"]

ROOT = Path(__file__).resolve().parents[1]
BAR = 60  # characters
LABEL = 17
REFUSED = 3  # the exit code of a process whose store cannot do what the story needs
LUCK = "This time nothing went wrong without leasehold. Such luck is what makes it hard to find: run it again."
COLOURS = {"red": "31", "green": "32", "dim": "2", "bold": "1"}


def play(story: Callable[[Stage], int], text: str | None) -> int:
    """Run an example: `story` on the store that the command line names, or on `local:`."""
    words = sys.argv[1:]
    if len(words) > 1 or words[:1] in (["-h"], ["--help"]):
        print(text)
        return 2
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    title, _, _ = (text or "").partition("\n")
    with tempfile.TemporaryDirectory(prefix="leasehold-example-") as folder:
        namespace = f"{_module().replace('.', '-')}-{secrets.token_hex(4)}"
        stage = Stage(words[0] if words else "local:", folder, namespace)
        print(f"\n{paint('bold', title)}\n{paint('dim', f'locks on {stage.shown_url()}')}\n", flush=True)
        try:
            stage.check_store()
            return story(stage)
        except leasehold.LeaseholdError as error:
            print(f"this store cannot show it: {error}", file=sys.stderr)
            return 1
        finally:
            Actor.end_all()


@dataclass(frozen=True)
class Stage:
    """Where a story happens: the store of its locks, a namespace of its own there, a folder for all else."""

    url: str
    folder: str
    namespace: str

    def connect(self, **options: Any) -> leasehold.Client:
        """A client for this store, as any program makes one; the namespace keeps two runs apart."""
        return leasehold.connect(self.url, namespace=self.namespace, **options)

    def check_store(self) -> None:
        """Ask it something, before any process is started."""
        if self.url.startswith("memory:"):
            raise leasehold.ConfigurationError("memory: is not shared by processes; take local: instead")
        with self.connect(timeout=10) as client:
            client.lock("is it there").acquire().release()

    def ledger(self, name: str) -> Ledger:
        """Effects on the world outside, counted."""
        return Ledger(Path(self.folder) / name)

    def database(self, **options: Any) -> Any:
        """A connection to the data: in the PostgreSQL that has the locks, else in a file of SQLite."""
        if self.url.startswith(("postgresql:", "postgres:")):
            import psycopg  # noqa: PLC0415 - not needed for the other stores

            return psycopg.connect(self.url.replace("?mode=session", ""), **options)
        database = sqlite3.connect(Path(self.folder) / "data.db", timeout=60, **options)
        database.execute("PRAGMA synchronous = OFF")  # quicker: nothing of a story has to outlive a power cut
        return database

    def shown_url(self) -> str:
        """The URL without what may be a password."""
        scheme, slashes, rest = self.url.partition("//")
        return scheme + slashes + rest.rpartition("@")[2]

    # --- processes

    def start(self, function: Callable[..., object], *arguments: object) -> Actor:
        """A process that calls `function(stage, *arguments)` at once."""
        actor = Actor(self, function, arguments)
        actor.go()
        return actor

    def together(self, function: Callable[..., object], calls: Iterable[tuple[object, ...]]) -> None:
        """A process for each call; all wait until all are there, and all have ended at the end."""
        actors = [Actor(self, function, arguments) for arguments in calls]
        for actor in actors:
            actor.wait_until_ready()
        for actor in actors:
            actor.go()
        for actor in actors:
            actor.wait()

    # --- lines on the terminal

    def say(self, text: str) -> None:
        """Something that happens on the way."""
        print(f"    {paint('dim', text)}", flush=True)

    def result(self, label: str, count: int, wanted: int, text: str, *, good: bool | None = None) -> None:
        """How one telling of the story ended; good is, unless said otherwise, to have counted what was wanted."""
        good = count == wanted if good is None else good
        colour, mark = ("green", "✓") if good else ("red", "✗")
        scale = min(1.0, BAR / max(count, wanted, 1))
        bar = paint("green", "█" * round(min(count, wanted) * scale))
        bar += paint("red", ("█" if count > wanted else "░") * round(abs(count - wanted) * scale))
        print(
            f"  {paint(colour, mark)} {label:<{LABEL}} {paint('bold', text)}" + (f"\n    {bar}" if bar else ""),
            flush=True,
        )

    def verdict(self, *, broken: bool, cured: bool) -> int:
        """0 if it went as told; that nothing broke without leasehold is luck, and said so."""
        if not cured:
            print("\nThe cure did not hold: please report this as a bug.")
        elif not broken:
            print(f"\n{LUCK}")
        return 0 if broken and cured else 1


class Actor:
    """One process of a story, which can be stopped, woken up and killed as a whole."""

    _all: list[Actor] = []  # noqa: RUF012 - every process that this one started

    def __init__(self, stage: Stage, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
        call = json.dumps([_module(), function.__name__, asdict(stage), arguments])
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", "from examples.stage import act; act()", call]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        self._stage = stage
        self._reader = threading.Thread(target=self._show, daemon=True)
        self._ready = False
        Actor._all.append(self)

    def wait_until_ready(self) -> None:
        """Until its modules are loaded."""
        if not self._ready:
            assert self._process.stdout is not None
            self._process.stdout.readline()
            self._ready = True

    def go(self) -> None:
        """Let it begin."""
        self.wait_until_ready()
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        self._reader.start()

    def wait(self) -> int:
        """Until it has ended; its exit code."""
        code = self._process.wait()
        self._reader.join()
        if code == REFUSED:
            raise leasehold.UnsupportedCapability(self._stage.ledger("refusal").read()[0])
        if code > 0:
            raise SystemExit("a process of this example failed; its traceback is above")
        return code

    def wait_until_stopped(self) -> None:
        """Until it has stopped itself with SIGSTOP."""
        os.waitpid(self._process.pid, os.WUNTRACED)

    def send_signal(self, number: int) -> None:
        """SIGCONT wakes it up, SIGKILL ends it without a word."""
        self._process.send_signal(number)

    def _show(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._stage.say(line.rstrip())

    @classmethod
    def end_all(cls) -> None:
        """Leave nothing behind."""
        for actor in cls._all:
            actor.send_signal(signal.SIGKILL)
            actor._process.wait()  # noqa: SLF001 - of its own kind


class Ledger:
    """Effects that cannot be undone, a line for each: charges of a bank, mails that were sent."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, text: object) -> None:
        """It happens."""
        with self._path.open("a") as file:
            file.write(f"{text}\n")

    def read(self) -> list[str]:
        """All that happened, in order."""
        return self._path.read_text().splitlines() if self._path.exists() else []

    def take(self) -> list[str]:
        """All that happened, and begin anew."""
        lines = self.read()
        self._path.unlink(missing_ok=True)
        return lines


@contextmanager
def transaction(database: Any) -> Iterator[Any]:
    """Commit at the end of the block, or roll back if it fails."""
    try:
        yield database
    except BaseException:
        database.rollback()
        raise
    database.commit()


def execute(database: Any, statement: str, *values: object) -> Any:
    """Run one statement with `?` for each value, on sqlite3 or on psycopg."""
    marks = statement if isinstance(database, sqlite3.Connection) else statement.replace("?", "%s")
    return database.execute(marks, values)


def paint(colour: str, text: str) -> str:
    """The text in colour on a terminal, unless NO_COLOR is set."""
    if not text or "NO_COLOR" in os.environ or not sys.stdout.isatty():
        return text
    return f"\033[{COLOURS[colour]}m{text}\033[0m"


def act() -> None:
    """The process of one actor: load the example, wait for the others, play the part."""
    module, function, stage, arguments = json.loads(sys.argv[1])
    part = getattr(import_module(f"{module}.__main__"), function)
    print("ready", flush=True)
    sys.stdin.readline()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that tells the story
    try:
        part(Stage(**stage), *arguments)
    except leasehold.UnsupportedCapability as error:
        Stage(**stage).ledger("refusal").write(error)
        sys.exit(REFUSED)


def _module() -> str:
    """`examples.payment`, for the program that was started with `python -m examples.payment`."""
    spec = sys.modules["__main__"].__spec__
    assert spec is not None
    return spec.name.removesuffix(".__main__")
