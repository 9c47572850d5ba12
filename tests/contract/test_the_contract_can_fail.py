"""A contract that passes a broken store is worth nothing: stores with one bug each must fail their case."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leasehold._backends.memory import MemoryStore
from leasehold.kit.records import LocalRecords
from leasehold.testing import contract
from leasehold.testing.contract import runner
from leasehold.testing.contract.registry import Case
from leasehold.values import Capability, Grant, Loss, LossReason, Reading, Record, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.spi import Backend, Place, Runtime, Signal
    from leasehold.values import Claim


class TwoOwners(MemoryStore):
    def try_acquire(self, claim: Claim) -> Grant | Refusal:
        return Grant(claim, 1, claim.ttl, None, False)


class ReleasesAnybodys(MemoryStore):
    def release(self, grant: Grant) -> bool:
        for rows in self._names.values():
            rows._held.clear()
        return True


class RevivesOnRenewal(MemoryStore):
    def renew(self, grants: Sequence[Grant]) -> list[Grant | Loss]:
        return [self.try_acquire(grant.claim) for grant in grants]  # type: ignore[misc]


class ForgetsTombstones(MemoryStore):
    def withdraw(self, claim: Claim, *, doubt: bool = True) -> None:
        super().withdraw(claim, doubt=doubt)
        for rows in self._names.values():
            rows._notes.clear()


class MarksEveryWithdrawal(MemoryStore):
    def withdraw(self, claim: Claim, *, doubt: bool = True) -> None:
        super().withdraw(claim)


class WithdrawsNothingWithoutDoubt(MemoryStore):
    def withdraw(self, claim: Claim, *, doubt: bool = True) -> None:
        if doubt:
            super().withdraw(claim)


class SaysNothingOfABreak(MemoryStore):
    def release(self, grant: Grant) -> bool | Loss:
        return super().release(grant) is True


class KeepsABrokenSlot(MemoryStore):
    def release(self, grant: Grant) -> bool | Loss:
        held = self._names[grant.claim.key]._held.get(grant.claim.owner)
        if held is not None and held.broken is not None:
            return Loss(LossReason.BROKEN, held.broken)
        return super().release(grant)


class OvertakesWaiters(MemoryStore):
    def join(self, claim: Claim, signal: Signal) -> Grant | Place | Refusal:
        answer = super().join(claim, signal)
        if not isinstance(answer, (Grant, Refusal)):
            for rows in self._names.values():
                waiting = list(rows._waiting.values())
                rows._waiting = {row.claim.owner: row for row in reversed(waiting)}
                for number, row in enumerate(rows._waiting.values(), 1):
                    row.number = number
        return answer


class OneFenceForAll(MemoryStore):
    def try_acquire(self, claim: Claim) -> Grant | Refusal:
        self._fence = 7
        return super().try_acquire(claim)


class ReadsWithoutRaisingTheFence(MemoryStore):
    def read(self, key: str, fence: int = 0) -> Reading:
        reading = super().read(key)
        return Reading(reading.record, max(fence, reading.fence), reading.time)


class WritesWhateverTheFence(MemoryStore):
    def write(self, record: Record) -> bool:
        return super().write(Record(record.key, record.value, 2**53 - 1, record.ttl))


class ForgetsTheFenceWithItsRecord(MemoryStore):
    def write(self, record: Record) -> bool:
        if self.read(record.key).record is None:
            self._records = LocalRecords()
        return super().write(record)


class LowersTheFence(MemoryStore):
    def read(self, key: str, fence: int = 0) -> Reading:
        if fence:
            self._records = LocalRecords()
        return super().read(key, fence)


class ClockStandsStill(MemoryStore):
    def read(self, key: str, fence: int = 0) -> Reading:
        reading = super().read(key, fence)
        return Reading(reading.record, reading.fence, 1_767_225_600.0)


def case_named(name: str) -> Case:
    return next(case for case in contract.CASES if case.name == name)


class BrokenHarness(contract.MemoryHarness):
    def __init__(self, kind: type[MemoryStore]) -> None:
        super().__init__()
        self._kind = kind

    def open_store(self) -> MemoryStore:
        if self._store is None:
            assert self.clock is not None
            self._store = self._kind(clock=self.clock.now, wall=self.clock.now)
        return self._store


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        (TwoOwners, "a_held_name_is_refused_and_the_refusal_names_the_holder"),
        (ReleasesAnybodys, "a_foreign_release_changes_nothing"),
        (ReleasesAnybodys, "a_late_release_does_not_free_the_next_holder"),
        (RevivesOnRenewal, "a_released_grant_is_not_revived_by_a_renewal"),
        (ForgetsTombstones, "a_request_that_arrives_after_its_withdrawal_is_refused"),
        (MarksEveryWithdrawal, "a_claim_withdrawn_without_doubt_leaves_nothing_and_may_be_asked_again"),
        (MarksEveryWithdrawal, "a_place_given_up_without_doubt_leaves_nothing_and_may_be_asked_for_again"),
        (MarksEveryWithdrawal, "waits_that_were_given_up_and_fully_answered_leave_nothing"),
        (WithdrawsNothingWithoutDoubt, "a_claim_withdrawn_without_doubt_leaves_nothing_and_may_be_asked_again"),
        (WithdrawsNothingWithoutDoubt, "waits_that_were_given_up_and_fully_answered_leave_nothing"),
        (SaysNothingOfABreak, "releasing_a_broken_grant_is_answered_with_the_break_and_frees_what_was_kept"),
        (SaysNothingOfABreak, "releasing_a_grant_that_was_broken_at_once_is_answered_with_the_break"),
        (SaysNothingOfABreak, "a_block_that_ends_before_the_next_renewal_learns_that_its_lock_was_broken"),
        (KeepsABrokenSlot, "releasing_a_broken_grant_is_answered_with_the_break_and_frees_what_was_kept"),
        (OvertakesWaiters, "the_queue_is_served_in_order"),
        (OneFenceForAll, "fences_rise_over_releases_from_different_clients"),
        (ReadsWithoutRaisingTheFence, "reading_under_a_fence_refuses_older_writers_even_where_no_record_is"),
        (ReadsWithoutRaisingTheFence, "reading_under_a_fence_keeps_the_record_and_refuses_its_late_writer"),
        (WritesWhateverTheFence, "a_late_writer_with_an_older_fence_is_refused"),
        (ForgetsTheFenceWithItsRecord, "a_fence_is_remembered_longer_than_a_short_record"),
        (LowersTheFence, "a_late_reader_learns_that_a_higher_fence_was_seen_and_lowers_nothing"),
        (ClockStandsStill, "the_store_tells_one_time_that_goes_on"),
    ],
)
def test_a_broken_store_fails(kind: type[MemoryStore], case: str) -> None:
    with pytest.raises(AssertionError):
        contract.check(case_named(case), BrokenHarness(kind), contract.ThreadDriver())


def test_a_store_that_declares_more_than_it_must_fails_every_case() -> None:
    class Liar(contract.MemoryHarness):
        capabilities = contract.REQUIRED["memory"] - {Capability.PERMITS}

    with pytest.raises(AssertionError, match="must declare"):
        contract.check(case_named("the_queue_is_served_in_order"), Liar(), contract.ThreadDriver())


class NoSemaphores(MemoryStore):
    """It can count, and does not declare it."""

    def open_backend(self, runtime: Runtime) -> Backend:
        backend = super().open_backend(runtime)
        backend.capabilities -= {Capability.PERMITS}  # type: ignore[misc] # of this connection only
        return backend


def test_without_a_row_of_the_table_what_the_store_declares_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Capability] = []

    async def check_absent(_: object, capability: Capability) -> None:
        checked.append(capability)

    class Unlisted(BrokenHarness):
        capabilities = None

    monkeypatch.setattr(runner, "check_absent", check_absent)
    for name in ("the_queue_is_served_in_order", "a_semaphore_admits_exactly_its_permits"):
        contract.check(case_named(name), Unlisted(NoSemaphores), contract.ThreadDriver())
    assert checked == [Capability.PERMITS]
