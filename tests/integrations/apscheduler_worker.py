"""A scheduler process: runs a job every second, and says which of them it ran. Words: URL of the store."""

from __future__ import annotations

import os
import sys
import time

from apscheduler.events import EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.schedulers.blocking import BlockingScheduler

import leasehold
from leasehold.integrations.apscheduler import OnceExecutor


def say(event: JobExecutionEvent) -> None:
    what = "ran" if event.retval else "skipped"
    os.write(1, f"{what} {event.scheduled_run_time.timestamp():.0f}\n".encode())


def main() -> None:
    client = leasehold.connect(sys.argv[1], ttl=2)
    scheduler = BlockingScheduler(executors={"default": OnceExecutor(client)}, timezone="UTC")
    scheduler.add_listener(say, EVENT_JOB_EXECUTED)
    scheduler.add_job(time.sleep, "cron", (0.05,), second="*", id="every-second")
    scheduler.start()


if __name__ == "__main__":
    main()
