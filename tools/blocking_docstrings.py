"""Docstrings are written once, on the async face; this writes them into the blocking one, in blocking words.

    python tools/blocking_docstrings.py           writes
    python tools/blocking_docstrings.py --check   says what is not as it would be written, and fails

They stand in the sources, and are not copied at run time, because editors and type checkers read sources.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "src" / "leasehold" / "_blocking"
WIDTH = 120

WORDS = [  # everywhere
    (r"\basync (with|for)\b", r"\1"),
    (r"\ban async context manager\b", "a context manager"),
    (r"\ban `Async([B-DF-HJ-NP-TV-Z]\w+)`", r"a `\1`"),
    (r"`Async(\w+)`", r"`\1`"),
    (r"\bthread or task\b", "thread"),
    (r"\bthreads (or|and) tasks\b", "threads"),
]
CLOSED_ON_LOOPS = (
    " The client is closed on every event loop that has used it; leases of a loop that does not run any more count as "
    "dropped."
)
SENTENCES = {  # what is different, and not only called differently
    "Client.close": [(CLOSED_ON_LOOPS, "")],
    "Election.lead": [("term ends first, the block is cancelled.", "term ends first, `term.lost` is set.")],
    "Election.run": [
        (
            "When the term ends first, the function is cancelled.",
            "When the term ends first, `term.lost` is set, and the function has to return.",
        )
    ],
    "Patterns.election": [("; they may be coroutine functions, and an error", "; an error")],
    "Term.step_down": [("a body in another task is cancelled, and `lost` is set", "`lost` is set")],
    "Lock.acquire": [(", which may be a coroutine.", ".")],
    "Lock.hold": [
        (
            "On loss the block is cancelled, and `on_lost(loss)` is called.",
            "On loss `lost` is set, and `on_lost(loss)` is called by another thread, where it may take its time.",
        )
    ],
}
NOT_IMPORTED = {"Operators": "leasehold._face.operators", "Patterns": "leasehold._patterns.of_client"}


def in_blocking_words(docstring: str, name: str) -> str:
    """The docstring of `Class` or `Class.member`, as the blocking face says it."""
    paragraphs = docstring.split("\n\n")
    for index, paragraph in enumerate(paragraphs):
        text = " ".join(paragraph.split())
        for old, new in WORDS:
            text = re.sub(old, new, text)
        for old, new in SENTENCES.get(name, ()):
            text = text.replace(old, new)
        if text != " ".join(paragraph.split()):
            paragraphs[index] = text
    return "\n\n".join(paragraphs)


def written(docstring: str, indent: int) -> list[str]:
    """The lines of it in a source."""
    room, margin = WIDTH - indent, " " * indent
    paragraphs = []
    for paragraph in docstring.split("\n\n"):
        is_prose = not any(line.startswith(" ") for line in paragraph.splitlines())
        paragraphs.append(textwrap.fill(paragraph, room, break_on_hyphens=False) if is_prose else paragraph)
    text = "\n\n".join(paragraphs)
    raw = "r" if "\\" in text else ""
    if "\n" not in text and len(text) + 6 <= room:
        return [f'{margin}{raw}"""{text}"""']
    first, *others = text.splitlines()
    if len(first) + 3 > room:
        raise SystemExit(f"the first line of a docstring is too long for the blocking face: {first}")
    return [f'{margin}{raw}"""{first}', *(f"{margin}{line}".rstrip() for line in others), f'{margin}"""']


def twins(module: ast.Module) -> dict[str, Any]:
    """The async classes that a module of the blocking face imports, by the names of their twins."""
    found = {name: getattr(importlib.import_module(home), f"Async{name}") for name, home in NOT_IMPORTED.items()}
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if alias.name.startswith("Async"):
                    kind = getattr(importlib.import_module(node.module), alias.name)
                    found[alias.name.removeprefix("Async")] = kind
    return found


def rewritten(path: Path) -> str:
    """A module of the blocking face with its docstrings."""
    source = path.read_text()
    module, lines = ast.parse(source), source.splitlines()
    originals = twins(module)
    for kind in reversed([node for node in module.body if isinstance(node, ast.ClassDef)]):
        original = originals.get(kind.name)
        if original is None:
            continue
        for member in reversed(kind.body):
            if isinstance(member, ast.FunctionDef) and _is_documented(original, member):
                documented = getattr(original, member.name)
                _put(lines, member, in_blocking_words(_clean(documented), f"{kind.name}.{member.name}"))
        _put(lines, kind, in_blocking_words(_clean(original), kind.name))
    return "\n".join(lines) + "\n"


def _is_documented(original: Any, member: ast.FunctionDef) -> bool:
    is_overload = any(isinstance(each, ast.Name) and each.id == "overload" for each in member.decorator_list)
    own = next((vars(kind)[member.name] for kind in original.__mro__[:-1] if member.name in vars(kind)), None)
    return not is_overload and own is not None and bool(own.__doc__) and member.name != "__init__"


def _clean(documented: Any) -> str:
    return inspect.cleandoc(documented.__doc__)


def _put(lines: list[str], node: ast.ClassDef | ast.FunctionDef, docstring: str) -> None:
    first = node.body[0]
    wanted = written(docstring, first.col_offset)
    if ast.get_docstring(node, clean=False) is not None:
        assert first.end_lineno is not None
        lines[first.lineno - 1 : first.end_lineno] = wanted
        return
    at = min([first.lineno, *(each.lineno for each in getattr(first, "decorator_list", ()))]) - 1
    lines[at:at] = [*wanted, ""] if isinstance(node, ast.ClassDef) else wanted


def main(words: list[str]) -> int:
    """Write, or check."""
    different = [path for path in sorted(FOLDER.glob("*.py")) if rewritten(path) != path.read_text()]
    for path in different:
        if words == ["--check"]:
            print(f"{path.name}: its docstrings are not those of its twins; run: python tools/blocking_docstrings.py")
        else:
            path.write_text(rewritten(path))
    return 1 if different and words == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
