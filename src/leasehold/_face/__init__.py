"""The interface as coroutines: client, lock, hold and lease. `leasehold._blocking` has its twins for threads."""
