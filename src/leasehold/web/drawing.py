"""Pages from facts: Jinja2 with everything escaped, and the few words and figures that templates need.

A text of others goes through `shown`, which escapes control and format characters, and then through Jinja2, which
escapes HTML. Links carry names in their query, because names contain slashes and dots; all links are relative.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from leasehold._shown import printable, show_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FILES", "draw"]

TYPES = {"app.css": "text/css", "app.js": "text/javascript", "icon.svg": "image/svg+xml"}
FILES = {name: (files(__package__).joinpath("static", name).read_bytes(), kind) for name, kind in TYPES.items()}
VERSION = hashlib.sha256(b"".join(content for content, _ in FILES.values())).hexdigest()[:12]

_environment = Environment(
    loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


def draw(template: str, **facts: Any) -> str:
    """The template with these facts."""
    return _environment.get_template(f"{template}.html").render(version=VERSION, **facts)


def _who(holder: Mapping[str, Any]) -> str:
    return printable(holder["label"] or holder["host"])


def _where(holder: Mapping[str, Any]) -> str:
    place = f"{holder['host']} · " if holder["label"] else ""
    return printable(f"{place}pid {holder['pid']}")


def _when(instant: float) -> str:
    """An instant in seconds since 1970, for people."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _iso(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).isoformat(timespec="seconds")


def _clock(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%H:%M:%S")


def _ago(instant: float) -> str:
    return show_duration(max(0.0, datetime.now(UTC).timestamp() - instant))


def _link(page: str, /, **query: object) -> str:
    """A relative address."""
    text = urlencode({name: value for name, value in query.items() if value not in (None, "", False)})
    return f"{page}?{text}" if text else page


_environment.filters.update(
    shown=printable, duration=show_duration, who=_who, where=_where, when=_when, iso=_iso, clock=_clock, ago=_ago
)
_environment.globals.update(link=_link)
