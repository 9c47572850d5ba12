"""The states of an idempotency key, and what is stored of one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leasehold._patterns.idempotency_states import (
    Entry,
    OnExpired,
    Phase,
    Step,
    decode,
    encode,
    fingerprint_of,
    next_step,
    retry_after,
)
from leasehold.errors import ConfigurationError

RUNNING = Entry(Phase.IN_PROGRESS, "a", 100.0)
DONE = Entry(Phase.COMPLETED, "a", 100.0, {"paid": True})


@pytest.mark.parametrize(
    ("entry", "fingerprint", "held", "on_expired", "step"),
    [
        (None, "a", False, "run", Step.TAKE),
        (None, "a", True, "run", Step.RUN),
        (RUNNING, "a", False, "run", Step.TAKE),
        (RUNNING, "a", False, "refuse", Step.TAKE),
        (RUNNING, "a", True, "run", Step.RUN_AGAIN),
        (RUNNING, "a", True, "refuse", Step.REFUSE),
        (RUNNING, "b", False, "run", Step.REUSED),
        (RUNNING, "b", True, "run", Step.REUSED),
        (RUNNING, None, True, "run", Step.RUN_AGAIN),
        (DONE, "a", False, "refuse", Step.REPLAY),
        (DONE, "a", True, "refuse", Step.REPLAY),
        (DONE, None, True, "run", Step.REPLAY),
        (DONE, "b", False, "run", Step.REUSED),
        (Entry(Phase.COMPLETED, None, 100.0), "b", False, "run", Step.REPLAY),
    ],
)
def test_what_an_attempt_does_next(
    entry: Entry | None, fingerprint: str | None, held: bool, on_expired: OnExpired, step: Step
) -> None:
    assert next_step(entry, fingerprint, on_expired, held=held) is step


def test_a_completed_key_never_runs_whoever_reads_it() -> None:
    for held in (True, False):
        for on_expired in ("run", "refuse"):
            for fingerprint in ("a", "b", None):
                step = next_step(DONE, fingerprint, on_expired, held=held)
                assert step in (Step.REPLAY, Step.REUSED)


@pytest.mark.parametrize("entry", [RUNNING, DONE, Entry(Phase.COMPLETED, None, 1.5, None, kept=False)])
def test_an_entry_is_read_as_it_was_written(entry: Entry) -> None:
    assert decode(encode(entry)) == entry


def test_a_dropped_record_reads_like_none() -> None:
    assert decode(encode(Entry(Phase.DROPPED, None, 0.0))) is None
    assert decode(None) is None


def test_retry_after_grows_with_the_time_that_the_attempt_has_taken() -> None:
    assert retry_after(None, 1000.0, 30.0) == 1.0
    assert retry_after(RUNNING, 100.2, 30.0) == 1.0
    assert retry_after(RUNNING, 107.0, 30.0) == 7.0
    assert retry_after(RUNNING, 900.0, 30.0) == 30.0
    assert retry_after(RUNNING, 90.0, 30.0) == 1.0  # the store's clock was set back


def test_a_fingerprint_is_the_same_for_the_same_payload_only() -> None:
    assert fingerprint_of("k", {"a": 1, "b": [1.5, None]}) == fingerprint_of("k", {"b": [1.5, None], "a": 1})
    assert fingerprint_of("k", "text") == fingerprint_of("k", b"text")
    assert fingerprint_of("k", None) is None
    payloads: list[Any] = [{"a": 1}, {"a": 2}, {"a": "1"}, [], {}, "", b"{}", 0, False, "{}"]
    hashes = [fingerprint_of("k", payload) for payload in payloads]
    assert len(set(hashes)) == len(payloads) - 1  # the text and the bytes "{}" are one payload


def test_a_key_and_a_payload_that_read_the_same_when_joined_have_fingerprints_of_their_own() -> None:
    pairs: list[tuple[str, Any]] = [("k", "ey"), ("ke", "y"), ("key", ""), ("", "key"), ("k", b"EY")]
    assert len({fingerprint_of(key, payload) for key, payload in pairs}) == len(pairs)


def test_a_fingerprint_tells_nothing_about_the_payload() -> None:
    card = {"card": "4242424242424242"}
    found = fingerprint_of("k", card)
    assert found is not None
    assert len(found) == 64
    assert found != fingerprint_of("another key", card)
    assert b"4242" not in encode(Entry(Phase.IN_PROGRESS, found, 0.0))


@pytest.mark.parametrize("payload", [object(), {1, 2}, float("nan"), {"a": object()}])
def test_a_payload_without_a_canonical_form_is_refused(payload: object) -> None:
    with pytest.raises(ConfigurationError, match="bytes, text or a JSON value"):
        fingerprint_of("k", payload)


def test_the_stored_form_is_plain_json() -> None:
    assert json.loads(encode(DONE)) == {
        "phase": "completed",
        "fingerprint": "a",
        "since": 100.0,
        "kept": True,
        "result": {"paid": True},
    }
