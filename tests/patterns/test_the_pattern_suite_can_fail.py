"""A suite that passes a broken store is worth nothing: stores with one bug each must fail the cases of the patterns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from leasehold._backends.memory import MemoryStore
from leasehold.errors import LeaseholdError
from leasehold.testing import contract, patterns
from leasehold.values import Grant, Reading, Record, Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leasehold.spi import Place, Signal
    from leasehold.values import Claim, Holder, LockState, Loss


class LetsEverybodyIn(MemoryStore):
    def try_acquire(self, claim: Claim) -> Grant | Refusal:
        answer = super().try_acquire(claim)
        return answer if isinstance(answer, Grant) else Grant(claim, self._next_fence(), claim.ttl, None, False)


class ForgetsWhoHolds(MemoryStore):
    def try_acquire(self, claim: Claim) -> Grant | Refusal:
        answer = super().try_acquire(claim)
        return answer if isinstance(answer, Grant) else replace(answer, holder=None)


class FreesNothing(MemoryStore):
    def release(self, grant: Grant) -> bool | Loss:
        return True


class TellsEverybodyTheFirstPlace(MemoryStore):
    def join(self, claim: Claim, signal: Signal) -> Grant | Place | Refusal:
        answer = super().join(claim, signal)
        return answer if isinstance(answer, Grant | Refusal) else replace(answer, ahead=0)


class ForgetsRecords(MemoryStore):
    def write(self, record: Record) -> bool:
        return True


class KeepsRecordsForEver(MemoryStore):
    def write(self, record: Record) -> bool:
        return super().write(replace(record, ttl=1e9))


class OneRecordForAll(MemoryStore):
    def read(self, key: str, fence: int = 0) -> Reading:
        return super().read("x", fence)

    def write(self, record: Record) -> bool:
        return super().write(replace(record, key="x"))


class WritesWhateverTheFence(MemoryStore):
    def write(self, record: Record) -> bool:
        return super().write(replace(record, fence=2**53 - 1))


class ReadsWithoutRaisingTheFence(MemoryStore):
    def read(self, key: str, fence: int = 0) -> Reading:
        reading = super().read(key)
        return Reading(reading.record, max(fence, reading.fence), reading.time)


class KeepsLongRecordsBriefly(MemoryStore):
    def write(self, record: Record) -> bool:
        return super().write(replace(record, ttl=min(record.ttl, 0.5)))


class CutsRecords(MemoryStore):
    def write(self, record: Record) -> bool:
        return super().write(replace(record, value=record.value[:60_000]))


class NeverPauses(MemoryStore):
    def pause(self, key: str, by: Holder, seconds: float) -> None:
        """Nothing."""


class NeverResumes(MemoryStore):
    def resume(self, key: str) -> bool:
        return False


class ShowsAnotherFence(MemoryStore):
    def inspect(self, key: str) -> LockState | None:
        found = super().inspect(key)
        if found is None:
            return None
        return replace(found, holdings=tuple(replace(each, fence=each.fence + 1) for each in found.holdings))


class RenewsNothing(MemoryStore):
    def renew(self, grants: Sequence[Grant]) -> list[Grant | Loss]:
        return list(grants)


class Harness(contract.MemoryHarness):
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
        (LetsEverybodyIn, "on_busy_gives_the_result_of_a_call_that_cannot_have_the_lock"),
        (LetsEverybodyIn, "one_leads_at_a_time_and_who_is_refused_learns_who_leads"),
        (LetsEverybodyIn, "without_release_they_stay_until_their_ttl"),
        (ForgetsWhoHolds, "one_leads_at_a_time_and_who_is_refused_learns_who_leads"),
        (FreesNothing, "what_a_leaving_client_holds_is_free_for_the_next_at_once"),
        (TellsEverybodyTheFirstPlace, "who_waits_in_a_queue_hears_its_place_and_the_holder"),
        (ForgetsRecords, "a_completed_result_is_replayed_to_every_other_client"),
        (ForgetsRecords, "a_slot_that_was_run_is_skipped_by_every_other_client"),
        (ForgetsRecords, "a_value_is_built_once_and_read_by_every_other_client"),
        (ForgetsRecords, "a_run_that_failed_is_shown_and_its_slot_is_open"),
        (KeepsRecordsForEver, "a_result_is_kept_as_long_as_it_was_asked_for"),
        (OneRecordForAll, "keys_of_two_scopes_do_not_meet"),
        (OneRecordForAll, "a_value_is_built_once_and_read_by_every_other_client"),
        (OneRecordForAll, "the_last_run_says_which_slot_by_whom_when_and_under_which_fence"),
        (WritesWhateverTheFence, "what_was_built_before_a_forget_is_not_stored_after_it"),
        (WritesWhateverTheFence, "put_wins_over_a_build_that_is_under_way"),
        (ReadsWithoutRaisingTheFence, "what_was_built_before_a_forget_is_not_stored_after_it"),
        (KeepsLongRecordsBriefly, "when_a_build_fails_the_stale_value_is_given_out"),
        (CutsRecords, "a_result_as_large_as_allowed_is_kept"),
        (NeverPauses, "a_paused_job_is_skipped_with_the_reason_and_can_be_made_to_forget"),
        (NeverResumes, "a_paused_job_is_skipped_with_the_reason_and_can_be_made_to_forget"),
        (ShowsAnotherFence, "observers_see_each_leader_and_who_is_elected_is_called_back"),
        (RenewsNothing, "a_leader_that_cannot_renew_stops_before_another_can_lead"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # a case that fails leaves its leases to their ttl
def test_a_broken_store_fails(kind: type[MemoryStore], case: str) -> None:
    chosen = next(each for each in patterns.CASES if each.name == case)
    with pytest.raises((AssertionError, LeaseholdError, ValueError, ZeroDivisionError)):
        contract.check(chosen, Harness(kind), contract.ThreadDriver())
