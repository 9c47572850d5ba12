"""The manual page of `queue`. Only text."""

from __future__ import annotations

from leasehold.cli.manual_page import Page

__all__ = ["QUEUE_PAGE"]

QUEUE_PAGE = Page(
    "show, retry and remove the jobs of a leasehold.sql.Queue",
    "leasehold queue {ls,info,retry,purge} [QUEUE|JOB] [OPTIONS]",
    """
The jobs are in the table leasehold_queue of your own database, which --url or the variable
LEASEHOLD_DATABASE names: postgresql://, mysql:// or mariadb://, or the path of a SQLite file.

ls: prints how many jobs each queue has in each state; with QUEUE, --state or --dead, the jobs
themselves, at most 1000 of a queue. LAG is how long the oldest job that is due has been waiting.

info JOB: prints one job with its payload and its last error.

retry JOB: makes a dead job ready again, with all its attempts; retry QUEUE --dead all of a queue.

purge QUEUE: removes jobs that were completed more than a day, or --older-than, ago; with --dead,
those that are dead for so long. A removed job's key may be enqueued again.
""",
    """
exit codes:
  0                  done
  1                  there is no such job, or none to retry or to remove
  64, 69, 70, 78     as for run

examples:
  leasehold queue ls --url postgresql://app@db/shop
  leasehold queue ls refunds --dead --url shop.db
  leasehold queue info 17 --json
  leasehold queue retry refunds --dead
  leasehold queue purge refunds --older-than 7d
""",
)
