"""Entity tags as the standard writes them, and what a request with one may do."""

from __future__ import annotations

import pytest

from leasehold.errors import (
    ConfigurationError,
    PreconditionError,
    PreconditionFailed,
    PreconditionMalformed,
    PreconditionRequired,
)
from leasehold.sql import ETag, ETags, etag_of, not_modified, parse_etags, require_match, require_none_match


def test_version_as_a_header() -> None:
    assert etag_of(7) == '"7"'
    assert etag_of("a-b", weak=True) == 'W/"a-b"'
    for version in (True, 1.5, None, "", "a b", 'a"b', "a\n"):
        with pytest.raises(ConfigurationError):
            etag_of(version)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("header", "tags"),
    [
        ('"7"', [ETag("7")]),
        ('W/"7"', [ETag("7", weak=True)]),
        (' "a,b" ,W/"c",, "" ', [ETag("a,b"), ETag("c", weak=True), ETag("")]),
        ('"\xe4"', [ETag("\xe4")]),
    ],
)
def test_lists_of_tags(header: str, tags: list[ETag]) -> None:
    assert parse_etags(header) == ETags(tuple(tags))
    assert parse_etags(", ".join(map(str, tags))) == ETags(tuple(tags))


def test_star_is_whatever_there_is() -> None:
    assert parse_etags(" * ") == ETags(anything=True)


@pytest.mark.parametrize("header", ["", ",", "7", '"7', '7"', '"7" "8"', '"7", *', 'w/"7"', "W/7", '"a b"', '"\x7f"'])
def test_what_is_no_list_is_refused_and_never_ignored(header: str) -> None:
    for check in (parse_etags, lambda text: require_match(7, text), lambda text: require_none_match(7, text)):
        with pytest.raises(PreconditionMalformed) as caught:
            check(header)
        assert caught.value.status == 400
    assert not not_modified(7, header)


@pytest.mark.parametrize(
    ("version", "header", "status"),
    [
        (7, '"7"', None),
        (7, '"6", "7"', None),
        (7, "*", None),
        ("a", '"a"', None),
        (7, '"6"', 412),
        (7, 'W/"7"', 412),
        (7, '"07"', 412),
        (None, "*", 412),
        (None, '"7"', 412),
        (7, None, 428),
        (None, None, 428),
    ],
)
def test_who_may_change_a_resource(version: int | str | None, header: str | None, status: int | None) -> None:
    if status is None:
        require_match(version, header)
        return
    with pytest.raises(PreconditionError) as caught:
        require_match(version, header)
    assert caught.value.status == status
    assert isinstance(caught.value, PreconditionFailed if status == 412 else PreconditionRequired)
    assert caught.value.etag == (None if version is None else etag_of(version))


def test_header_may_be_left_out_and_weak_tags_taken_where_that_was_said() -> None:
    require_match(7, None, required=False)
    require_match(7, 'W/"7"', weak_too=True)
    with pytest.raises(PreconditionFailed, match="weak"):
        require_match(7, 'W/"7"')


def test_creating_only_what_is_not_there() -> None:
    require_none_match(None, "*")
    require_none_match(7, None)
    require_none_match(7, '"6"')
    for header in ("*", 'W/"7"', '"7"'):
        with pytest.raises(PreconditionFailed) as caught:
            require_none_match(7, header)
        assert caught.value.etag == '"7"'


def test_reading_what_the_caller_has_already() -> None:
    assert not_modified(7, 'W/"7", "8"')
    assert not_modified(7, "*")
    assert not not_modified(7, '"8"')
    assert not not_modified(7, None)
    assert not not_modified(None, "*")


def test_long_headers_are_read_in_a_moment() -> None:
    """Each of these would take for ever if it were tried in every way."""
    for header in ('"a"' + "," * 100_000 + "x", '"' * 100_000, '"a",' * 50_000 + "x", " ,\t" * 50_000):
        with pytest.raises(PreconditionMalformed):
            parse_etags(header)


def test_the_first_version_of_all_is_a_version() -> None:
    assert not_modified(0, '"0"')
    assert not not_modified(0, '"1"')
    assert not not_modified(None, "*")
    with pytest.raises(PreconditionFailed) as refused:
        require_none_match(0, "*")
    assert refused.value.etag == '"0"'
    require_none_match(None, "*")
    require_match(0, '"0"')
    for version, present in ((0, '"0"'), (None, None)):
        with pytest.raises(PreconditionRequired) as required:
            require_match(version, None)
        assert required.value.etag == present
