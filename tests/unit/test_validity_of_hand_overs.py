"""A grant that came by message is believed from an instant that cannot be too late, however two clocks drift."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from leasehold._core.validity import believed_until
from leasehold.backends.rules import handed_over_since

RATES = some.floats(0.995, 1.005)  # of a clock, in seconds a second: together they may differ by a hundredth


@given(RATES, RATES, some.floats(0, 60), some.floats(0, 1), some.floats(1, 60))
def test_it_is_not_believed_longer_than_it_is_kept(
    here: float, there: float, waited: float, way: float, ttl: float
) -> None:
    sent = 100.0  # on our clock; from here on in true time: the answer after `way`, the grant after `waited` more
    passed = waited * there
    made = way + waited
    ends = made + ttl / there
    believed = (believed_until(handed_over_since(sent, passed), ttl) - sent) / here
    assert believed < ends
