"""The start page: its groups of pages stand side by side where there is room."""

from __future__ import annotations

import re

__all__ = ["in_columns"]

GROUP = re.compile(r"(?P<heading><h3 .*?</h3>)\s*(?P<pages><ul>.*?</ul>)\s*", re.DOTALL)
GROUPS = re.compile(rf"(?:{GROUP.pattern})+".replace("?P<heading>", "?:").replace("?P<pages>", "?:"), re.DOTALL)


def in_columns(html: str) -> str:
    """Each group, a heading with the list below it, is a card; the cards of a part are one grid."""

    def card(group: re.Match[str]) -> str:
        return f'<div class="card">{group["heading"]}{group["pages"]}</div>'

    return GROUPS.sub(lambda groups: f'<div class="cards">{GROUP.sub(card, groups[0])}</div>', html)
