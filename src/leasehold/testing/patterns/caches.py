"""Values that are built once: `client.cache`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leasehold.testing.contract.expect import raises
from leasehold.testing.patterns.registry import pattern_case
from leasehold.values import Capability

if TYPE_CHECKING:
    from leasehold._patterns.cache import AsyncCache
    from leasehold.testing.contract.lab import Lab

LONG = 3600.0  # a ttl for cases in which nothing expires


class Source:
    """What is expensive to ask: counts its builds, and holds them up on demand."""

    def __init__(self, lab: Lab, *, held: bool = False) -> None:
        self._lab = lab
        self._open = lab.runtime.signal()
        self.builds: int = 0
        self.fails = False
        if not held:
            self._open.set()

    async def build(self) -> Any:
        """Give the number of the build."""
        self.builds += 1
        number = self.builds
        await self._lab.runtime.wait(self._open, None)
        if self.fails:
            raise ZeroDivisionError
        return {"number": number}

    def hold(self) -> None:
        """Let builds begin, and not end."""
        self._open.clear()

    def let_go(self) -> None:
        """Let builds end."""
        self._open.set()


def _cache(lab: Lab, **options: Any) -> AsyncCache:
    """The same cache, on a client of its own."""
    return lab.client(ttl=LONG).cache("prices", **{"ttl": LONG, "jitter": 0, **options})


@pattern_case(Capability.RECORD)
async def a_value_is_built_once_and_read_by_every_other_client(lab: Lab) -> None:
    source = Source(lab)
    assert await _cache(lab).get("x", source.build) == {"number": 1}
    assert await _cache(lab).get("x", source.build) == {"number": 1}
    assert await _cache(lab).get("y", source.build) == {"number": 2}


@pattern_case(Capability.RECORD)
async def first_callers_of_all_clients_wait_for_one_build(lab: Lab) -> None:
    source = Source(lab, held=True)
    first, other = _cache(lab), _cache(lab)
    calls = [lab.spawn(first.get("x", source.build))]
    await lab.eventually(lambda: source.builds == 1, "the first one builds")
    calls += [lab.spawn(first.get("x", source.build)), lab.spawn(other.get("x", source.build))]
    await lab.waiting("cache:6:prices:x", 1)
    source.let_go()
    for call in calls:
        assert await call.join() == {"number": 1}
    assert source.builds == 1


@pattern_case(Capability.RECORD)
async def while_one_builds_again_all_others_get_the_stale_value_at_once(lab: Lab) -> None:
    source, ttl = Source(lab), lab.ttl
    builder, other = _cache(lab, ttl=ttl, stale=LONG), _cache(lab, ttl=ttl, stale=LONG)
    await builder.get("x", source.build)
    await lab.pass_time(ttl * 1.5)
    source.hold()
    building = lab.spawn(builder.get("x", source.build))
    await lab.eventually(lambda: source.builds == 2, "one builds again")
    for cache in (builder, other):
        assert await cache.get("x", source.build) == {"number": 1}
    source.let_go()
    assert await building.join() == {"number": 2}
    assert source.builds == 2


@pattern_case(Capability.RECORD)
async def a_value_is_gone_when_it_has_been_stale_for_long_enough(lab: Lab) -> None:
    source = Source(lab)
    cache = _cache(lab, ttl=lab.ttl, stale=0)
    await cache.get("x", source.build)
    await lab.pass_time(lab.ttl * 2.5)
    assert await cache.get("x", source.build) == {"number": 2}


@pattern_case(Capability.RECORD)
async def when_a_build_fails_the_stale_value_is_given_out(lab: Lab) -> None:
    source = Source(lab)
    cache = _cache(lab, ttl=lab.ttl, stale=0, stale_if_error=LONG)
    await cache.get("x", source.build)
    await lab.pass_time(lab.ttl * 1.5)
    source.fails = True
    assert await cache.get("x", source.build) == {"number": 1}
    assert source.builds == 2
    await raises(ZeroDivisionError, cache.get("never built", source.build))


@pattern_case(Capability.RECORD)
async def what_was_built_before_a_forget_is_not_stored_after_it(lab: Lab) -> None:
    source, late = Source(lab), Source(lab, held=True)
    cache, other = _cache(lab), _cache(lab)
    building = lab.spawn(cache.get("x", late.build))
    await lab.eventually(lambda: late.builds == 1, "one builds")
    await other.forget("x")
    late.let_go()
    assert await building.join() == {"number": 1}
    source.builds = 10
    assert await cache.get("x", source.build) == {"number": 11}
    assert await other.get("x", source.build) == {"number": 11}


@pattern_case(Capability.RECORD)
async def put_wins_over_a_build_that_is_under_way(lab: Lab) -> None:
    late = Source(lab, held=True)
    cache, other = _cache(lab), _cache(lab)
    building = lab.spawn(cache.get("x", late.build))
    await lab.eventually(lambda: late.builds == 1, "one builds")
    await other.put("x", "new")
    late.let_go()
    assert await building.join() == "new"
    assert await cache.get("x", late.build) == "new"


@pattern_case(Capability.RECORD)
async def many_puts_and_forgets_do_not_keep_a_value_from_being_stored(lab: Lab) -> None:
    source, late = Source(lab), Source(lab, held=True)
    cache = _cache(lab)
    building = lab.spawn(cache.get("x", late.build))
    await lab.eventually(lambda: late.builds == 1, "one builds, so that the others have no lock")
    for number in range(3):
        await cache.put("x", number)
        await cache.forget("x")
    late.let_go()
    await building.join()
    assert await cache.get("x", source.build) == {"number": 1}
    assert await _cache(lab).get("x", source.build) == {"number": 1}


@pattern_case(Capability.RECORD)
async def refresh_builds_what_is_fresh(lab: Lab) -> None:
    source = Source(lab)
    cache = _cache(lab)
    await cache.get("x", source.build)
    assert await cache.refresh("x", source.build) == {"number": 2}
    assert await _cache(lab).get("x", source.build) == {"number": 2}
