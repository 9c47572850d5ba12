"""A wire for tests of single steps: it notes every statement, and gives the answers that were laid out for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.sql.wires import Answer, Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ScriptedWire", "rows"]


def rows(*given: tuple[Any, ...], columns: tuple[str, ...] = ()) -> Answer:
    """An answer with these rows."""
    return Answer(list(given), len(given), columns)


class ScriptedWire:
    """Answers in turn; an exception is raised, and after the last one every answer is empty."""

    is_async = False
    holds_objects = False

    def __init__(
        self, *answers: Answer | Exception, dialect: str = "postgresql", state: Transaction = Transaction.OPEN
    ) -> None:
        self.dialect = dialect
        self.state = state
        self.driver: Any = object()
        self.asked: list[tuple[str, dict[str, object]]] = []
        self._answers = list(answers)

    @property
    def statements(self) -> list[str]:
        """What was asked, on one line each."""
        return [" ".join(statement.split()) for statement, _ in self.asked]

    def transaction(self) -> Transaction:
        return self.state

    async def query(self, statement: str, values: Mapping[str, object]) -> Answer:
        self.asked.append((statement, dict(values)))
        answer = self._answers.pop(0) if self._answers else Answer([], 0)
        if isinstance(answer, Exception):
            raise answer
        return answer
