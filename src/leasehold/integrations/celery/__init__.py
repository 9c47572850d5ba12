"""Celery: a task that runs once at a time for the same arguments, and one beat among several.

    locks = Locks(app, "redis://localhost")

    @app.task(acks_late=True, reject_on_worker_lost=True)
    @locks.unique("invoice:{customer_id}", on_duplicate="retry")
    def make_invoice(customer_id, month):
        ...

A lock is taken when a task begins and not when it is sent: what waits in a queue holds nothing, so nothing is left
behind when a queue is purged. For work that shall happen once and not once at a time, see `client.once` and idempotency
keys.
"""

from leasehold.integrations.celery.unique import Locks, OnDuplicate, SkippedTask, was_skipped

__all__ = ["Locks", "OnDuplicate", "SkippedTask", "was_skipped"]
