"""Known bugs that named tests must see: faces."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["FACES_MUTANTS"]

_ATTEMPT = "_core/attempt.py"
_ASYNCIO = "_runtimes/asyncio.py"
_CLIENT = "_face/client.py"
_CLOCK = "_runtimes/clock.py"
_CRON = "_patterns/cron.py"
_KEEPER = "_core/keeper.py"
_LEASE = "_face/lease.py"
_LOCK = "_face/lock.py"
_SELF_DEADLOCK = "_core/self_deadlock.py"
_TENURE = "_core/tenure.py"
_THREADS = "_runtimes/threads.py"

_CANCEL_TESTS = ("tests/faces/test_cancel_on_loss.py",)
_CRON_TESTS = ("tests/unit/test_cron_around_midnight.py",)
_LEASE_TESTS = ("tests/faces/test_leases.py",)
_MUTEX_TESTS = ("tests/faces/test_mutex.py",)
_SELF_DEADLOCK_TESTS = ("tests/faces/test_self_deadlock.py",)
_RUNTIME_TESTS = ("tests/unit/test_runtimes.py",)
_TTL_TESTS = ("tests/faces/test_ttl_warnings.py",)

FACES_MUTANTS: tuple[Mutant, ...] = (
    # --- mutexes
    Mutant(
        "mutex-of-nobody",
        "a mutex does not know which thread holds which lease: a late release frees the next holder",
        _LOCK,
        "            if entry[0] is current:\n",
        "            if entry[1] is not None:\n",
        _MUTEX_TESTS,
    ),
    Mutant(
        "mutex-keeps-a-loss",
        "after a loss a mutex stays held for its owner: every later release raises the old loss, the new lease stays",
        _LOCK,
        "        is_held, is_over = lease.remaining() > 0, True\n",
        "        is_held, is_over = lease.remaining() > 0, loss is None\n",
        _MUTEX_TESTS,
    ),
    # --- leases and locks
    Mutant(
        "set-remains-as-its-longest",
        "remaining() of several locks promises more time than one of them has",
        _LEASE,
        "        return min(lease.remaining() for lease in self._leases)\n",
        "        return max(lease.remaining() for lease in self._leases)\n",
        _LEASE_TESTS,
    ),
    Mutant(
        "renew-hides-the-loss",
        "renew() of a lease that is gone returns 0.0 instead of raising LeaseLost",
        _LEASE,
        "        await self._opened.keeper.renewals.renew_now(self._tenure)\n        self.check()\n",
        "        await self._opened.keeper.renewals.renew_now(self._tenure)\n",
        _LEASE_TESTS,
    ),
    Mutant(
        "re-enters-what-is-over",
        "a re-entrant acquire returns a lease whose deadline has passed",
        "_core/open_client.py",
        "            if tenure is None or tenure.settle(self.runtime.now()) or tenure.state is not HELD:\n",
        "            if tenure is None or tenure.state is not HELD:\n",
        _LEASE_TESTS,
    ),
    Mutant(
        "none-means-default",
        "acquire(timeout=None) on a client with a default timeout gives up instead of waiting for ever",
        _CLIENT,
        "        limit = self._timeout if timeout is ... else",
        "        limit = self._timeout if timeout is ... or timeout is None else",
        _LEASE_TESTS,
    ),
    Mutant(
        "set-freed-if-one-was",
        "release() of several locks says True although one of them was gone",
        _LEASE,
        "                freed = await lease.release() and freed\n",
        "                freed = await lease.release() or freed\n",
        _LEASE_TESTS,
    ),
    Mutant(
        "block-under-a-lost-lease",
        "a block begins under a lease that is over",
        _LEASE,
        "AsyncLease:\n        self._opened.require_home(self.name)\n        self.check()\n",
        "AsyncLease:\n        self._opened.require_home(self.name)\n",
        _LEASE_TESTS,
    ),
    Mutant(
        "set-in-any-order",
        "several locks are taken in the order in which they were named: two sets can block each other",
        _LOCK,
        "        self._locks = tuple(sorted(locks, key=lambda lock: lock.name))\n",
        "        self._locks = tuple(locks)\n",
        _LEASE_TESTS,
    ),
    Mutant(
        "loss-from-the-keeper-only",
        "lost.wait() sees a loss only when the keeper has told of it",
        "_face/hold.py",
        "            await runtime.wait(signal, ends if deadline is None else min(deadline, ends))\n",
        "            await runtime.wait(signal, deadline)\n",
        _LEASE_TESTS,
    ),
    # --- what a store makes of a ttl
    Mutant(
        "window-is-reported",
        "the short time after a hand-over is reported as the ttl that the store gives",
        "_core/ttl_warnings.py",
        "        if tenure.is_window or name in self._names",
        "        if name in self._names",
        _TTL_TESTS,
    ),
    Mutant(
        "ttl-of-the-first-answer",
        "lease.ttl stays at the claim window after a hand-over, and check(need=...) calls a good need a mistake",
        _TENURE,
        "        self.ttl = max(self.ttl, answer.ttl)\n",
        "",
        _TTL_TESTS,
    ),
    Mutant(
        "need-for-ever",
        "a need that no renewal can meet is reported as a loss for ever",
        _LEASE,
        "        if needed >= most:\n",
        "        if needed >= most * 100:\n",
        _TTL_TESTS,
    ),
    # --- waiting for oneself
    Mutant(
        "everybody-is-oneself",
        "a thread that waits for another thread of its process is told that it waits for itself",
        _SELF_DEADLOCK,
        "        if tenure.taker == current:\n",
        "        if tenure.taker:\n",
        _SELF_DEADLOCK_TESTS,
    ),
    Mutant(
        "woken-for-ever",
        "a waiter that was woken for nothing asks the store again and again without a pause",
        _ATTEMPT,
        "        place.signal.clear()\n",
        "",
        ("tests/faces/test_waiting.py",),
    ),
    # --- runtimes
    Mutant(
        "second-cancel-ends-the-clean-up",
        "a task cancelled twice leaves its lock taken",
        _ASYNCIO,
        "                except asyncio.CancelledError:  # cancelled once more; the first one is passed on\n"
        "                    continue\n",
        "                except asyncio.CancelledError:  # cancelled once more; the first one is passed on\n"
        "                    task.cancel()\n",
        _CANCEL_TESTS + _RUNTIME_TESTS,
    ),
    Mutant(
        "second-cancel-does-not-wait",
        "a task cancelled twice ends before its clean-up: a loop that closes then leaves its lock taken",
        _ASYNCIO,
        "                except asyncio.CancelledError:  # cancelled once more; the first one is passed on\n"
        "                    continue\n",
        "                except asyncio.CancelledError:  # cancelled once more; the first one is passed on\n"
        "                    break\n",
        _RUNTIME_TESTS,
    ),
    Mutant(
        "cancel-becomes-a-loss",
        "a cancel from outside that meets a loss is turned into LeaseLost: a task group does not stop",
        _ASYNCIO,
        "        ours = self._task.uncancel() <= self._pending and isinstance(error, asyncio.CancelledError)\n",
        "        ours = self._task.uncancel() >= 0 and isinstance(error, asyncio.CancelledError)\n",
        _CANCEL_TESTS,
    ),
    Mutant(
        "told-by-anybody",
        "check() in another task keeps the block from being cancelled on loss",
        _ASYNCIO,
        "        if _current_task() is self._task:\n",
        "        if self._task is not None:\n",
        _CANCEL_TESTS,
    ),
    Mutant(
        "clock-sleeps-along",
        "a suspended laptop believes in its lease after it woke up",
        _CLOCK,
        "            self._read = partial(time.clock_gettime, time.CLOCK_BOOTTIME)\n",
        "            self._read = partial(time.clock_gettime, time.CLOCK_MONOTONIC)\n",
        _RUNTIME_TESTS,
    ),
    Mutant(
        "one-thread-is-woken",
        "of several threads that wait for one flag only one is woken",
        _THREADS,
        "                waiter.release()\n",
        "                waiter.release()\n                break\n",
        _RUNTIME_TESTS,
    ),
    Mutant(
        "loop-of-the-parent",
        "an async client cannot be used in a forked child, which has a loop of its own",
        "_core/open_clients.py",
        "        opened = self._everything()\n        self._forget_all()\n",
        "        opened = self._everything()\n",
        _LEASE_TESTS,
    ),
    Mutant(
        "joins-itself",
        "a worker that is asked to end from within waits for itself",
        _ASYNCIO,
        "        if self._task is asyncio.current_task():\n            return True\n",
        "",
        _RUNTIME_TESTS,
    ),
    Mutant(
        "lock-of-the-parent",
        "a lock object that was made before a fork shows the parent as its holder",
        _LOCK,
        "holder=self._client._holder(self._spec.holder.reason))\n",
        "holder=self._spec.holder)\n",
        _LEASE_TESTS,
    ),
    # --- patterns
    Mutant(
        "fortnights-from-thursday",
        "periods of several weeks do not begin on a Monday",
        "_patterns/slots.py",
        "if self.period % WEEK == 0 else",
        "if self.period == WEEK else",
        ("tests/unit/test_slots.py",),
    ),
    Mutant(
        "tick-after-midnight",
        "where clocks skip midnight a daily tick is found too late",
        _CRON,
        "(_end_of_gap(second, first, cron.zone),)",
        "(first,)",
        _CRON_TESTS,
    ),
    Mutant(
        "date-that-went-back",
        "where the date itself goes back, the ticks of the repeated hour are left out",
        _CRON,
        "        day = self._local_date(instant) - _DAY\n",
        "        day = self._local_date(instant)\n",
        _CRON_TESTS,
    ),
    # --- written blind, and missed by every test at first
    Mutant(
        "blind-locked-inner-timeout",
        "a timeout of another lock inside a decorated async function is taken for a busy lock",
        _CLIENT,
        '                    return cast("R", await self._when_busy(on_busy, busy, *call))\n'
        "                async with lease:\n"
        "                    return await function(*args, **names.with_lease(args, kwargs, lease))\n",
        '                    return cast("R", await self._when_busy(on_busy, busy, *call))\n                try:\n'
        "                    async with lease:\n"
        "                        return await function(*args, **names.with_lease(args, kwargs, lease))\n"
        "                except AcquireTimeout as busy:\n                    if on_busy is None:\n"
        '                        raise\n                    return cast("R", await self._when_busy(on_busy, busy))\n',
        ("tests/unit/test_locked.py::test_a_timeout_inside_an_async_function_is_not_taken_for_a_busy_lock",),
    ),
    Mutant(
        "blind-signal-before-the-wait",
        "a signal that is raised just before a thread sleeps does not wake it",
        _THREADS,
        "            if not self._up:  # it may have been raised before we were known\n                waiter",
        "            if timeout != 0:\n                waiter",
        ("tests/unit/test_runtimes.py::test_a_signal_raised_just_before_a_thread_sleeps_wakes_it",),
    ),
    Mutant(
        "lock-set-block-forgets-how-to-wait",
        "a block under several locks ignores backoff and on_wait",
        _LOCK,
        "return AsyncHold(self._client, self._acquiring(waiting), timeout, on_lost, on_busy)",
        "return AsyncHold(self._client, self._acquire_until, timeout, on_lost, on_busy)",
        ("tests/unit/test_clients.py::test_a_block_of_several_locks_waits_as_it_was_told",),
    ),
)
