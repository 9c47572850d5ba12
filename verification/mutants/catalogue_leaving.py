"""Known bugs that named tests must see: waiting for a busy lock, and leaving in order."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["LEAVING_MUTANTS"]

_BUSY = ("tests/faces/test_busy.py", "tests/unit/test_backoff.py")
_SUITE = ("tests/patterns/test_patterns_memory.py",)
_PROCESSES = "tests/processes/test_leaving_processes.py::"


def _process(test: str) -> tuple[str, ...]:
    return (_PROCESSES + test,)


LEAVING_MUTANTS: tuple[Mutant, ...] = (
    # --- busy
    Mutant(
        "backoff-full-is-equal",
        "full jitter is drawn from the upper half only: contenders come back in a crowd",
        "_backoff.py",
        '        return pause * draw if self.jitter == "full" else pause\n',
        '        return pause * (0.5 + draw / 2) if self.jitter == "full" else pause\n',
        _BUSY,
    ),
    Mutant(
        "backoff-queues",
        "a call with a backoff waits in the queue all the same, without end",
        "_core/acquire.py",
        "    elif how.backoff is None and opened.has_queue:\n",
        "    elif opened.has_queue:\n",
        (_BUSY[0] + "::test_with_backoff_nobody_queues",),
    ),
    Mutant(
        "backoff-one-more",
        "tries=4 tries five times",
        "_backoff.py",
        "        return self.tries is not None and attempt + 1 >= self.tries\n",
        "        return self.tries is not None and attempt >= self.tries\n",
        _BUSY,
    ),
    Mutant(
        "on-busy-runs-the-block",
        "on_busy of hold swallows the timeout: the block runs without the lock",
        "_face/hold.py",
        "                await self._client._when_busy(self._on_busy, busy)\n            raise\n",
        "                return await self._client._when_busy(self._on_busy, busy)  # type: ignore[no-any-return]\n"
        "            raise\n",
        _BUSY,
    ),
    Mutant(
        "on-wait-counts-from-nothing",
        "who is next is told that its place is 0",
        "_core/attempt.py",
        "            on_wait(None if ahead is None else ahead + 1, ",
        "            on_wait(None if ahead is None else ahead, ",
        _BUSY + _SUITE,
    ),
    Mutant(
        "slow-wait-for-all",
        "slow_wait and its level are those of everybody, whatever the lock was made with",
        "_core/attempt.py",
        "            level = spec.slow_wait_level if slow else happened.Waiting.level\n",
        "            level = happened.Waiting.level\n",
        _BUSY,
    ),
    # --- leaving
    Mutant(
        "leaving-tells-nobody",
        "locks are given back before their holders know that it is over",
        "_face/departure.py",
        "            notified = await self._notify(self._ended, half)\n",
        "            notified = self._ended\n",
        _SUITE,
    ),
    Mutant(
        "leaving-gives-back-under-work",
        "a lock whose on_lost has not returned is given back: two are at work",
        "_face/departure.py",
        "        return list(notified)\n",
        "        return list(ended)\n",
        ("tests/faces/test_leaving.py",),
    ),
    Mutant(
        "leaving-into-ones-own-queue",
        "a lock is handed to a waiter of the process that is leaving",
        "_face/departure.py",
        "        await (opened.waiting_calls.leave(half) if self._freeze else opened.waiting_calls.finish(until))\n",
        "        del until\n",
        _process("test_a_process_that_waits_leaves_the_queue_and_ends_by_its_signal"),
    ),
    Mutant(
        "leaving-without-an-end",
        "a store that is away holds the end up until the ttl, however short the time for leaving",
        "_face/departure.py",
        "min(self._deadline, tenure.deadline), 0\n",
        "tenure.deadline, 0\n",
        _SUITE,
    ),
    Mutant(
        "leaving-second-signal",
        "a second signal is not passed on while a callback hangs",
        "_face/signals.py",
        "            self._pass_on(number)  # a second signal\n",
        "            pass  # a second signal\n",
        _process("test_a_second_signal_ends_it_at_once_although_a_callback_hangs"),
    ),
    Mutant(
        "leaving-swallows-the-signal",
        "the previous handler is never called: the program does not end",
        "_face/signals.py",
        "            try:\n                _send(number)\n",
        "            try:\n                number = 0\n",
        _process("test_the_handler_that_was_there_before_ends_the_program"),
    ),
    Mutant(
        "leaving-wakes-the-waiting",
        "calls that wait fail before the signal is passed on: a traceback, and the wrong exit status",
        "_core/waiting_calls.py",
        "            if self.is_frozen:\n                await self._runtime.wait(self._thawed, None)\n",
        "            self._closed = self._closed or self.is_frozen\n",
        _process("test_a_process_that_waits_leaves_the_queue_and_ends_by_its_signal"),
    ),
)
