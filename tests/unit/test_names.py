from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leasehold._core.names import check_name, key_for, name_of

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
