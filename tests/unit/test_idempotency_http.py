"""The header of an idempotency key, the stored form of a response, and the key of a caller."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from leasehold import ConfigurationError, RetryKey
from leasehold._patterns.idempotency_http import (
    Answer,
    header_text,
    is_kept,
    key_of_request,
    parse_key,
    problem,
    restored,
    stored,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ('"8e03978e"', "8e03978e"),
        (' "with space" ', "with space"),
        (r'"a \"quoted\" \\ word"', 'a "quoted" \\ word'),
        ("x" * 255, "x" * 255),
        ("x" * 256, None),
        ("", None),
        ('""', None),
        ('"', None),
        ('"open', None),
        ('a"b', None),
        ("two words", None),
        ("one, two", None),
        ('"one", "two"', None),
        ('"one";parameter', None),
        ("caf\xe9", None),
        ('"caf\xe9"', None),
        ("tab\tbed", None),
        ('"bad \\escape"', None),
    ],
)
def test_the_header_is_a_structured_string_or_a_bare_word(text: str, key: str | None) -> None:
    assert parse_key(text) == key


@pytest.mark.parametrize("key", ["abc", "with space", 'a "quoted" \\ word', "x;y", "~" * 255])
@pytest.mark.parametrize("quoted", [True, False])
def test_a_key_survives_its_header(key: str, quoted: bool) -> None:
    assert parse_key(header_text(key, quoted=quoted)) == key


def test_a_response_is_restored_byte_by_byte_with_the_chosen_headers_only() -> None:
    body = bytes(range(256))
    answer = Answer(201, ((b"Location", b"/1"), (b"set-cookie", b"session=secret"), (b"x-trace", b"1")), body)
    again = restored(stored(answer, frozenset({b"location"})))
    assert again.status == 201
    assert again.body == body
    assert again.headers == ((b"Location", b"/1"), (b"content-length", b"256"), (b"idempotent-replayed", b"true"))


@pytest.mark.parametrize(("status", "has_length"), [(200, True), (204, False), (303, True), (304, False)])
def test_a_response_without_content_has_no_length(status: int, has_length: bool) -> None:
    again = restored(stored(Answer(status, (), b""), frozenset()))
    length = ((b"content-length", b"0"),) if has_length else ()
    assert again == Answer(status, (*length, (b"idempotent-replayed", b"true")), b"")


def test_a_refusal_has_its_own_title_and_headers_after_the_usual_ones() -> None:
    answer = problem(409, "Too large.", title="Not kept", retry_after=61.5, headers=[(b"x-a", b"1"), (b"x-b", b"2")])
    assert json.loads(answer.body) == {"title": "Not kept", "status": 409, "detail": "Too large."}
    assert answer.headers == (
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(answer.body)).encode()),
        (b"retry-after", b"62"),
        (b"x-a", b"1"),
        (b"x-b", b"2"),
    )


def test_the_key_of_a_request_counts_more_than_one_among_its_other_headers() -> None:
    others = {"Idempotency-Key": "of another request", "Accept": "text/plain"}
    assert RetryKey("k").headers(others) == {"Idempotency-Key": "k", "Accept": "text/plain"}
    assert others["Idempotency-Key"] == "of another request"


def test_what_the_store_knows_a_request_by_names_neither_principal_nor_key() -> None:
    name = key_of_request("token of alice", "POST", "/payments", "k-1")
    assert "alice" not in name
    assert "k-1" not in name
    others = [("bob", "POST", "/payments", "k-1"), ("token of alice", "PATCH", "/payments", "k-1")]
    assert len({name, *(key_of_request(*other) for other in others)}) == 3
    assert key_of_request("a", "b", "c:d", "e") != key_of_request("a", "b", "c", "d:e")


def test_answers_of_the_moment_are_not_kept() -> None:
    assert all(map(is_kept, (200, 201, 204, 303, 400, 402, 404, 410)))
    assert not any(map(is_kept, (401, 403, 405, 408, 409, 412, 413, 415, 422, 423, 425, 428, 429, 500, 502, 503)))


def test_retry_after_is_a_whole_number_of_seconds() -> None:
    headers = dict(problem(409, "…", retry_after=1.2).headers)
    assert headers[b"retry-after"] == b"2"
    assert dict(problem(409, "…", retry_after=0.0).headers)[b"retry-after"] == b"1"
    assert b"retry-after" not in dict(problem(422, "…").headers)


def test_a_retry_key_is_the_same_for_every_try_and_another_for_every_request() -> None:
    key, other = RetryKey(), RetryKey()
    assert key.headers() == key.headers({}) == {"Idempotency-Key": str(key)}
    assert key.headers({"Authorization": "x"})["Authorization"] == "x"
    assert key.value != other.value
    assert RetryKey("k", quoted=True).headers() == {"Idempotency-Key": '"k"'}
    key.done()


def test_a_retry_key_in_a_file_survives_its_process(tmp_path: Path) -> None:
    place = tmp_path / "order-42.key"
    first = RetryKey.kept_in(place)
    assert RetryKey.kept_in(place).value == first.value
    assert list(tmp_path.iterdir()) == [place]
    assert RetryKey.kept_in(place, header="X-Key", quoted=True).headers() == {"X-Key": f'"{first}"'}
    first.done()
    first.done()
    assert RetryKey.kept_in(place).value != first.value


def test_a_file_with_something_else_is_not_taken_for_a_key(tmp_path: Path) -> None:
    place = tmp_path / "notes"
    place.write_text("not a key at all\nsecond line")
    with pytest.raises(ConfigurationError, match="another file"):
        RetryKey.kept_in(place)
    assert place.exists()


@pytest.mark.parametrize("value", ["", "caf\xe9", "x" * 256, "line\nbreak"])
def test_a_key_that_no_header_can_carry_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match="printable ASCII"):
        RetryKey(value)
