"""The wire format, written and read by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from leasehold._backends.etcd import rpc
from leasehold._backends.etcd.protobuf import block, fields, number, signed, unsigned, varint

WHOLE = some.integers(-(2**63), 2**63 - 1)


@given(WHOLE)
def test_a_number_is_read_as_it_was_written(value: int) -> None:
    assert signed(unsigned(varint(value))) == value


@given(some.integers(0, 2**64 - 1))
def test_a_number_without_a_sign_is_read_as_it_was_written(value: int) -> None:
    assert unsigned(varint(value)) == value


@given(
    some.lists(some.tuples(some.integers(1, 5000), some.one_of(some.integers(1, 2**63 - 1), some.binary(max_size=300))))
)
def test_fields_are_read_as_they_were_written(written: list[tuple[int, int | bytes]]) -> None:
    message = b"".join(
        number(field, value) if isinstance(value, int) else block(field, value) for field, value in written
    )
    assert fields(message) == written


@given(some.binary(max_size=60))
def test_nonsense_is_refused_and_never_read_beyond_its_end(message: bytes) -> None:
    try:
        found = fields(message)
    except ValueError:
        return
    assert sum(len(content) for _, content in found if isinstance(content, bytes)) <= len(message)


@pytest.mark.parametrize("message", [b"\x08", b"\x0a\x05abc", b"\x0b", b"\x80", b"\x09abc", b"\x0d\x00"])
def test_a_message_that_breaks_off_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"message|wire type"):
        fields(message)


def test_what_a_newer_server_adds_is_skipped() -> None:
    header = number(1, 7) + number(2, 9) + number(3, 41) + number(4, 3) + block(90, b"new")
    message = (
        block(1, header) + number(2, 1) + block(3, block(3, number(2, 1))) + number(77, 5) + b"\x99\x06" + b"8" * 8
    )
    answer = rpc.read_txn(message)
    assert (answer.succeeded, len(answer.results), answer.header.revision, answer.header.term) == (True, 1, 41, 3)


def test_a_missing_time_to_live_means_that_the_lease_is_gone() -> None:
    assert rpc.read_lease(block(1, b"") + number(2, 5)).ttl == 0


def test_a_message_of_a_watch_says_what_happened_to_it() -> None:
    header, kept = block(1, number(3, 12)), block(1, b"key") + number(3, 12)
    changed = rpc.read_watch(header + number(2, 4) + block(11, number(1, 1) + block(2, kept)))
    assert changed == rpc.WatchResponse(4, changed=True)
    assert rpc.read_watch(header + number(2, 4) + number(3, 1)) == rpc.WatchResponse(4, 12, created=True)
    assert rpc.read_watch(header + number(2, 4) + number(4, 1)) == rpc.WatchResponse(4, cancelled=True)


def test_the_password_is_sent_as_text_and_nothing_else() -> None:
    assert fields(rpc.authenticate("user", "pässword")) == [(1, b"user"), (2, "pässword".encode())]
