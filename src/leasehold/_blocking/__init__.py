"""The blocking face: the same names, signatures and errors as the async one, each method one `run(...)` line.

The one difference: a lost lease cannot interrupt a thread, so it sets `lost` and calls `on_lost`.
"""

from leasehold._blocking.client import Client, connect
from leasehold._blocking.lease import Hold, Lease, LeaseSet, Lost
from leasehold._blocking.lock import Lock, LockSet, Mutex, RWLock

__all__ = ["Client", "Hold", "Lease", "LeaseSet", "Lock", "LockSet", "Lost", "Mutex", "RWLock", "connect"]
