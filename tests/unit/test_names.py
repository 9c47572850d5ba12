from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold import ConfigurationError
from leasehold._core.names import check_fact, check_name, check_namespace, key_for, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

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
