"""What the examples share: processes that start together, a place where effects are counted, lines on the terminal.

An example is a story that is told twice, without leasehold and with it, by several processes:

    if __name__ == "__main__":
        raise SystemExit(play(story, __doc__))    # story(stage) tells both, and returns stage.verdict()

`stage.together(function, [...])` calls a function of the example in one new process for each tuple of arguments, at the
same moment; the stage itself is its first argument there. Processes are forked, so Windows cannot run the examples.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import sqlite3
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import leasehold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.synchronize import Barrier

__all__ = ["Actor", "Ledger", "Stage", "execute", "play", "times", "transaction"]

PROCESSES = multiprocessing.get_context("fork")
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
        namespace = f"{_example()}-{secrets.token_hex(4)}"
        stage = Stage(words[0] if words else "local:", folder, namespace)
        print(f"\n{paint('bold', title)}\n{paint('dim', f'locks on {stage.shown_url()}')}\n", flush=True)
        try:
            stage.start(ask_store).wait()  # in a process of its own, so that this one has no threads when it forks
            return story(stage)
        except leasehold.LeaseholdError as error:
            print(f"it cannot be shown: {error}", file=sys.stderr)
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

    def ledger(self, name: str) -> Ledger:
        """Effects on the world outside, counted."""
        return Ledger(Path(self.folder) / name)

    def database(self, **options: Any) -> Any:
        """A connection to the data: in the PostgreSQL that has the locks, else in a file of SQLite."""
        if self.url.startswith(("postgresql:", "postgres:")):
            import psycopg  # noqa: PLC0415 - not needed for the other stores

            address, _, query = self.url.partition("?")
            drivers_own = "&".join(word for word in query.split("&") if not word.startswith("mode="))
            return psycopg.connect(f"{address}?{drivers_own}", **options)
        database = sqlite3.connect(Path(self.folder) / "data.db", timeout=60, **options)
        database.execute("PRAGMA synchronous = OFF")  # quicker: nothing of a story has to outlive a power cut
        return database

    def shown_url(self) -> str:
        """The URL without what may be a password."""
        scheme, slashes, rest = self.url.partition("?")[0].partition("//")
        return scheme + slashes + rest.rpartition("@")[2]

    # --- processes

    def start(self, part: Callable[..., object], *arguments: object) -> Actor:
        """A process that calls `part(stage, *arguments)` at once."""
        return Actor(self, part, arguments, PROCESSES.Barrier(1))

    def together(self, part: Callable[..., object], calls: Sequence[tuple[object, ...]]) -> None:
        """A process for each call; all begin when all are there, and all have ended at the end."""
        gate = PROCESSES.Barrier(len(calls))
        for actor in [Actor(self, part, arguments, gate) for arguments in calls]:
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


def ask_store(stage: Stage) -> None:
    """Find out whether the store is there, before the story begins."""
    if stage.url.startswith("memory:"):
        raise leasehold.ConfigurationError("memory: is not shared by processes; take local: instead")
    with stage.connect(timeout=10) as client:
        client.lock("is it there").acquire().release()


class Actor:
    """One process of a story, which can be stopped, woken up and killed as a whole."""

    _all: list[Actor] = []  # noqa: RUF012 - every process that this one started

    def __init__(self, stage: Stage, part: Callable[..., object], arguments: tuple[object, ...], gate: Barrier) -> None:
        self._stage = stage
        self._process = PROCESSES.Process(target=_act, args=(stage, part, arguments, gate))
        self._process.start()
        Actor._all.append(self)

    def wait(self) -> None:
        """Until it has ended, by itself or killed."""
        self._process.join()
        if self._process.exitcode == REFUSED:
            raise leasehold.UnsupportedCapability(self._stage.ledger("refusal").read()[0])
        if (self._process.exitcode or 0) > 0:
            raise SystemExit("a process of this example failed; its traceback is above")

    def wait_until_stopped(self) -> None:
        """Until it has stopped itself with SIGSTOP."""
        os.waitpid(self._process.pid or 0, os.WUNTRACED)

    def send_signal(self, number: int) -> None:
        """SIGCONT wakes it up, SIGKILL ends it without a word."""
        if self._process.is_alive():
            os.kill(self._process.pid or 0, number)

    @classmethod
    def end_all(cls) -> None:
        """Leave nothing behind."""
        for actor in cls._all:
            actor.send_signal(signal.SIGKILL)


def _act(stage: Stage, part: Callable[..., object], arguments: tuple[object, ...], gate: Barrier) -> None:
    """The process of one actor: wait for the others, and play the part."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that tells the story
    gate.wait()
    try:
        part(stage, *arguments)
    except leasehold.LeaseholdError as error:
        stage.ledger("refusal").write(error)
        sys.exit(REFUSED)


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


def times(count: int) -> str:
    """In words: once, or so many times."""
    return "once" if count == 1 else f"{count} times"


def paint(colour: str, text: str) -> str:
    """The text in colour on a terminal, unless NO_COLOR is set."""
    if not text or "NO_COLOR" in os.environ or not sys.stdout.isatty():
        return text
    return f"\033[{COLOURS[colour]}m{text}\033[0m"


def _example() -> str:
    """`examples-payment`, for the program that was started with `python -m examples.payment`."""
    spec = sys.modules["__main__"].__spec__
    return spec.name.removesuffix(".__main__").replace(".", "-") if spec else "example"
