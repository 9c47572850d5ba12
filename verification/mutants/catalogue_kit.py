"""Known bugs that named tests must see: the kit for stores."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant, contract

__all__ = ["KIT_MUTANTS"]

_DOCUMENTS = "kit/documents.py"
_RULES = "kit/rules.py"
_WORKER = "kit/worker.py"

KIT_MUTANTS: tuple[Mutant, ...] = (
    # --- written blind, and missed by every test at first
    Mutant(
        "blind-repeat-revives-broken",
        "a claim that is sent again after an operator broke its grant is granted and extended",
        _RULES,
        "if row.state == _COOLING or row.broken is not None:",
        "if row.state == _COOLING:",
        contract("operators:a_broken_grant_is_not_granted_again_when_its_claim_is_sent_again"),
    ),
    Mutant(
        "kit-clock-fell-back",
        "a release keeps the lock for as long as the store's clock fell back",
        _RULES,
        "kept_until = min(row.since, rows.now) + row.claim.min_hold",
        "kept_until = row.since + row.claim.min_hold",
        (
            "tests/unit/test_kit_rules.py::test_a_clock_that_was_set_back_keeps_a_released_lock_for_its_min_hold_at_most",
        ),
    ),
    Mutant(
        "blind-renew-one-fails-all",
        "a lost answer for one grant fails the renewal of the whole batch",
        _DOCUMENTS,
        "        except BackendError as error:\n            return error  # the answer for this grant",
        "        except BackendUnavailable as error:\n            return error  # the answer for this grant",
        ("tests/unit/test_kit_documents.py::test_a_renewal_that_fails_is_the_answer_for_its_grant_alone",),
    ),
    Mutant(
        "blind-worker-loses-start",
        "a start that comes while the work is running is forgotten",
        _WORKER,
        "                self._signal.clear()\n                try:\n                    await self._work()\n",
        "                try:\n                    await self._work()\n                    self._signal.clear()\n",
        ("tests/unit/test_kit_worker.py::test_a_start_during_the_work_has_it_performed_again",),
    ),
    Mutant(
        "blind-break-ends-min-hold",
        "break of a grant that was released and is kept for its min_hold ends the min_hold",
        _RULES,
        "if row is None or row.state == _COOLING:",
        "if row is None:",
        contract("operators:what_is_only_kept_for_its_min_hold_cannot_be_broken"),
    ),
    Mutant(
        "blind-cleaning-lowers-fences",
        "cleaning deletes an idle name whose fence was raised above the clock",
        _DOCUMENTS,
        "is_over = name.rows.is_idle and name.fence < (now - SPARE) * 1_000_000",
        "is_over = name.rows.is_idle",
        ("tests/unit/test_kit_documents.py::test_cleaning_deletes_what_is_idle_for_a_day_and_nothing_else",),
    ),
    Mutant(
        "kit-opening-after-close-waits",
        "a call that opens a connection while its client is closed waits for its whole time",
        "kit/openings.py",
        "            if not self._closed:  # `close` sets",
        "            if True:  # `close` sets",
        ("tests/unit/test_kit_pieces.py::test_an_opening_after_the_end_waits_for_nobody",),
    ),
)
