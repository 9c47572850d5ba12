"""Real processes: killed, paused, forked."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from leasehold.testing.contract.registry import store_case

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab


@store_case(processes=True)
async def a_killed_holder_is_succeeded(lab: Lab) -> None:
    child = lab.child("x", str(lab.ttl))
    held, fence = child.line().split()
    assert held == "held"
    client = lab.client()
    assert await client.lock("x").try_acquire() is None
    child.signal(signal.SIGKILL)
    child.wait()
    lease = await client.lock("x").acquire(timeout=lab.ttl * 30)
    assert lease.fence > int(fence)
    await lease.release()


@store_case(processes=True)
async def a_paused_holder_is_succeeded_and_knows_it_when_it_wakes(lab: Lab) -> None:
    child = lab.child("x", str(lab.ttl))
    fence = int(child.line().split()[1])
    child.signal(signal.SIGSTOP)
    lease = await lab.client().lock("x").acquire(timeout=lab.ttl * 30)
    assert lease.fence > fence
    child.say("check")
    child.signal(signal.SIGCONT)
    assert child.line().startswith("lost"), "the first thing after the pause must be the loss"
    child.say("release")
    assert child.line() == "released False"
    lease.check()
    await lease.release()


@store_case(processes=True)
async def a_paused_waiter_does_not_stop_the_queue_for_ever(lab: Lab) -> None:
    client = lab.client()
    first = await client.lock("x").acquire()
    child = lab.child("x", str(lab.ttl))
    if "fifo" in lab.capabilities:
        await lab.waiting("x", 1)
    else:
        await lab.runtime.sleep(0.5)  # our own lease is renewed meanwhile
    child.signal(signal.SIGSTOP)
    await first.release()
    lease = await client.lock("x").acquire(timeout=lab.ttl * 30)
    await lease.release()
    child.signal(signal.SIGCONT)
    assert child.line().startswith("held"), "it waits in the queue again when it wakes"
    child.say("check")
    assert child.line() == "ok", "and never returns a lease that is over"


@store_case(processes=True)
async def a_forked_child_does_not_own_what_its_parent_holds(lab: Lab) -> None:
    child = lab.child("x", str(lab.ttl))
    child.line()
    child.say("fork")
    seen = child.line()
    assert seen == "lost forked, released False, other True", seen
    time.sleep(lab.ttl * 1.5)  # the parent goes on renewing
    child.say("check")
    assert child.line() == "ok"
    child.say("release")
    assert child.line() == "released True"
