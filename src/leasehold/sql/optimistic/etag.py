"""ETag, If-Match and If-None-Match over the version of a row, for any web framework (RFC 9110, section 13).

The version travels to the client as an entity tag and comes back with the change. What is decided here is a first look,
that saves work: between it and the write another may come, so hand the same version to `cas_update`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from leasehold.errors import ConfigurationError, PreconditionFailed, PreconditionMalformed, PreconditionRequired

__all__ = ["ETag", "ETags", "etag_of", "not_modified", "parse_etags", "require_match", "require_none_match"]

_INSIDE = r"[\x21\x23-\x7e\x80-\xff]*"
_TAG = re.compile(rf'(?P<weak>W/)?"(?P<value>{_INSIDE})"')
_ONE = rf'(?:W/)?"{_INSIDE}"'
_LIST = re.compile(rf"[ \t,]*{_ONE}(?:[ \t]*,[ \t,]*{_ONE})*[ \t,]*")  # empty places between commas are allowed
_VALUE = re.compile(_INSIDE)


@dataclass(frozen=True, slots=True)
class ETag:
    """One entity tag; a weak one says that the content means the same, and not that it is the same."""

    value: str
    weak: bool = False

    def __str__(self) -> str:
        return f'{"W/" if self.weak else ""}"{self.value}"'


@dataclass(frozen=True, slots=True)
class ETags:
    """What a header lists: some tags, or `*` for whatever there is."""

    tags: tuple[ETag, ...] = ()
    anything: bool = False

    def have(self, version: int | str, *, weak_too: bool) -> bool:
        """Whether this version is meant; `weak_too`: by the weak comparison, which takes weak tags as well."""
        if self.anything:
            return True
        value = _value(version)
        return any(tag.value == value and (weak_too or not tag.weak) for tag in self.tags)


def etag_of(version: int | str, *, weak: bool = False) -> str:
    """The header ETag for a version: `"7"`. Weak (`W/"7"`) for a client that shall only compare, for If-None-Match."""
    return str(ETag(_value(version), weak))


def parse_etags(header: str) -> ETags:
    """Read If-Match or If-None-Match; several lines of it are joined with commas. `PreconditionMalformed` (400)."""
    text = header.strip(" \t")
    if text == "*":
        return ETags(anything=True)
    if not _LIST.fullmatch(text):
        raise PreconditionMalformed(
            f'{header[:100]!r} is no list of entity tags such as "7", W/"7" (in double quotes), and not *: send back '
            "the ETag as it came"
        )
    return ETags(tuple(ETag(found["value"], found["weak"] is not None) for found in _TAG.finditer(text)))


def require_match(
    version: int | str | None, if_match: str | None, *, required: bool = True, weak_too: bool = False
) -> None:
    """Let a change of the resource pass only if its caller has seen this version; None: there is no such resource.

    `if_match` is the header, or None if the request has none: then `PreconditionRequired` (428), unless `required` is
    False. Raises `PreconditionFailed` (412) with the present `etag`, and `PreconditionMalformed` (400). Weak tags never
    match, as the standard has it; `weak_too` takes them, for a proxy that compresses and makes every tag weak.
    """
    if if_match is None:
        if not required:
            return
        raise PreconditionRequired(
            "this request must say which version it changes: read the resource, and send its ETag in If-Match",
            etag=_present(version),
        )
    wanted = parse_etags(if_match)
    if version is None:
        raise PreconditionFailed("there is no such resource, so no version of it matches")
    if not wanted.have(version, weak_too=weak_too):
        weak = ", and weak tags never match here" if wanted.have(version, weak_too=True) else ""
        raise PreconditionFailed(
            f"the resource has the version {etag_of(version)} by now, and not one of If-Match{weak}: read it again and "
            "apply the change to that",
            etag=etag_of(version),
        )


def require_none_match(version: int | str | None, if_none_match: str | None) -> None:
    """Let a request pass only if the resource is not one of those listed: `If-None-Match: *` creates, or does nothing.

    For changes; `not_modified` is for reads. Raises `PreconditionFailed` (412) and `PreconditionMalformed` (400).
    """
    if if_none_match is None:
        return
    listed = parse_etags(if_none_match)
    if version is not None and listed.have(version, weak_too=True):
        raise PreconditionFailed(
            f"the resource exists with the version {etag_of(version)}, and the request asked for none of those in "
            "If-None-Match",
            etag=etag_of(version),
        )


def not_modified(version: int | str | None, if_none_match: str | None) -> bool:
    """Whether to answer a read with 304: the caller has this version already. What cannot be read is ignored."""
    if version is None or if_none_match is None:
        return False
    try:
        return parse_etags(if_none_match).have(version, weak_too=True)
    except PreconditionMalformed:
        return False


def _present(version: int | str | None) -> str | None:
    return None if version is None else etag_of(version)


def _value(version: object) -> str:
    if isinstance(version, bool) or not isinstance(version, (int, str)):
        raise ConfigurationError(f"a version is a whole number or a text, not {version!r}")
    value = str(version)
    if not value or not _VALUE.fullmatch(value):
        raise ConfigurationError(
            f"a version in an ETag has no blanks, quotes or control characters, unlike {version!r}"
        )
    return value
