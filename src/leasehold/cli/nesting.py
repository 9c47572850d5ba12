"""`LEASEHOLD_HELD`: the names that the callers of this command hold, so that it does not wait for its own parent."""

from __future__ import annotations

import os

__all__ = ["held_names", "held_with"]

VARIABLE = "LEASEHOLD_HELD"


def held_names() -> list[str]:
    """What the callers hold; nothing if the variable does not make sense."""
    text = os.environ.get(VARIABLE)
    if not text:
        return []
    import json  # noqa: PLC0415 - only when nested

    try:
        names = json.loads(text)
    except ValueError:
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def held_with(names: list[str], name: str) -> str:
    """The variable's value for a command that runs under one more name."""
    if not names and name.isascii() and name.isprintable() and not set(name) & set('"\\'):
        return f'["{name}"]'  # the common case, without loading json
    import json  # noqa: PLC0415

    return json.dumps([*names, name])
