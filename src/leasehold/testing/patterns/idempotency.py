"""Work that is asked for again gives the stored result: `client.idempotency`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.errors import AttemptExpired, InFlight, KeyReused, LeaseLost
from leasehold.testing.contract.expect import raises
from leasehold.testing.faults import Faults
from leasehold.testing.patterns.registry import pattern_case
from leasehold.values import Capability

if TYPE_CHECKING:
    from leasehold._patterns.idempotency import AsyncIdempotency
    from leasehold.testing.contract.lab import Lab

CHARGE = {"id": "ch_1", "amount": 4200, "tags": ["ü", None]}


def _keys(lab: Lab, faults: Faults | None = None, **options: object) -> AsyncIdempotency:
    return lab.client(faults).idempotency("charges", **options)  # type: ignore[arg-type]


async def _enter(keys: AsyncIdempotency, key: str = "k", fingerprint: object = None) -> None:
    async with keys.attempt(key, fingerprint):
        pass


async def _complete(keys: AsyncIdempotency, result: object = CHARGE, fingerprint: object = None) -> None:
    async with keys.attempt("k", fingerprint) as attempt:
        assert not attempt.replayed
        await attempt.complete(result)


async def _result(keys: AsyncIdempotency, fingerprint: object = None) -> object:
    async with keys.attempt("k", fingerprint) as attempt:
        assert attempt.replayed
        return attempt.result


@pattern_case(Capability.RECORD)
async def a_completed_result_is_replayed_to_every_other_client(lab: Lab) -> None:
    async with _keys(lab).attempt("k") as first:
        assert not first.replayed
        assert not first.abandoned
        assert first.fence
        assert await first.complete(CHARGE) == CHARGE
    for _ in range(2):
        assert await _result(_keys(lab)) == CHARGE


@pattern_case(Capability.RECORD)
async def a_key_in_flight_is_refused_and_says_when_to_ask_again(lab: Lab) -> None:
    async with _keys(lab).attempt("k") as first:
        refused = await raises(InFlight, _enter(_keys(lab)))
        assert isinstance(refused, InFlight)
        assert refused.retry_after >= 1.0
        await first.complete()
    assert await _result(_keys(lab)) is None


@pattern_case(Capability.RECORD)
async def another_payload_is_refused_in_flight_and_afterwards(lab: Lab) -> None:
    async with _keys(lab).attempt("k", {"amount": 1, "to": "a"}) as first:
        await raises(KeyReused, _enter(_keys(lab), "k", {"amount": 2, "to": "a"}))
        await raises(InFlight, _enter(_keys(lab), "k", {"to": "a", "amount": 1}))
        await first.complete("paid")
    await raises(KeyReused, _enter(_keys(lab), "k", {"amount": 2, "to": "a"}))
    assert await _result(_keys(lab), {"to": "a", "amount": 1}) == "paid"


@pattern_case(Capability.RECORD)
async def leaving_without_complete_drops_the_record(lab: Lab) -> None:
    await _enter(_keys(lab), "k", "one payload")
    async with _keys(lab, on_expired="refuse").attempt("k", "another payload") as again:
        assert not again.replayed
        assert not again.abandoned
        await again.complete(2)
    assert await _result(_keys(lab)) == 2


@pattern_case(Capability.RECORD)
async def an_exception_drops_the_record_and_is_not_hidden(lab: Lab) -> None:
    async def fail() -> None:
        async with _keys(lab).attempt("k"):
            raise ZeroDivisionError

    await raises(ZeroDivisionError, fail())
    await _complete(_keys(lab, on_expired="refuse"))


@pattern_case(Capability.RECORD)
async def keys_of_two_scopes_do_not_meet(lab: Lab) -> None:
    client = lab.client()
    async with client.idempotency("a:b").attempt("c") as one, client.idempotency("a").attempt("b:c") as other:
        await one.complete(1)
        await other.complete(2)
    async with client.idempotency("a").attempt("b:c") as again:
        assert again.result == 2


@pattern_case(Capability.RECORD)
async def one_that_waits_gets_the_result_of_the_one_in_flight(lab: Lab) -> None:
    async with _keys(lab).attempt("k") as first:
        waiting = lab.spawn(_result(_keys(lab, wait=lab.ttl * 50)))
        await lab.waiting(first._name, 1)
        await first.complete("first")
    assert await lab.flowing(waiting.join()) == "first"


@pattern_case(Capability.RECORD)
async def an_attempt_that_vanished_is_run_again_or_refused(lab: Lab) -> None:
    await _keys(lab).attempt("k").__aenter__()  # what is forgotten is not renewed
    await lab.pass_time(lab.ttl * 2.5)
    await raises(AttemptExpired, _enter(_keys(lab, on_expired="refuse")))
    async with _keys(lab).attempt("k") as again:
        assert again.abandoned
        await again.complete("second")
    assert await _result(_keys(lab, on_expired="refuse")) == "second"


@pattern_case(Capability.RECORD)
async def a_late_finisher_cannot_overwrite_the_result(lab: Lab) -> None:
    faults = Faults()
    late = await _keys(lab, faults).attempt("k").__aenter__()
    assert late.lease is not None
    assert late._block is not None
    late.lease._unwatch(late._block)  # work that cannot be interrupted
    faults.cut()
    await lab.pass_time(lab.ttl * 2.5)
    await _complete(_keys(lab), "of the successor")
    faults.heal()
    await raises(LeaseLost, late.complete("too late"))
    await raises(LeaseLost, late.__aexit__(None, None, None))
    assert await _result(_keys(lab)) == "of the successor"


@pattern_case(Capability.RECORD)
async def a_result_whose_answer_was_lost_is_stored_once(lab: Lab) -> None:
    faults = Faults()
    async with _keys(lab, faults).attempt("k") as attempt:
        faults.drop_next_reply("write")
        await lab.flowing(attempt.complete("stored"))
    assert await _result(_keys(lab)) == "stored"


@pattern_case(Capability.RECORD)
async def a_result_as_large_as_allowed_is_kept(lab: Lab) -> None:
    result = "x" * (64 * 1024 - 2)  # and its quotes
    await _complete(_keys(lab), result)
    assert await _result(_keys(lab)) == result


@pattern_case(Capability.RECORD)
async def a_forgotten_key_runs_again(lab: Lab) -> None:
    keys = _keys(lab)
    assert not await keys.forget("k")
    await _complete(keys, 1)
    assert await _keys(lab).forget("k")
    await _complete(_keys(lab, on_expired="refuse"), 2)
    assert await _result(keys) == 2


@pattern_case(Capability.RECORD)
async def a_result_is_kept_as_long_as_it_was_asked_for(lab: Lab) -> None:
    await _complete(_keys(lab, keep=lab.ttl))
    await lab.pass_time(lab.ttl * 2.5)
    async with _keys(lab).attempt("k") as again:
        assert not again.replayed
        await again.complete("new")
    assert await _result(_keys(lab)) == "new"


@pattern_case(Capability.RECORD)
async def a_result_counts_after_a_loss_if_no_other_attempt_began(lab: Lab) -> None:
    faults = Faults()
    late = await _keys(lab, faults).attempt("k").__aenter__()
    assert late.lease is not None
    assert late._block is not None
    late.lease._unwatch(late._block)
    faults.cut()
    await lab.pass_time(lab.ttl * 2.5)
    faults.heal()
    assert late.lease.lost.is_set()
    await late.complete("still the only one")
    await late.__aexit__(None, None, None)
    assert await _result(_keys(lab)) == "still the only one"
