"""Draws the badges of the README from what the project declares: `python tools/draw_badges.py`, part of `make docs`.

They are files of the repository, so they need no network and say nothing that a test does not compare.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from leasehold.testing.contract import REQUIRED

__all__ = ["badges", "main"]

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
LETTER, PADDING = 6.3, 7  # the width of a letter at 11 pixels, and the room beside a word


def badges() -> dict[Path, str]:
    """Every badge, by its file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = [
        classifier.rpartition(" ")[2]
        for classifier in project["classifiers"]
        if classifier.startswith("Programming Language :: Python :: 3.")
    ]
    typed = "strict" if "Typing :: Typed" in project["classifiers"] else "no"
    words = {
        "python": (" | ".join(versions), "#0969da"),
        "typed": (typed, "#0969da"),
        "dependencies": (", ".join(project["dependencies"]) or "none", "#1a7f37"),
        "contract": (f"{len(REQUIRED)} kinds of store, no skips", "#1a7f37"),
        "licence": (project["license"], "#57606a"),
    }
    return {FOLDER / f"badge-{label}.svg": _badge(label, text, colour) for label, (text, colour) in words.items()}


def _badge(label: str, text: str, colour: str) -> str:
    left, right = (round(len(word) * LETTER + 2 * PADDING) for word in (label, text))
    font = 'font-family="Verdana, \'DejaVu Sans\', sans-serif" font-size="11" fill="#fff" text-anchor="middle"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">',
            f"<title>{label}: {text}</title>",
            f'<rect width="{left + right}" height="20" rx="4" fill="#3d444d"/>',
            f'<path d="M{left} 0 h{right - 4} a4 4 0 0 1 4 4 v12 a4 4 0 0 1 -4 4 h-{right - 4} z" fill="{colour}"/>',
            f'<g {font}><text x="{left / 2:g}" y="14">{label}</text>',
            f'<text x="{left + right / 2:g}" y="14">{text}</text></g>',
            "</svg>\n",
        ]
    )


def main() -> int:
    """Write them all."""
    for path, drawing in badges().items():
        path.write_text(drawing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
