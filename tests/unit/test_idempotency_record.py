"""Fingerprints, and what is refused before a database is asked."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from hashlib import sha256
from typing import Any

import pytest

from leasehold._fingerprint import fingerprint_of
from leasehold.errors import ConfigurationError, KeyReused
from leasehold.sql import IdempotencyKeys, idempotency_schema
from leasehold.sql.idempotency.record import Claim, Kept, Rules, in_flight, make_claim, replayable, write_result


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


def test_what_keys_do_unless_told_otherwise() -> None:
    plain = IdempotencyKeys("charges")
    assert plain._rules == Rules(keep=86_400.0, wait=None, retry_after=1.0, schema=None)
    assert (plain._max_result, plain._sweep_every) == (65_536, 100)
    chosen = IdempotencyKeys("charges", keep="1h", wait="2s", retry_after=3, schema="s")
    assert chosen._rules == Rules(keep=3600.0, wait=2.0, retry_after=3.0, schema="s")
    assert '"s".leasehold_idempotency' in chosen.schema()
    assert [IdempotencyKeys("a", sweep_every=3)._sweeps_now() for _ in range(2)] == [True, True]
    every_third, never = IdempotencyKeys("a", sweep_every=3), IdempotencyKeys("a", sweep_every=0)
    assert [every_third._sweeps_now() for _ in range(7)] == [True, False, False, True, False, False, True]
    assert not any(never._sweeps_now() for _ in range(3))


def test_a_result_may_have_so_many_bytes_and_no_more() -> None:
    assert write_result("xx", 4) == '"xx"'
    assert write_result({"ü": (1, None)}, 99) == '{"\\u00fc":[1,null]}'
    with pytest.raises(ConfigurationError, match="the result has 5 bytes as JSON, and max_result is 4"):
        write_result("xxx", 4)
    for result in (object(), float("inf"), {(): 1}):
        with pytest.raises(ConfigurationError, match="a result is kept as JSON"):
            write_result(result, 99)


@pytest.mark.parametrize(
    ("asked", "kept", "refused"),
    [("a", "a", False), ("a", "b", True), (None, "b", False), ("a", None, False), (None, None, False)],
)
def test_a_key_is_replayed_unless_both_payloads_are_known_and_differ(
    asked: str | None, kept: str | None, refused: bool
) -> None:
    claim, record = Claim("charges", "", "k", asked), Kept(kept, "1")
    if not refused:
        assert replayable(claim, record) is record
        return
    with pytest.raises(KeyReused, match="'k' of 'charges' was used before with another payload") as caught:
        replayable(claim, record)
    assert (caught.value.name, caught.value.key) == ("charges", "k")


@pytest.mark.parametrize("nothing", ["", b"", {}, [], 0, False], ids=repr)
def test_only_none_is_no_payload(nothing: object) -> None:
    empty, known = (make_claim("charges", None, "k", payload) for payload in (nothing, "something"))
    assert make_claim("charges", None, "k", None).fingerprint is None
    assert empty.fingerprint is not None
    for one, other in ((empty, known), (known, empty)):
        with pytest.raises(KeyReused):
            replayable(one, Kept(other.fingerprint, "1"))


def test_in_flight_says_when_to_come_again() -> None:
    error = in_flight(
        Claim("charges", "", "k", None), IdempotencyKeys("c", retry_after=2.5)._rules, "somebody is at it"
    )
    assert str(error).startswith(
        "the idempotency key 'k' of 'charges' cannot be used now: somebody is at it. Roll back"
    )
    assert str(error).endswith("try again after 2.5 s")
    assert (error.name, error.key, error.retry_after) == ("charges", "k", 2.5)


def test_longest_texts_pass_and_nobody_is_a_principal_of_its_own() -> None:
    assert make_claim("n", None, "é" * 256, "x").place() == {"name": "n", "principal": "", "key": "é" * 256}
    assert make_claim("n", "ann", "k", None) == Claim("n", "ann", "k", None)


@pytest.mark.parametrize("limit", [None, 2])
def test_with_a_new_key_so_many_records_that_are_over_are_removed(limit: int | None) -> None:
    keys = IdempotencyKeys("charges", sweep_every=limit or 3)
    with closing(sqlite3.connect(":memory:")) as file:
        quiet = IdempotencyKeys("charges", sweep_every=0)
        for number in range(9):
            with quiet.attempt(file, f"old {number}", fingerprint=None) as attempt:
                attempt.complete()
        file.execute("UPDATE leasehold_idempotency SET expires_at = 10 - CAST(substr(key, 5) AS INTEGER)")
        with keys.attempt(file, "new", fingerprint=None) as attempt:
            attempt.complete()
        left = [key for (key,) in file.execute("SELECT key FROM leasehold_idempotency WHERE key <> 'new' ORDER BY key")]
        assert left == [f"old {number}" for number in range(5 if limit else 3)], "the oldest go first"
