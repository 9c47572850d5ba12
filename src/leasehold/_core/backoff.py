"""The core's own pauses: which `Backoff` it uses for what."""

from __future__ import annotations

from leasehold._backoff import Backoff

__all__ = ["CONTENTION", "GRACE", "OUTAGE", "Backoff"]

GRACE = 1.0  # seconds by which a call may exceed its timeout, to learn the outcome of a request without answer
CONTENTION = Backoff()  # the lock is held, and the store has no queue
OUTAGE = Backoff((0.020, 0.100, 0.500, 1.000), longest=1.000)  # the store did not answer
