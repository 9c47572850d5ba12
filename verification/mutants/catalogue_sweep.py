"""Bugs that the sweep made by itself, that no test noticed, and that would have hurt a user most."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["SWEEP_MUTANTS"]

_RELEASE = "tests/unit/test_release_step_by_step.py"
_KEEPER = "tests/unit/test_keeper_steps.py"
_CALLS = "tests/unit/test_calls_step_by_step.py"

SWEEP_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "sweep-release-never-finished",
        "a lease that was released counts as being released for ever, and every further call releases it again",
        "_core/release.py",
        "    if answer is True or answer is False:\n        opened.keeper.finish_release(tenure)\n",
        "    if answer is True or answer is False:\n        pass\n",
        (_RELEASE,),
    ),
    Mutant(
        "sweep-break-after-doubt-is-freed",
        "a release that finds that an operator broke the lock says that it has freed it",
        "_core/release.py",
        "(answer is False and tenure.perhaps_freed and runtime.now() < tenure.kept_until)",
        "(tenure.perhaps_freed and runtime.now() < tenure.kept_until)",
        (_RELEASE,),
    ),
    Mutant(
        "sweep-failed-release-without-its-fence",
        "the event of a release that failed names fence 0 instead of the lease's own",
        "_core/release.py",
        "happened.ReleaseFailed(tenure.name, text, fence=tenure.grant.fence)",
        "happened.ReleaseFailed(tenure.name, text)",
        (_RELEASE,),
    ),
    Mutant(
        "sweep-child-keeps-the-leases-of-its-parent",
        "a keeper of a forked child still admits leases, on locks and connections of its parent's",
        "_core/keeper.py",
        "        self.guard = self.renewals.guard = self._runtime.guard()\n        self._closed = True\n",
        "        self.guard = self.renewals.guard = self._runtime.guard()\n        self._closed = False\n",
        (_KEEPER,),
    ),
    Mutant(
        "sweep-client-that-leaves-admits-leases",
        "a call that ends while its client leaves gets a lease that nobody renews or gives back",
        "_core/keeper.py",
        "            self._closed = True\n            return self._lose_all(loss, self._runtime.now(), forget=True)\n",
        "            return self._lose_all(loss, self._runtime.now(), forget=True)\n",
        (_KEEPER,),
    ),
    Mutant(
        "sweep-ended-loop-drops-in-silence",
        "no event tells of the leases that an event loop held when it ended",
        "_core/keeper.py",
        "            self._events.emit(happened.Dropped(tenure.name, tenure.grant.fence))\n",
        "            pass\n",
        (_KEEPER,),
    ),
    Mutant(
        "sweep-one-error-of-a-batch-counts-twice",
        "a lease whose renewal got an error, in a batch with others, is treated as answered as well",
        "_core/renewals.py",
        "                self._renewal_failed(known, answer, sent)\n                continue\n",
        "                self._renewal_failed(known, answer, sent)\n",
        (_KEEPER,),
    ),
    Mutant(
        "sweep-max-hold-noticed-late",
        "a lease whose max_hold ends before its next renewal is lost only when the keeper happens to look",
        "_core/tenure.py",
        "        return min(self.deadline, self.due)\n",
        "        return self.due\n",
        ("tests/unit/test_tenure.py",),
    ),
    Mutant(
        "sweep-window-renewed-after-a-third",
        "a short first grant is not renewed soon, and is lost before its first renewal",
        "_core/validity.py",
        "    return min(usual, since + SOON) if granted < wanted else usual\n",
        "    return usual\n",
        ("tests/unit/test_validity.py",),
    ),
    Mutant(
        "sweep-closing-waits-for-a-pause",
        "close() does not clean up at once, but only when the pause of the clean-up is over",
        "_core/cleanup.py",
        "        self._closing = True\n        self._signal.set()\n",
        "        self._closing = True\n",
        ("tests/unit/test_cleanup.py",),
    ),
    Mutant(
        "sweep-plain-lock-enters-a-reentrant-one",
        "a lock that was not made re-entrant is entered again by the thread that holds it under another object",
        "_core/acquire.py",
        "async def try_acquire(opened: OpenClient, spec: LockSpec) -> Tenure | None:\n"
        '    """Ask once; None if the lock is not free."""\n'
        "    deadline = opened.runtime.now()  # giving back what is parked is part of the call\n"
        "    if spec.reentrant and (again",
        "async def try_acquire(opened: OpenClient, spec: LockSpec) -> Tenure | None:\n"
        '    """Ask once; None if the lock is not free."""\n'
        "    deadline = opened.runtime.now()  # giving back what is parked is part of the call\n"
        "    if (again",
        ("tests/unit/test_ends_of_calls.py",),
    ),
    Mutant(
        "sweep-last-request-beyond-the-grace",
        "a request of a call that has no time left may take longer than the grace",
        "_core/attempt.py",
        "limit if limit - sent >= GRACE else min(sent, limit) + GRACE",
        "limit if limit - sent >= GRACE else max(sent, limit) + GRACE",
        (_CALLS,),
    ),
    Mutant(
        "sweep-set-of-leases-hears-of-no-loss",
        "on_lost of several locks is never called, and an async block under them is not cancelled",
        "_face/lease.py",
        "        for lease in self._leases:\n            lease._watch(watcher)\n",
        "        for lease in self._leases:\n            pass\n",
        ("tests/faces/test_lease_facts.py",),
    ),
    Mutant(
        "sweep-late-cancellation-hits-the-program",
        "a loss at the very end of a block cancels what the program awaits after it",
        "_runtimes/asyncio.py",
        "        await self._swallow_undelivered()\n        return ours\n",
        "        return ours\n",
        ("tests/unit/test_asyncio_scope.py",),
    ),
    Mutant(
        "sweep-join-without-its-deadline",
        "closing a client on an event loop waits for ever for a task that hangs",
        "_runtimes/asyncio.py",
        "            timeout = None if deadline is None else deadline - self._clock.now()\n"
        "            if timeout is not None and timeout <= 0:\n                return False\n",
        "            timeout = None\n",
        ("tests/unit/test_asyncio_scope.py",),
    ),
    Mutant(
        "sweep-busy-hold-forgets-on-lost",
        "hold(on_lost=..., backoff=...) of several blocking locks never calls on_lost",
        "_blocking/lock.py",
        "        return Hold(self._twin.hold(timeout, on_lost=on_lost, on_busy=on_busy, **waiting), LeaseSet._of)\n",
        "        return Hold(self._twin.hold(timeout, on_busy=on_busy, **waiting), LeaseSet._of)\n",
        ("tests/faces/test_twins_pass_on.py",),
    ),
)
