"""An application of Celery with unique tasks; run by the worker and the beats of `test_celery_locks.py`.

Each run leaves a line in the list `runs`, and waits for the key `go:<customer>` if it is asked to.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import redis
from celery import Celery

import leasehold
from leasehold.integrations.celery import Locks

SERVER = os.environ["SHOP_REDIS"]
TTL = 2.0
PARENT = os.getpid()

app = Celery("shop", broker=f"{SERVER}/1", backend=f"{SERVER}/2")
app.conf.update(
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    leasehold_beat={"ttl": TTL},
    beat_schedule={"often": {"task": "shop.tick", "schedule": 0.2}},
)
locks = Locks(app, f"{SERVER}/3", ttl=TTL)
memory = redis.Redis.from_url(f"{SERVER}/3", decode_responses=True)

with locks.client.lock("before the fork").hold():  # so the children of the pool inherit a client that is in use
    pass


def note(task: Any, **facts: Any) -> None:
    line = {"task": task.name, "id": task.request.id, "pid": os.getpid(), "forked": os.getpid() != PARENT, **facts}
    memory.rpush("runs", json.dumps(line))


def wait_for(key: str) -> None:
    while not memory.exists(key):
        time.sleep(0.02)


@app.task(bind=True, name="shop.invoice")
@locks.unique("invoice:{customer}", retry_in="100ms")  # duplicates are skipped; what comes again is none
def invoice(self: Any, customer: int, month: str, lease: leasehold.Lease = leasehold.CURRENT) -> str:
    note(self, fence=lease.fence, customer=customer, holder=lease.holder.pid)
    if month == "wait":
        wait_for(f"go:{customer}")
    return f"invoice of {customer}"


@app.task(bind=True, name="shop.later", max_retries=0)
@locks.unique("invoice:{customer}", on_duplicate="retry", retry_in="100ms")
def later(self: Any, customer: int) -> str:
    note(self, retries=self.request.retries)
    return "at last"


@app.task(bind=True, name="shop.killed")
@locks.unique("killed:{order}", retry_in="100ms")
def killed(self: Any, order: int, lease: leasehold.Lease = leasehold.CURRENT) -> bool | None:
    note(self, fence=lease.fence)
    if memory.incr(f"attempts:{order}") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return lease.abandoned


@app.task(bind=True, name="shop.slow", soft_time_limit=1)
@locks.unique("slow:{order}", timeout="60s")
def slow(self: Any, order: int) -> None:
    note(self, order=order)
    time.sleep(60)


@app.task(bind=True, name="shop.again", max_retries=3)
@locks.unique("again:{order}", on_duplicate="raise", retry_in="100ms", min_hold=0)
def again(self: Any, order: int) -> str:
    note(self, retries=self.request.retries)
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    return "third time"


@app.task(name="shop.tick", ignore_result=True)
def tick() -> None:
    """Never run here: the beats of the test send it to a queue that the test reads."""
