"""What MkDocs asks us while it builds the site: navigation, files from outside of docs/, plots, the version line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, InclusionLevel

from tools.interface import directives
from tools.site.catalogue import catalogue_page
from tools.site.navigation import navigation
from tools.site.outside import DOCS, ROOT, linked_files, relinked, source_page
from tools.site.plots import inlined
from tools.site.start_page import in_columns
from tools.site.tables import breakable

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

__all__ = ["on_config", "on_files", "on_page_content", "on_page_markdown"]

# Who searches wants to do something first; why it is so comes last, and the text of programs not at all.
SEARCH = {
    "adr/": {"boost": 0.2},
    "how-to/": {"boost": 2},
    "reference/api/": {"boost": 0.5},
    "source/": {"exclude": True},
    "tutorial": {"boost": 3},
}
_ORIGINS: dict[str, Path] = {}  # the files of pages that are not below docs/


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation and the version, which stand elsewhere already."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    config.nav = navigation(DOCS)
    config.copyright = f"leasehold {project['version']}, {project['license']} licence"
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Pages for what the documentation links to outside of docs/."""
    _ORIGINS.update(linked_files())
    for page, file in _ORIGINS.items():
        shown = InclusionLevel.NOT_IN_NAV  # unless a list names it
        files.append(File.generated(config, page, content=source_page(file), inclusion=shown))
    files.append(File.generated(config, "reference/catalogue.md", content=catalogue_page(DOCS / "reference")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs
    """Links as the site needs them, the docstrings of what a page of the interface lists, its weight in searches."""
    path = page.file.src_uri
    page.meta["search"] = next((weight for folder, weight in SEARCH.items() if path.startswith(folder)), {})
    return relinked(directives(markdown), _ORIGINS.get(path, DOCS / path), path)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs
    """Plots become part of the page, so that they take on its colours; the start page shows its lists side by side."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation", "toc"]
        html = in_columns(html)
    return breakable(inlined(html, DOCS / Path(page.file.src_uri).parent))
