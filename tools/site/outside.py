"""Files of the repository that the documentation links to, although they are not below docs/.

On a forge such a link opens the file. On the site, CONTRIBUTING.md and its like become pages of their own, and a source
file becomes a page that shows it, so that no link leads out of the site.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DOCS", "ROOT", "ROOT_PAGES", "linked_files", "relinked", "site_path", "source_page"]

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ROOT_PAGES = {
    path: f"project/{name}.md"
    for path, name in {
        "CHANGELOG.md": "changelog",
        "CONTRIBUTING.md": "contributing",
        "LICENSE": "license",
        "SECURITY.md": "security",
    }.items()
    if (ROOT / path).exists()
}
DRAWN_PAGES = {"reference/catalogue.toml": "reference/catalogue.md"}  # files that the site shows as a page
FENCE = re.compile(r"(^ *(?P<mark>```+|~~~+).*?^ *(?P=mark) *$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<text>\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^)\s]+)\)")
LANGUAGES = {".py": "python", ".sh": "bash", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".sql": "sql"}


def site_path(file: Path) -> str | None:
    """Where a file of the repository is on the site, as a path below docs/; None if it is not there."""
    file = file.resolve()
    if file.is_relative_to(DOCS):
        path = str(file.relative_to(DOCS))
        return DRAWN_PAGES.get(path, path)
    if file.is_dir():
        file /= "README.md"
    if not file.is_file() or not file.is_relative_to(ROOT):
        return None
    path = str(file.relative_to(ROOT))
    if path == "README.md":
        return "index.md"
    if file.name == "README.md":
        return f"{file.parent.relative_to(ROOT)}.md"  # not the front page of a folder: it is one page among others
    return ROOT_PAGES.get(path, path if file.suffix == ".md" else f"source/{path}.md")


def relinked(text: str, file: Path, page: str) -> str:
    """The text of `file`, its links as they must be on `page`; a link to nothing on the site becomes plain text."""

    def on_site(link: re.Match[str]) -> str:
        target, mark, heading = link["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        path = site_path(file.parent / target)
        if path is None:
            return link["text"][1:-1]
        return f"{link['text']}({os.path.relpath(path, Path(page).parent)}{mark}{heading})"

    return "".join(part if is_code else LINK.sub(on_site, part) for part, is_code in _parts(text))


def linked_files() -> dict[str, Path]:
    """The files outside of docs/ that a page links to, by their place on the site; they may link to others."""
    found = {page: ROOT / path for path, page in ROOT_PAGES.items()}
    unread = [*found.values(), *DOCS.rglob("*.md")]
    while unread:
        more = {path: file for path, file in _links_out_of_docs(unread.pop()) if path not in found}
        found |= more
        unread += [file for file in more.values() if file.suffix == ".md"]
    return found


def _links_out_of_docs(file: Path) -> Iterator[tuple[str, Path]]:
    prose = "".join(part for part, is_code in _parts(file.read_text()) if not is_code)
    for link in LINK.finditer(prose):
        target = (file.parent / link["target"].partition("#")[0]).resolve()
        path = None if "://" in link["target"] else site_path(target)
        if path not in {None, "index.md"} and not target.is_relative_to(DOCS):
            yield str(path), target / "README.md" if target.is_dir() else target


def source_page(file: Path) -> str:
    """A page that shows a source file; a Markdown file is shown as it is."""
    text = file.read_text()
    if file.suffix == ".md":
        return text
    return f"# `{file.relative_to(ROOT)}`\n\n~~~~{LANGUAGES.get(file.suffix, 'text')}\n{text}\n~~~~\n"


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Prose and code, in turn."""
    position = 0
    for fence in FENCE.finditer(text):
        yield text[position : fence.start()], False
        yield fence[0], True
        position = fence.end()
    yield text[position:], False
