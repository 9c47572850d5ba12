"""For tests of your own: a store with a manual clock, scripted faults, and the contract that every store keeps.

from leasehold.testing import ManualStore

store = ManualStore()
client = store.connect()
lease = client.lock("report").acquire()
store.clock.advance(31)             # as if the host had slept for 31 seconds
assert lease.lost.is_set()
"""

from leasehold.testing.clock import ManualClock
from leasehold.testing.faults import Faults, FaultyBackend
from leasehold.testing.losing import lose
from leasehold.testing.manual import ManualStore

__all__ = ["Faults", "FaultyBackend", "ManualClock", "ManualStore", "lose"]
