"""Known bugs of idempotency keys: the first is hunted by the simulation, the others by named tests."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["IDEMPOTENCY_MUTANTS"]

_STATES = "_patterns/idempotency_states.py"
_ATTEMPT = "_patterns/keyed_attempt.py"
_HTTP = "_patterns/idempotency_http.py"
_ASGI = "_patterns/idempotency_asgi.py"
_FACES = "tests/faces/test_idempotency.py::"
_UNIT = "tests/unit/test_idempotency_"
_SUITE = "tests/patterns/test_patterns_memory.py::test_patterns"
_SERVED = "tests/patterns/idempotency/test_asgi.py::"
_OPTIONS = "tests/faces/test_pattern_options.py::"

IDEMPOTENCY_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "idem-completed-runs-again",
        "an attempt that waited for the lock runs although the key is completed",
        _STATES,
        "    if entry.phase is Phase.COMPLETED:\n        return Step.REPLAY\n",
        "    if entry.phase is Phase.COMPLETED and not held:\n        return Step.REPLAY\n",
    ),
    Mutant(
        "idem-late-result-accepted",
        "a late finisher is told that its result is stored",
        _ATTEMPT,
        "            if not await opened.runtime.shielded(lambda: keys._write(opened, lease, entry, patience)):\n",
        "            if await opened.runtime.shielded(lambda: keys._write(opened, lease, entry, patience)) is None:\n",
        (f"{_SUITE}[idempotency:a_late_finisher_cannot_overwrite_the_result-ThreadDriver]",),
    ),
    Mutant(
        "idem-doubt-dropped",
        "a completion of unknown outcome is dropped, so the work runs again",
        _ATTEMPT,
        "self._entry is not None or self._in_doubt or self._settled",
        "self._entry is not None or self._settled",
        (f"{_FACES}test_a_completion_of_unknown_outcome_leaves_the_key_in_doubt",),
    ),
    Mutant(
        "idem-interruption-dropped",
        "an attempt that was interrupted in its work counts as one that did nothing",
        _ATTEMPT,
        "or self._settled or interrupted\n",
        "or self._settled\n",
        (f"{_FACES}test_an_interrupted_attempt_is_in_doubt_and_not_dropped",),
    ),
    Mutant(
        "idem-left-in-progress",
        "an attempt that could not begin leaves its key in progress",
        _ATTEMPT,
        "            if began and not self._abandoned:  #",
        "            if not began and not self._abandoned:  #",
        (f"{_FACES}test_an_attempt_that_could_not_begin_leaves_neither_lock_nor_record",),
    ),
    Mutant(
        "idem-payload-not-compared",
        "X13: a key that is used with another payload replays the first result",
        _STATES,
        "fingerprint != entry.fingerprint:",
        "fingerprint is entry.fingerprint:",
        (f"{_SERVED}test_another_payload_is_answered_with_422",),
    ),
    Mutant(
        "idem-guessable-payload",
        "equal payloads of two keys can be seen to be equal in the store",
        _STATES,
        "for part in (key.encode(), content):",
        "for part in (content,):",
        (f"{_UNIT}states.py::test_a_fingerprint_tells_nothing_about_the_payload",),
    ),
    Mutant(
        "idem-principal-ignored",
        "X13: the key of one caller replays another caller's response",
        _HTTP,
        "json.dumps([principal, method, route, key])",
        "json.dumps([method, route, key])",
        (f"{_SERVED}test_keys_of_other_callers_routes_and_methods_are_other_keys",),
    ),
    Mutant(
        "idem-cookie-replayed",
        "a replay sets the cookie of the first response",
        _HTTP,
        "            if name.lower() in keep_headers\n",
        "            if name.lower() in keep_headers or keep_headers\n",
        (f"{_UNIT}http.py::test_a_response_is_restored_byte_by_byte_with_the_chosen_headers_only",),
    ),
    Mutant(
        "idem-failure-kept",
        "a 5xx is replayed for a day",
        _HTTP,
        "status < SERVER_ERROR and status not in NOT_KEPT",
        "status not in NOT_KEPT",
        (f"{_SERVED}test_an_exception_and_a_5xx_are_dropped",),
    ),
    Mutant(
        "idem-large-runs-again",
        "a request whose response is too large to keep is carried out again",
        _ASGI,
        "        if not self._middleware._keep_status(status):\n",
        "        if not self._middleware._keep_status(status) or self.is_sent:\n",
        (f"{_SERVED}test_a_large_response_is_passed_through_and_never_carried_out_twice",),
    ),
    Mutant(
        "idem-caller-gone",
        "a caller that goes away ends the work, and its retry does it again",
        _ASGI,
        "        await self._runtime.wait(self._passed_through, None)\n",
        "",
        (f"{_SERVED}test_a_caller_that_goes_away_does_not_end_the_work",),
    ),
    Mutant(
        "idem-vanished-is-forgotten",
        "an attempt that vanished is remembered for the ttl of its lock only: 'refuse' lets its work run twice",
        "_patterns/idempotency.py",
        "Record(key, encode(entry), lease.fence, self._keep), False",
        "Record(key, encode(entry), lease.fence, lease.ttl), False",
        (f"{_OPTIONS}test_a_key_is_remembered_for_as_long_as_was_said",),
    ),
    Mutant(
        "idem-hesitation-leaves-doubt",
        "a store that hesitates once while a result is written leaves the key in doubt",
        _ATTEMPT,
        "patience = max(lease.remaining(), opened.connect_timeout)",
        "patience = 0.0",
        (f"{_OPTIONS}test_a_store_that_hesitates_once_at_the_end_of_an_attempt_gets_it_recorded",),
    ),
)
