"""What the step-by-step tests of `run`, `once` and `elect` share: a job with everything around it noted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from leasehold.cli.parser import read
from leasehold.cli.run import Job

if TYPE_CHECKING:
    import leasehold

__all__ = ["Notes", "is_held", "job_of", "noted"]


def noted(notes: list[Any], what: Any, answer: Any = None) -> Any:
    """For a lambda: note that it was called, and answer."""
    notes.append(what)
    return answer


class Notes:
    """A console and signals; what they are told is kept in order."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.done: list[str] = []
        self.is_quiet = True
        self.is_verbose = False

    def error(self, message: object) -> None:
        self.said.append(("error", str(message)))

    def note(self, message: object) -> None:
        self.said.append(("note", str(message)))

    def detail(self, message: object) -> None:
        self.said.append(("detail", str(message)))

    def interrupted(self, message: object) -> None:
        self.said.append(("interrupted", str(message)))

    def wait_begins(self) -> None:
        self.done.append("wait begins")

    def wait_ended(self) -> None:
        self.done.append("wait ended")

    def texts(self, kind: str) -> list[str]:
        return [text for of, text in self.said if of == kind]


def job_of(*words: str) -> tuple[Any, Notes]:
    """The job of a command line, with everything around it noted."""
    notes, arguments = Notes(), read(list(words))
    console: Any = notes
    assert arguments is not None
    job: Any = Job(arguments, console)
    job.signals = notes
    job.child = SimpleNamespace(pid=4711, discard=lambda: notes.done.append("discarded"))
    job.watchdog = SimpleNamespace(pid=4712)
    return job, notes


def is_held(client: leasehold.Client, name: str) -> bool:
    state = client.inspect(name)
    return state is not None and bool(state.holdings)
