"""What became of each mutant; kept on disk, so that a sweep goes on where it was interrupted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from verification.mutants.sweep.places import Place

__all__ = ["Journal"]


class Journal:
    """The verdicts of one state of the library, by the id of the place."""

    def __init__(self, file: Path, places: list[Place], *, again: bool) -> None:
        self._file, self._places, self._again = file, places, again
        self._verdicts: dict[str, str | None] = {}
        if file.exists():
            for text in file.read_text().splitlines():
                self._verdicts.update(json.loads(text))

    def open_places(self) -> list[Place]:
        """What is still to be hunted; with `again` also what has survived so far."""
        return [
            place
            for place in self._places
            if place.id not in self._verdicts or (self._again and not is_caught(self._verdicts[place.id]))
        ]

    def note(self, place: Place, verdict: str | None, tests: int, seconds: float) -> None:
        self._verdicts[place.id] = verdict
        with self._file.open("a") as file:
            file.write(json.dumps({place.id: verdict}) + "\n")
        if not is_caught(verdict):
            print(f"SURVIVED {described(place)}  ({verdict or f'{tests} tests, {seconds:.0f} s'})", flush=True)

    def survivors(self) -> list[Place]:
        return [
            place for place in self._places if place.id in self._verdicts and not is_caught(self._verdicts[place.id])
        ]

    def report(self) -> str:
        """The rate of each file, and of all."""
        rows, survivors = [], self.survivors()
        hunted = [place for place in self._places if place.id in self._verdicts]
        for file in sorted({place.file for place in hunted}):
            total = sum(place.file == file for place in hunted)
            caught = total - sum(place.file == file for place in survivors)
            rows.append(f"{file:45} {caught:4} of {total:4}  {caught / total:4.0%}")
        caught = len(hunted) - len(survivors)
        rows.append(f"{'all':45} {caught:4} of {len(hunted):4}  {caught / max(1, len(hunted)):4.0%}")
        return "\n".join(rows)


def is_caught(verdict: str | None) -> bool:
    return verdict is not None and verdict != "nothing reaches it"


def described(place: Place) -> str:
    """File, line, before and after, in one line."""
    old, new = " ".join(place.old.split()), " ".join(place.new.split())
    return f"{place.file}:{place.line} [{place.kind}] {old[:110]} => {new[:110]}"
