"""Pages of the Python interface name what they show: `<!-- interface: leasehold.sql: guard, guard_async -->`.

On a forge the region holds a table, written by tools/draw_docs.py, with the first sentence of each name; the site puts
the whole docstrings there. A test demands that every public name is on a page.
"""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import fields, is_dataclass
from enum import EnumType
from typing import TYPE_CHECKING, Literal, get_args, get_origin, is_typeddict

from leasehold import errors, events

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["PUBLIC_MODULES", "REGION", "directives", "first_paragraph", "names_on", "public_names", "table"]

REGION = re.compile(
    r"(?P<mark><!-- interface: (?P<module>[\w.]+): (?P<names>[\w, \n]+?) -->\n).*?(<!-- end -->)", re.DOTALL
)

# Where a program may import from. Errors and events have pages of their own.
PUBLIC_MODULES = (
    "leasehold",
    "leasehold.fencing.asgi",
    "leasehold.fencing.etcd",
    "leasehold.fencing.http",
    "leasehold.fencing.redis",
    "leasehold.fleet",
    "leasehold.integrations.apscheduler",
    "leasehold.integrations.celery",
    "leasehold.integrations.django",
    "leasehold.integrations.fastapi",
    "leasehold.integrations.flask",
    "leasehold.integrations.sqlalchemy",
    "leasehold.integrations.starlette",
    "leasehold.kit",
    "leasehold.spi",
    "leasehold.sql",
    "leasehold.telemetry",
    "leasehold.testing",
)
# Of the names of `leasehold`, what a program makes itself; a client makes the others, so what they take is not shown.
CONSTRUCTED = frozenset({"Backoff", "IdempotencyMiddleware", "RetryKey"})


def public_names() -> set[str]:
    """Every public name but errors and events, with its module."""
    elsewhere = {*errors.__all__, *events.__all__} - {"Lost"}  # the event of this name is not leasehold.Lost
    modules = {name: importlib.import_module(name) for name in PUBLIC_MODULES}
    return {f"{name}.{each}" for name, module in modules.items() for each in module.__all__ if each not in elsewhere}


def names_on(text: str) -> list[str]:
    """The names that a page shows, with their modules."""
    return [f"{region['module']}.{name}" for region in REGION.finditer(text) for name in _split(region["names"])]


def table(region: re.Match[str]) -> str:
    """The region as a forge shows it."""
    module = importlib.import_module(region["module"])
    rows = [f"| `{name}` | {_escaped(_summary(getattr(module, name)))} |" for name in _split(region["names"])]
    return "\n".join([f"{region['mark']}| `{region['module']}` | is |", "| --- | --- |", *rows, "<!-- end -->"])


def directives(text: str) -> str:
    """The page as the site shows it."""
    return REGION.sub(lambda region: "\n\n".join(map(_directive, names_on(region[0]))), text)


def _directive(name: str) -> str:
    module, _, short = name.rpartition(".")
    thing = getattr(importlib.import_module(module), short)
    if isinstance(thing, EnumType):
        members = ", ".join(f"`{member}`" for member in thing.__members__)
        return f"::: {name}\n    options:\n      members: false\n\nOne of {members}."
    if is_dataclass(thing):
        shown = ", ".join(f"`{field.name}: {field.type}`" for field in fields(thing))
        return f"::: {name}\n    options:\n      merge_init_into_class: false\n\nFields: {shown}."
    if module == "leasehold" and short not in CONSTRUCTED:
        return f"::: {name}\n    options:\n      merge_init_into_class: false"
    return f"::: {name}"


def first_paragraph(thing: object) -> str:
    """What the docstring of a thing begins with, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def _summary(thing: object) -> str:
    if get_origin(thing) is Literal:
        return "One of " + ", ".join(f"`{value}`" for value in get_args(thing)) + "."
    if is_typeddict(thing):
        return "A dictionary with " + ", ".join(f"`{key}`" for key in thing.__annotations__) + "."
    return first_paragraph(thing)


def _split(names: str) -> Iterable[str]:
    return [name.strip() for name in names.split(",")]


def _escaped(words: str) -> str:
    return words.replace("|", "\\|")
