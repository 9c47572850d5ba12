"""`python -m verification.mutants.table`: which check catches which bug, drawn from the results of a hunt.

`python -m verification.mutants --record` writes results.toml. The page is docs/reference/bugs.md, where each bug that a
published library had stands beside the bugs of its kind that are planted here, and what caught them.
"""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verification.mutants import MUTANTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from verification.mutants.runner import Verdict

__all__ = ["KNOWN", "RESULTS", "drawn", "known", "record", "results"]

FOLDER = Path(__file__).parent
KNOWN, RESULTS = FOLDER / "known.toml", FOLDER / "results.toml"
PAGE = FOLDER.parents[1] / "docs/reference/bugs.md"
BEGIN, END = "<!-- drawn: bugs -->\n", "<!-- end -->"


def known() -> dict[str, dict[str, Any]]:
    """The bugs that lock libraries have had."""
    return tomllib.loads(KNOWN.read_text())


def results() -> dict[str, dict[str, Any]]:
    """By mutant: what caught it in the last hunt, and after how many seeds."""
    return tomllib.loads(RESULTS.read_text())


def record(found: Mapping[str, Verdict]) -> None:
    """Keep what a hunt found; results of mutants that it did not hunt stay, unless they are gone."""
    ids = {mutant.id for mutant in MUTANTS}
    kept = {name: result for name, result in results().items() if name in ids}
    kept |= {name: {"caught_by": each.caught_by or "", "seeds": each.seeds} for name, each in found.items()}
    text = [
        f'["{name}"]\ncaught_by = "{each["caught_by"]}"\nseeds = {each["seeds"]}\n'
        for name, each in sorted(kept.items())
    ]
    RESULTS.write_text(
        "# What caught each mutant; written by `python -m verification.mutants --record`.\n\n" + "\n".join(text)
    )


def drawn() -> str:
    """The table, and a line that counts."""
    seen = results()
    rows = [f"| {name} | {each['what']} | {each['kind']} | {_here(each, seen)} |" for name, each in known().items()]
    return "\n".join(
        [_count(seen), "", "| | what failed | kind | planted here, and caught by |", "|---|---|---|---|", *rows]
    )


def _here(entry: Mapping[str, Any], seen: Mapping[str, Mapping[str, Any]]) -> str:
    cells = [f"`{name}`: {_caught(seen.get(name))}" for name in entry.get("mutants", ())]
    return "<br>".join([*cells, *([entry["reason"]] if "reason" in entry else [])])


def _caught(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return "not hunted since it was planted"
    return str(result["caught_by"]).removeprefix("test: ").replace("_", " ") or "**survived**"


def _count(seen: Mapping[str, Mapping[str, Any]]) -> str:
    caught = Counter(_kind(str(result["caught_by"])) for result in seen.values())
    parts = ", ".join(f"{number} by {kind}" for kind, number in caught.most_common())
    return f"Of {len(MUTANTS)} planted bugs {len(seen)} have results: {parts}."


def _kind(caught_by: str) -> str:
    if not caught_by:
        return "nothing"
    if caught_by.startswith("test: "):
        return "a test"
    return "the contract" if caught_by.startswith("case: ") else "a check of the simulation"


def redrawn(text: str) -> str:
    """The page with its table drawn anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{drawn()}\n{END}{after}"


def main(arguments: Iterable[str] = ()) -> int:
    """Draw the page; `--check` compares."""
    text = PAGE.read_text()
    if "--check" in arguments:
        return int(redrawn(text) != text)
    PAGE.write_text(redrawn(text))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
