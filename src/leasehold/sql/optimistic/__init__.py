"""Writing without a lock: versions, units of work that are run again, entity tags."""
