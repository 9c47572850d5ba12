"""The navigation of the site, read from the lists of the start page, so that a new page is one line there.

`## Heading` is a tab, `### Heading` a group inside it, `- [Title](page.md): what for` a page. A list item that leads to
the front page of a folder, a README.md, brings the lists of that page along, one level deeper.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from tools.site.outside import site_path

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["navigation"]

LINE = re.compile(r"^(?P<marks>##|###) (?P<heading>.+)$|^- \[(?P<title>[^\]]+)\]\((?P<page>[^)#:]+)\)", re.MULTILINE)

Entry: TypeAlias = "dict[str, str | list[Entry]] | str"


@dataclass
class _Group:
    """A heading with the pages that are listed below it."""

    title: str
    pages: list[Entry] = field(default_factory=list)
    groups: list[_Group] = field(default_factory=list)

    def entries(self) -> list[Entry]:
        groups: list[Entry] = [{group.title: group.entries()} for group in self.groups if group.entries()]
        return [*self.pages, *groups]


def navigation(docs: Path, start: str = "index.md") -> list[Entry]:
    """What MkDocs calls `nav`: the start page, then every group of it that lists pages."""
    return [{"Start": start}, *_listed(docs, start).entries()]


def _listed(docs: Path, page: str) -> _Group:
    top = _Group("")
    tab = group = top
    for line in LINE.finditer((docs / page).read_text()):
        if line["marks"] == "##":
            tab = group = _Group(line["heading"])
            top.groups.append(tab)
        elif line["marks"]:
            group = _Group(line["heading"])
            tab.groups.append(group)
        else:
            group.pages.append(_entry(docs, page, line["title"], line["page"]))
    return top


def _entry(docs: Path, page: str, title: str, target: str) -> Entry:
    listed = site_path((docs / page).parent / target)
    if listed is None:
        raise ValueError(f"{page} lists {target}, which does not exist")
    if not listed.endswith("README.md") or not (docs / listed).exists():
        return {title: listed}
    return {title: [listed, *_listed(docs, listed).entries()]}
