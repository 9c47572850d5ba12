"""The stored form of a holder."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.kit.holder import holder_from_json, holder_to_json
from leasehold.values import Holder

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.builds(Holder, WORDS, st.integers(0, 2**31), st.none() | WORDS, st.none() | WORDS))
def test_what_was_written_is_read(holder: Holder) -> None:
    text = holder_to_json(holder)
    assert holder_from_json(text) == holder == holder_from_json(text.encode("ascii"))


def test_fields_of_a_newer_version_are_ignored() -> None:
    text = json.dumps({"v": 2, "host": "a", "pid": 1, "zone": "b"})
    assert holder_from_json(text) == Holder("a", 1)


@pytest.mark.parametrize("text", [b"", b"worker-1", b"\xff", b"[]", b"{}", b'{"host":"a","pid":"b"}', b"null", b"7"])
def test_what_another_program_wrote_is_no_error(text: bytes) -> None:
    assert holder_from_json(text) is None


def test_facts_that_are_not_known_take_no_room() -> None:
    assert holder_to_json(Holder("a", 1)) == '{"v":1,"host":"a","pid":1}'
