"""Long names in the cells of a table, which a narrow screen has to break somewhere."""

from __future__ import annotations

import re

__all__ = ["breakable"]

CELL = re.compile(r"<td.*?</td>", re.DOTALL)
LONG_CODE = re.compile(r"(?<=<code>)[^<]{25,}(?=</code>)")
SEAM = re.compile(r"(?<=[_/.,=:])(?=\w)")


def breakable(html: str) -> str:
    """The page, its long names breakable where their parts meet, and nowhere else."""
    return CELL.sub(lambda cell: LONG_CODE.sub(lambda code: SEAM.sub("<wbr>", code[0]), cell[0]), html)
