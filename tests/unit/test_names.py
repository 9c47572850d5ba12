from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold import ConfigurationError
from leasehold._core.names import check_fact, check_name, check_namespace, key_for, name_of, namespace_of

if TYPE_CHECKING:
    from collections.abc import Callable

STRAY = "a lone surrogate, or a stray byte of a command line, which UTF-8 cannot store"  # as Python reads such a byte
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=64)


@given(TEXT, TEXT, TEXT, TEXT)
def test_different_pairs_of_namespace_and_name_never_share_a_key(
    namespace: str, name: str, other_namespace: str, other_name: str
) -> None:
    same = (namespace, name) == (other_namespace, other_name)
    assert (key_for(namespace, name) == key_for(other_namespace, other_name)) is same


@given(TEXT, TEXT)
def test_the_name_comes_back_out_of_the_key(namespace: str, name: str) -> None:
    assert name_of(key_for(namespace, name)) == name


@given(TEXT, TEXT)
def test_the_namespace_comes_back_out_of_the_key(namespace: str, name: str) -> None:
    assert namespace_of(key_for(namespace, name)) == namespace


@pytest.mark.parametrize(
    ("namespace", "name", "key"),
    [
        ("leasehold", "payment:42", "leasehold:payment:42"),
        ("a:b", "c", "a%3Ab:c"),
        ("a%3Ab", "c%", "a%253Ab:c%"),
    ],
)
def test_how_a_namespace_and_a_name_are_joined(namespace: str, name: str, key: str) -> None:
    """What is stored already must be found by every later version."""
    assert key_for(namespace, name) == key
    assert (namespace_of(key), name_of(key)) == (namespace, name)


@pytest.mark.parametrize(
    ("check", "value", "complaint"),
    [
        (check_name, None, "a lock name must be text, not NoneType"),
        (check_name, "", "a lock name must not be empty"),
        (check_name, "\ud800", f"a lock name contains {STRAY}"),
        (check_name, "é" * 300, "a lock name has 600 bytes"),
        (check_namespace, 7, "a namespace must be text, not int"),
        (check_namespace, "", "a namespace must not be empty"),
        (check_namespace, "\ud800", f"a namespace contains {STRAY}"),
        (lambda value: check_fact(value, "label"), 7, "label must be text, not int"),
        (lambda value: check_fact(value, "reason"), "\udcff", f"reason contains {STRAY}"),
        (lambda value: check_fact(value, "group"), "x" * 300, "group has 300 characters; at most 256"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_what_it_is(
    check: Callable[[object], object], value: object, complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        check(value)


def test_a_fact_may_be_left_out_or_empty() -> None:
    assert check_fact(None, "label") is None
    assert check_fact("", "label") == ""


@given(TEXT)
def test_a_name_is_taken_as_it_is(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(("size", "is_allowed"), [(256, True), (257, False)])
def test_how_long_a_fact_may_be(size: int, is_allowed: bool) -> None:
    if is_allowed:
        assert check_fact("x" * size, "label") == "x" * size
    else:
        with pytest.raises(ConfigurationError):
            check_fact("x" * size, "label")


@pytest.mark.parametrize(("size", "is_allowed"), [(1, True), (512, True), (513, False), (0, False)])
@pytest.mark.parametrize("check", [check_name, check_namespace])
def test_how_long_a_name_may_be(check: Callable[[object], str], size: int, is_allowed: bool) -> None:
    for letter, width in (("x", 1), ("é", 2)):
        text = letter * (size // width) + "x" * (size % width)
        if is_allowed:
            assert check(text) == text
        else:
            with pytest.raises(ConfigurationError):
                check(text)
