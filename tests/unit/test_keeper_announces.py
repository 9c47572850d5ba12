"""What the keeper says about leases that their holders have let go of."""

from __future__ import annotations

import time

import leasehold
from leasehold import events
from leasehold.testing import ManualStore


def test_a_loss_that_its_holder_saw_first_is_announced_as_a_loss_and_not_as_dropped() -> None:
    store = ManualStore()
    seen: list[events.Event] = []
    with store.connect(ttl=30) as client:
        client.on_event(seen.append)
        lease = client.lock("report").acquire()
        store.clock.advance(31)
        assert lease.loss is not None
        del lease  # before the keeper could look
        patience = time.monotonic() + 30
        while len(seen) < 2 and time.monotonic() < patience:
            time.sleep(0.001)
    assert [type(event) for event in seen] == [events.Acquired, events.Lost]
    assert isinstance(seen[1], events.Lost)
    assert seen[1].loss.reason is leasehold.LossReason.EXPIRED
