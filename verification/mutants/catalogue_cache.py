"""Known bugs of caches: two builds per cycle, readers that wait for nothing, values that come back."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["CACHE_MUTANTS"]

_CACHE = "_patterns/cache.py"
_BUILD = "_patterns/cache_build.py"
_ENTRY = "_patterns/cache_entry.py"
_OPTIONS = "tests/faces/test_pattern_options.py::"
_SINGLE_FLIGHT = "_patterns/single_flight.py"


def _face(name: str) -> tuple[str, ...]:
    """One test of the blocking or async face."""
    return (f"tests/faces/test_cache.py::{name}",)


CACHE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "cache-not-read-again",
        "who gets the try-lock builds without a second look, so that there are two builds per cycle",
        _BUILD,
        "        if entry is not None and seen is not None and _raw(reading) != _raw(seen) and "
        "reading.time < entry.expires:\n",
        "        if entry is not None and seen is not None and seen.time < 0:\n",
        _face("test_who_gets_the_lock_reads_again_and_does_not_build_twice"),
    ),
    Mutant(
        "cache-readers-wait",
        "readers of a value that is due wait for the one that builds it",
        _BUILD,
        "                outcome = await self._lead(mine, self._lock.try_acquire, reading)\n",
        "                outcome = await self._lead(mine, lambda: self._lock._acquire_until(None), reading)\n",
        _face("test_a_reader_who_comes_while_another_process_builds_gets_the_present_value"),
    ),
    Mutant(
        "cache-unfenced-fill",
        "a builder reads without its fence, so that an earlier one can still write",
        _BUILD,
        "            self._opened, self._lock.name, self._key, lease.fence, self._runtime.now() + lease.remaining()\n",
        "            self._opened, self._lock.name, self._key, 0, self._runtime.now() + lease.remaining()\n",
        _face("test_a_forget_during_a_build_is_not_undone_by_it_nor_by_those_who_share_it"),
    ),
    Mutant(
        "cache-forget-undone",
        "a forget writes under the fence of the build that is under way, which then brings the value back",
        _CACHE,
        "            fence = ours if ours >= reading.fence else reading.fence + 1\n",
        "            fence = max(ours, reading.fence)\n",
        _face("test_a_forget_during_a_build_is_not_undone_by_it_nor_by_those_who_share_it"),
    ),
    Mutant(
        "cache-shares-what-was-forgotten",
        "who asks after a forget shares a build that began before it",
        _SINGLE_FLIGHT,
        "        if shared.fence is not None and shared.fence < fence:\n",
        "        if shared.fence is not None and shared.fence < -fence:\n",
        _face("test_a_forget_during_a_build_is_not_undone_by_it_nor_by_those_who_share_it"),
    ),
    Mutant(
        "cache-build-never-finished",
        "an interrupted builder leaves its build behind, and those who share it wait for ever",
        _BUILD,
        "        finally:\n            finish(self._opened, mine, outcome)\n        if shared is not mine:\n",
        "        except Exception:\n            outcome = GAVE_UP\n"
        "        finish(self._opened, mine, outcome)\n        if shared is not mine:\n",
        _face("test_when_the_builder_is_interrupted_one_who_waited_builds"),
    ),
    Mutant(
        "cache-lock-kept",
        "a builder that is interrupted keeps the lock for its ttl",
        _BUILD,
        "            except BaseException:\n                await let_go(lease)\n                raise\n",
        "",
        _face("test_a_cancelled_builder_leaves_the_lock_free_and_another_builds"),
    ),
    Mutant(
        "cache-no-hold-off",
        "a build that fails is tried again by every reader",
        _BUILD,
        "        self._hold_off[self._key] = self._runtime.now() + HOLD_OFF\n",
        "",
        _face("test_a_failed_build_gives_the_stale_value_a_warning_and_a_pause"),
    ),
    Mutant(
        "cache-never-early",
        "the draw has the wrong sign, and refresh comes late instead of early",
        _ENTRY,
        "    return now - took * beta * math.log(draw) >= expires\n",
        "    return now + took * beta * math.log(draw) >= expires\n",
        ("tests/unit/test_cache_entry.py::test_the_smaller_the_draw_the_earlier_it_is_due",),
    ),
    Mutant(
        "cache-built-without-end",
        "the slower the source, the more often it is asked: a value is built again as soon as it is there",
        _ENTRY,
        "    is_young = now < entry.expires - policy.ttl / 2\n",
        "    is_young = False\n",
        ("tests/unit/test_cache_entry.py::test_no_value_is_built_again_in_the_first_half_of_its_life",),
    ),
    Mutant(
        "cache-stale-for-ever",
        "an expired value is given out for as long as it is stored",
        _ENTRY,
        "    if entry is None or now >= entry.expires + policy.stale:\n",
        "    if entry is None or now >= entry.expires + policy.longest_stale:\n",
        ("tests/unit/test_cache_entry.py::test_what_a_reader_may_do",),
    ),
    Mutant(
        "cache-timeout-of-another",
        "those who share a build get the timeout of the one that led it, however long they would have waited",
        _BUILD,
        "            raise  # our own deadline; those who share the build have theirs\n",
        "            return Outcome(error=AcquireTimeout(self._lock.name))\n",
        (f"{_OPTIONS}test_who_shares_a_build_does_not_get_the_timeout_of_the_one_that_led_it",),
    ),
)
