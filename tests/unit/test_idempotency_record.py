"""Fingerprints, and what is refused before a database is asked."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from leasehold._fingerprint import fingerprint_of
from leasehold.errors import ConfigurationError
from leasehold.sql import IdempotencyKeys, idempotency_schema
from leasehold.sql.idempotency.record import make_claim


def test_fingerprint_of_bytes_and_text_is_their_digest() -> None:
    digest = sha256(b"body").hexdigest()
    assert (
        fingerprint_of(b"body") == fingerprint_of(bytearray(b"body")) == fingerprint_of(memoryview(b"body")) == digest
    )
    assert fingerprint_of("body") == digest
    assert len(fingerprint_of("\ud800")) == 64


def test_fingerprint_of_a_value_does_not_depend_on_the_order_of_its_keys() -> None:
    assert fingerprint_of({"a": 1, "b": [{"c": 2, "d": 3}]}) == fingerprint_of({"b": [{"d": 3, "c": 2}], "a": 1})
    values: list[Any] = [{}, [], {"a": 1}, {"a": 2}, {"a": "1"}, [1, 2], [2, 1], [12], 0, 1.5, True, "", "a"]
    assert len({fingerprint_of(value) for value in values}) == len(values)


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), {"a": float("inf")}, {1: 2, "1": 3}])
def test_value_that_json_cannot_write_has_no_fingerprint(value: object) -> None:
    with pytest.raises(ConfigurationError, match="bytes, text or what JSON can write"):
        fingerprint_of(value)


def test_claims_that_read_alike_when_joined_have_locks_of_their_own() -> None:
    texts = [("a", "b", "c"), ("ab", "c", "c"), ("a", "bc", "c"), ("a", None, "bc"), ("a", "b", "cc"), ("b", "a", "c")]
    numbers = {make_claim(name, principal, key, None).number() for name, principal, key in texts}
    assert len(numbers) == len(texts)
    assert make_claim("a", "b", "c", 1).number() == make_claim("a", "b", "c", 2).number()
    assert all(-(2**63) <= number < 2**63 for number in numbers)


@pytest.mark.parametrize("key", ["", "x" * 513, "é" * 257, "a\0b", "\ud800", None, 7, b"key"])
def test_bad_keys_and_principals_are_refused_before_anything_is_sent(key: Any) -> None:
    keys = IdempotencyKeys("charges")
    for face in (keys.attempt, keys.attempt_async):
        with pytest.raises(ConfigurationError, match="idempotency key"):
            face(object(), key, fingerprint=None)
        if key is not None:
            with pytest.raises(ConfigurationError, match="principal"):
                face(object(), "k", fingerprint=None, principal=key)


@pytest.mark.parametrize(
    "words",
    [
        {"keep": 0}, {"keep": -1}, {"keep": "soon"}, {"wait": -1}, {"retry_after": float("nan")}, {"max_result": 0},
        {"max_result": True}, {"max_result": 1.5}, {"sweep_every": -1}, {"schema": ""},
    ],
)  # fmt: skip
def test_bad_options_are_refused(words: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(words))):
        IdempotencyKeys("charges", **words)


def test_bad_names_and_dialects_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="name of idempotency keys"):
        IdempotencyKeys("")
    with pytest.raises(ConfigurationError, match="postgresql, sqlite"):
        idempotency_schema("oracle")
    with pytest.raises(ConfigurationError, match="limit"):
        IdempotencyKeys("charges").sweep(object(), limit=0)
