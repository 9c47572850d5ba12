"""Plots as part of a page: an `<img>` knows the system's colours only, and not those that the reader chose."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["inlined"]

IMAGE = re.compile(r'<p><img alt="(?P<alt>[^"]*)" src="(?P<source>(?:\.\./)*plots/[\w-]+\.svg)" ?/?></p>')
STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)


def inlined(html: str, folder: Path) -> str:
    """The page with its plots inside; the style sheet of the site colours them."""

    def whole(image: re.Match[str]) -> str:
        drawn = STYLE.sub("", (folder / image["source"]).read_text())
        return f'<figure class="plot" tabindex="0" data-search-exclude>{drawn}</figure>'

    return IMAGE.sub(whole, html)
