"""One beat among several: the scheduler for `celery beat`, on as many hosts as you like.

    celery -A shop beat -S leasehold.integrations.celery.beat:LeaderScheduler

The leader holds a lock and sends; the others wait for it. When the leader stops, the next one has it at once; when it
vanishes, after the ttl. What was sent last, of schedules of a minute and more, is remembered in the store, so that a
successor neither repeats it nor leaves out what came due meanwhile. A leader that vanishes between sending and
remembering makes its successor send that once more.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from celery.beat import PersistentScheduler

from leasehold.errors import AcquireTimeout, BackendError, LeaseLost
from leasehold.integrations.celery.clients import PREFIX, client_of, close_client

if TYPE_CHECKING:
    from celery.beat import ScheduleEntry

    from leasehold import Lease

__all__ = ["LeaderScheduler"]

NAME = "celery-beat"
TTL = 15.0
WAIT = 2.0  # how long one look for the leadership waits in line; a signal ends it at once
REMEMBERED = timedelta(minutes=1)

logger = logging.getLogger("leasehold.celery")


class LeaderScheduler(PersistentScheduler):
    """The scheduler of Celery, which sends only while it leads.

    `leasehold_url` and so on say where; `leasehold_beat = {"name": ..., "ttl": ...}` which lock, and how long after a
    crash the next beat takes over (15 s).
    """

    def __init__(self, app: Any, *args: Any, **kwargs: Any) -> None:
        options = {"name": NAME, "ttl": TTL, **app.conf.get(f"{PREFIX}beat", {})}
        self._name = options["name"]
        self._lock = client_of(app).lock(self._name, ttl=options["ttl"], slow_wait=None)
        self._lease: Lease | None = None
        self._is_ticking = False
        client_of(app).once(self._name, slot="start")  # refuses a store without records now, not at the first tick
        super().__init__(app, *args, **kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send what is due, if this is the leader; the seconds until the next call."""
        self._is_ticking = True
        try:
            if not self._leads():
                return 0
            return float(super().tick(*args, **kwargs))
        except LeaseLost as lost:
            logger.warning("this beat no longer leads, and sends nothing: %s", lost)
        except BackendError as error:
            logger.warning("this beat cannot reach its locks, and sends nothing: %s", error)
            self._resign()
        finally:
            self._is_ticking = False
        return WAIT

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send one task, unless the leadership is over; and remember when."""
        if self._lease is not None:
            self._lease.check()
        if not _is_remembered(entry):
            super().apply_entry(entry, producer=producer)
            return
        sent = self._job(entry, entry.default_now().isoformat())
        sent.run(super().apply_entry, entry, producer=producer)

    def close(self) -> None:
        """Let the next one lead.

        Celery calls it in its signal handler, and again when the service ends. A handler that has interrupted a tick
        must not ask for a lock: the interrupted call may be in the middle of something that the release would wait for.
        """
        super().close()
        if not self._is_ticking:
            self._resign()
            close_client(self.app)

    def _leads(self) -> bool:
        if self._lease is not None and self._lease.remaining() > 0:
            return True
        self._lease = None
        try:
            self._lease = self._lock.acquire(WAIT)
        except AcquireTimeout:
            return False
        logger.info("this beat leads %r (fence %d)", self._name, self._lease.fence)
        self._take_over()
        return True

    def _take_over(self) -> None:
        """Go on where the leader before has stopped."""
        for entry in self.schedule.values():
            if not _is_remembered(entry):
                entry.last_run_at = entry.default_now()
                continue
            last = client_of(self.app).last_run(self._job_name(entry))
            if last is not None:
                entry.last_run_at = datetime.fromisoformat(last.slot)
        self._heap = None  # made anew from the entries

    def _resign(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                lease.release()
            except BackendError:
                return  # its ttl ends it

    def _job(self, entry: ScheduleEntry, slot: str) -> Any:
        return client_of(self.app).once(self._job_name(entry), slot=slot)

    def _job_name(self, entry: ScheduleEntry) -> str:
        return f"{self._name}:{entry.name}"


def _is_remembered(entry: ScheduleEntry) -> bool:
    """A record for every tick of a schedule of seconds would be too many, and a tick lost between two leaders few."""
    every = getattr(entry.schedule, "run_every", None)
    return not (isinstance(every, timedelta) and every < REMEMBERED)
