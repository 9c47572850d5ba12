"""The known bugs, as exact replacements of text in the library. Numbers such as B11 name the bug reports they repeat.

The old text of each must occur exactly once: a test fails when a refactoring has moved it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CORE_MUTANTS", "Mutant", "contract"]


SIMULATED = (
    "redis",
    "redlock",
    "sqlite",
    "mysql",
    "etcd",
    "nats",
    "zookeeper",
)  # stores that the simulation has, besides memory


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug."""

    id: str
    description: str
    file: str  # under src/leasehold
    old: str
    new: str
    tests: tuple[str, ...] = ()  # what pytest is given to catch it; empty: the simulation and the contract hunt it
    program: str = "everything"  # of the simulation, that has to meet it

    @property
    def store(self) -> str:
        """The store that the simulation has to use to meet it."""
        if self.file == "kit/documents.py":
            return "nats"
        _, _, rest = self.file.partition("_backends/")
        folder = rest.partition("/")[0]
        return folder if folder in SIMULATED else "memory"


_ATTEMPT = "_core/attempt.py"
_RELEASE = "_core/release.py"
_KEEPER = "_core/keeper.py"
_RENEWALS = "_core/renewals.py"
_TENURE = "_core/tenure.py"
_MEMORY = "_backends/memory/store.py"
_LOCAL_ROWS = "kit/local_rows.py"
_RULES = "kit/rules.py"
_LEASE = "_face/lease.py"


def contract(case: str) -> tuple[str, ...]:
    """One case over the memory store, on threads."""
    return (f"tests/contract/test_memory.py::test_contract_over_memory[threads-{case}]",)


CORE_MUTANTS: tuple[Mutant, ...] = (
    # --- giving back
    Mutant(
        "B1-unshielded-release",
        "a cancelled release leaves the key",
        _RELEASE,
        "            return await runtime.shielded(partial(_attempt, opened, tenure, limit))\n",
        "            return await _attempt(opened, tenure, limit)\n",
    ),
    Mutant(
        "B1-cleared-first",
        "release ends the lease here before the store confirmed, so a failed one cannot be repeated",
        _RELEASE,
        "    limit = runtime.now() + GRACE\n",
        "    limit = runtime.now() + GRACE\n    opened.keeper.finish_release(tenure)\n",
    ),
    Mutant(
        "B2-closed-first",
        "the lease object forgets that it is open before the store confirmed",
        _LEASE,
        "        freed = await release(opened, self._tenure)\n        self._unreleased = False\n",
        "        self._unreleased = False\n        freed = await release(opened, self._tenure)\n",
    ),
    Mutant(
        "B26-held-while-releasing",
        "the lease is believed and renewed while it is being released",
        _KEEPER,
        "            tenure.state = TRANSITIONS[tenure.state, RELEASE]\n",
        "            TRANSITIONS[tenure.state, RELEASE]\n",
    ),
    Mutant(
        "B26-renewed-after-release",
        "the keeper goes on renewing a lease whose release got no answer",
        _KEEPER,
        "            self._known.pop(tenure.number, None)  # nothing to renew or to report, even if the release fails\n"
        "            return tenure.state is RELEASING\n",
        "            asked = tenure.state is RELEASING\n"
        "            tenure.state = HELD if asked else tenure.state\n"
        "            return asked\n",
    ),
    Mutant(
        "B39-inner-release",
        "the inner release of a re-entered lock frees it",
        _LEASE,
        "        if self._tenure.handles > 1 and self._leave_to_others():\n            return True\n",
        "",
    ),
    Mutant(
        "set-keeps-the-rest",
        "a block under several locks gives nothing back once one of them is lost",
        _LEASE,
        "        return any(lease._is_kept() for lease in self._leases)\n",
        "        return all(lease._is_kept() for lease in self._leases)\n",
    ),
    Mutant(
        "set-release-interrupted",
        "a cancelled release of several locks stops half-way",
        _LEASE,
        "            except BaseException as error:  # noqa: BLE001 - the others must be released too\n",
        "            except Exception as error:  # noqa: BLE001 - the others must be released too\n",
    ),
    Mutant(
        "set-keeps-half",
        "locks that were already taken stay taken when another one cannot be had",
        "_face/lock.py",
        "        if not held:\n            return\n",
        "        if held is not error:\n            return\n",
    ),
    # --- renewing
    Mutant(
        "B11-error-ends-renewal",
        "an error of the store ends the renewal task without a word",
        _RENEWALS,
        "            for known, _ in due:\n                self._renewal_failed(known, error, sent)\n",
        "            raise\n",
    ),
    Mutant(
        "B11-never-retried",
        "a renewal that failed once is not tried again",
        _TENURE,
        "        self.due = min(self.due, retry) if self.under_way else retry\n",
        "        self.due = math.inf\n",
    ),
    Mutant(
        "B25-keeper-not-woken",
        "a new lease does not wake a keeper that sleeps",
        _KEEPER,
        "            elif tenure.due < self._wake or tenure.deadline < self._wake:\n",
        "            elif tenure.due < 0.0:\n",
    ),
    Mutant(
        "B25-oversleeps",
        "the keeper does not look when the next renewal is due",
        _KEEPER,
        "            wake = min(wake, tenure.next_action())\n",
        "",
    ),
    Mutant(
        "renewed-too-late",
        "renewal begins when the ttl is over",
        "_core/validity.py",
        "RENEWALS_PER_TTL = 3\n",
        "RENEWALS_PER_TTL = 1\n",
    ),
    Mutant(
        "B45-strong-keeper",
        "the keeper keeps forgotten leases alive and renews them for ever",
        _KEEPER,
        "            known.number = tenure.number = self._numbers\n",
        "            known.number = tenure.number = self._numbers\n"
        '            self.__dict__.setdefault("strong", []).append(tenure)\n',
    ),
    Mutant(
        "keeper-outlives-close",
        "the keeper's worker does not end when the client is closed",
        _KEEPER,
        "            if self._closed:\n                return True\n            if self._known",
        "            if self._known",
    ),
    # --- believing and losing
    Mutant(
        "B18-validity-from-reply",
        "validity is counted from the reply of acquire",
        _ATTEMPT,
        "                self._limit, self._silent, self._traceless = self._deadline, False, False\n",
        "                self._limit, self._silent, self._traceless = self._deadline, False, False\n"
        "                self._sent = self._runtime.now()\n",
    ),
    Mutant(
        "B18-renewal-from-reply",
        "validity is counted from the reply of a renewal",
        _RENEWALS,
        "            renewed, late = self._note_answers(due, answers, sent)\n",
        "            renewed, late = self._note_answers(due, answers, self._runtime.now())\n",
    ),
    Mutant(
        "S03-used-up-grant",
        "a grant that was used up before it arrived is returned",
        _ATTEMPT,
        "        if runtime.now() >= tenure.deadline:\n            logger",
        "        if answer.ttl <= 0:\n            logger",
    ),
    Mutant(
        "late-confirmation",
        "a confirmation that comes after the deadline revives the lease",
        _TENURE,
        "        self.settle(now)\n        self.state = TRANSITIONS[self.state, Event.CONFIRM]\n",
        "        self.state = TRANSITIONS[self.state, Event.CONFIRM]\n",
    ),
    Mutant(
        "B12-check-after-deadline",
        "check() succeeds after the deadline",
        _LEASE,
        "            if left > margin:\n",
        "            if left > margin - 1:\n",
    ),
    Mutant(
        "no-margin",
        "nothing is given up to clock drift",
        "_core/validity.py",
        "    return since + ttl - (ttl * DRIFT + DRIFT_FIXED)\n",
        "    return since + ttl\n",
    ),
    Mutant(
        "loss-told-twice",
        "a lost lease stays with the keeper and is announced again",
        _KEEPER,
        "            return self._known.pop(tenure.number, None) is not None and tenure.state is LOST\n",
        "            return self._known.get(tenure.number) is not None and tenure.state is LOST\n",
    ),
    Mutant(
        "B34-loss-not-told",
        "a loss that the store announced does not reach the holder",
        _KEEPER,
        "            if tenure.state is LOST or now >= tenure.deadline:\n",
        "            if now >= tenure.deadline + 5:\n",
    ),
    Mutant(
        "loss-does-not-cancel",
        "the block goes on although its loss was announced",
        "_face/hold.py",
        "        self._scope.cancel()\n",
        "",
    ),
    Mutant(
        "loss-ignored",
        "a grant that the store calls lost is treated like a failed renewal",
        _RENEWALS,
        "                tenure.lose(answer)\n",
        "                tenure.failed(answer.detail, sent, self._runtime.now())\n",
    ),
    Mutant(
        "B17-max-hold-renewed-away",
        "a renewal extends the lease beyond max_hold",
        _TENURE,
        "        self.deadline = min(max(self.deadline, self.trusted_until(sent, answer.ttl)), self.ends)\n",
        "        self.deadline = max(self.deadline, self.trusted_until(sent, answer.ttl))\n",
    ),
    # --- asking
    Mutant(
        "S13-unknown-read-as-no",
        "a lost reply of acquire is read as a refusal",
        _ATTEMPT,
        "                    unknown, self._doubt, self._traceless = error, True, False\n"
        "                await self._outlast",
        "                    return Refusal(self._spec.key)  # type: ignore[return-value]\n"
        "                await self._outlast",
    ),
    Mutant(
        "S13-no-undo",
        "a claim whose outcome is unknown is not withdrawn",
        _ATTEMPT,
        "        if self._traceless:\n            return\n",
        "        if self._doubt or self._traceless:\n            return\n",
    ),
    Mutant(
        "S13-refused-after-doubt",
        "a claim that was refused after an unknown outcome is not withdrawn",
        _ATTEMPT,
        "            if self._doubt:  # an earlier",
        "            if False:  # an earlier",
        contract("failures:a_late_copy_of_a_request_that_was_refused_takes_nothing"),
    ),
    Mutant(
        "B36-cancelled-waiter",
        "a waiter that is cancelled or times out stays in the queue",
        "_core/local_acquire.py",
        "            await give_back(self._opened, tenure)\n        if not self._traceless:\n",
        "            await give_back(self._opened, tenure)\n        if False:\n",
    ),
    Mutant(
        "B36-unshielded-withdrawal",
        "a withdrawal that is cancelled is not finished",
        _ATTEMPT,
        "        await self._runtime.shielded(withdraw_now)\n",
        "        await withdraw_now()\n",
        ("tests/faces/test_cancel_on_loss.py::test_a_task_cancelled_again_in_its_withdrawal_leaves_nothing",),
    ),
    Mutant(
        "B8-no-recheck",
        "a waiter relies on the signal alone",
        _ATTEMPT,
        "        wake = min(self._deadline, now + place.recheck)\n",
        "        wake = min(self._deadline, now + 10 * place.recheck)\n",
    ),
    # --- the store
    Mutant(
        "S15-renewal-revives",
        "a renewal re-creates a holding that was released",
        _RULES,
        "    row = _of_grant(rows, wanted)\n    if row is None:\n        return TAKEN\n",
        "    row = _of_grant(rows, wanted)\n    if row is None:\n        return grant(rows, wanted.claim)\n",
    ),
    Mutant(
        "B46-renewal-by-owner",
        "a renewal extends another grant of the same owner",
        _RULES,
        "        if is_its_own and (row.state",
        "        if (row.state",
    ),
    Mutant(
        "B3-release-of-another",
        "a late release frees the next holder's lock",
        _RULES,
        "    row = _of_grant(rows, wanted)\n    if row is None:\n        return False\n",
        "    row = next(iter(rows.held()), None)\n    if row is None or row.state == _COOLING:\n        return False\n",
    ),
    Mutant(
        "try-overtakes",
        "try_acquire overtakes waiters",
        _RULES,
        "    if not admits(claim, rows.holders(), rows.ahead(None)):\n",
        "    if not admits(claim, rows.holders(), Crowd(0, False)):\n",
    ),
    Mutant(
        "place-lost-by-asking",
        "a waiter that asks again goes to the end of the queue",
        _RULES,
        "    rows.update(place)\n    return _queued(rows, place)\n",
        "    rows.delete(place)\n    rows.insert(place)\n    return _queued(rows, place)\n",
    ),
    Mutant(
        "no-tombstone",
        "a withdrawn claim that arrives late is granted",
        _RULES,
        "            rows.insert(Row(claim, _WITHDRAWN, rows.now, until))\n",
        "            pass\n",
    ),
    Mutant(
        "B41-dead-waiter-stays",
        "a waiter that does not ask any more keeps its place",
        _LOCAL_ROWS,
        "[row for row in self if row.expires <= self.now]",
        "[row for row in self if row.expires <= self.now and row.state != _WAITING]",
    ),
    Mutant(
        "B48-no-expiry",
        "the lock of a crashed holder never ends",
        _LOCAL_ROWS,
        "[row for row in self if row.expires <= self.now]",
        "[row for row in self if row.expires <= self.now and row.state > _COOLING]",
    ),
    Mutant(
        "fence-kept-on-hand-over",
        "the fence does not rise while a claim waits",
        _MEMORY,
        "        self._fence = fence = self._fence + 1\n",
        "        fence = self._fence + (0 if any(rows.waiting() for rows in self._names.values()) else 1)\n"
        "        self._fence = fence\n",
    ),
    Mutant(
        "S12-new-fence-for-a-copy",
        "a copy of a claim gets a grant of its own",
        _RULES,
        "        return _refusal(rows)\n    return _extend(rows, claim, row)\n",
        "        return _refusal(rows)\n    return grant(rows, claim)\n",
    ),
    Mutant(
        "B59-repeat-not-refreshed",
        "a repeated claim is confirmed without a new expiry",
        _RULES,
        "        return _refusal(rows)\n    return _extend(rows, claim, row)\n",
        "        return _refusal(rows)\n    return Grant(claim, row.fence, claim.ttl, None, row.abandoned)\n",
    ),
    Mutant(
        "abandoned-not-told",
        "the next holder does not learn that the last one vanished",
        _RULES,
        "    if _HOLDING in states:\n        rows.abandoned_until = rows.now + ABANDONED_KEPT\n",
        "    if _HOLDING in states:\n        rows.abandoned_until = rows.now\n",
    ),
    Mutant(
        "min-hold-ignored",
        "min_hold does not keep the lock",
        _RULES,
        "        if kept_until > rows.now:\n",
        "        if kept_until > rows.now + 1e9:\n",
    ),
    Mutant(
        "break-without-effect",
        "a broken lock can be renewed",
        _RULES,
        "        return TAKEN\n    if row.broken is not None:\n",
        "        return TAKEN\n    if row.broken is not None and row.state == _BROKEN:\n",
    ),
    Mutant(
        "C4-break-not-told",
        "the holder of a broken lock that releases it does not learn of the break",
        _RULES,
        "    return True if row.broken is None else Loss(LossReason.BROKEN, row.broken)\n",
        "    return row.broken is None\n",
        contract("operators:releasing_a_broken_grant_is_answered_with_the_break_and_frees_what_was_kept"),
    ),
    Mutant(
        "C4-break-forgotten",
        "the break that a release is answered with does not reach the lease",
        _KEEPER,
        "                tenure.loss = broken\n",
        "                pass\n",
        contract("operators:a_block_that_ends_before_the_next_renewal_learns_that_its_lock_was_broken"),
    ),
    Mutant(
        "R6-mark-without-doubt",
        "every wait that is given up leaves a mark for a ttl",
        _RULES,
        "    if doubt:\n        note, until",
        "    if doubt or claim.owner:\n        note, until",
        contract("ownership:a_claim_withdrawn_without_doubt_leaves_nothing_and_may_be_asked_again"),
    ),
    Mutant(
        "R6-doubt-forgotten",
        "a claim whose request was interrupted on its way is withdrawn as if it had been answered",
        _ATTEMPT,
        "                self._traceless, self._doubt = False, True\n",
        "                self._traceless = False\n",
    ),
    Mutant(
        "R6-no-doubt-ever",
        "a claim whose request got no answer is withdrawn without a mark",
        _ATTEMPT,
        "            await backend.withdraw(claim, until, doubt=doubt)\n",
        "            await backend.withdraw(claim, until, doubt=False)\n",
    ),
    Mutant(
        "one-permit-too-many",
        "a semaphore admits one more than its capacity",
        _RULES,
        "holders.number + ahead.number < claim.capacity",
        "holders.number + ahead.number <= claim.capacity",
    ),
    Mutant(
        "reader-beside-writer",
        "a reader is admitted beside a writer",
        _RULES,
        "    return not holders.exclusive and not ahead.exclusive\n",
        "    return not ahead.exclusive\n",
    ),
    Mutant(
        "writer-starved",
        "readers overtake a waiting writer",
        _RULES,
        "    return not holders.exclusive and not ahead.exclusive\n",
        "    return not holders.exclusive\n",
    ),
)
