"""The manual pages of the verbs for operators of jobs. Only text."""

from __future__ import annotations

from leasehold.cli.manual_page import Page

__all__ = ["JOB_PAGES"]

_PAUSE = Page(
    "grant a lock, or run a job, no more for now, with a reason",
    "leasehold pause NAME --reason TEXT [--for TIME] [OPTIONS]",
    """
From now on the lock NAME is not granted, until `leasehold resume NAME` or for the time of --for. Who holds
it keeps it, renews it and gives it back as ever. A refused claim is shown why and by whom: `run -n` ends with
75, `once` skips with 0. Who waits goes on waiting, keeps its place, and gets it after the pause.

The pause is kept in the store: it needs no process, and outlives this one. Pausing again replaces it.
It is logged. Some stores cannot do it (ZooKeeper, etcd, Redlock, PostgreSQL with mode=session), and
refuse with 78.
""",
    """
exit codes:
  0                  paused
  64, 69, 70, 77, 78 as for run

examples:
  leasehold pause nightly --reason "the mail server is being moved" --for 2h
  leasehold ls
""",
)

_RESUME = Page(
    "end a pause",
    "leasehold resume NAME [OPTIONS]",
    "Ends the pause of NAME: the next waiter gets it at once. It is logged, with the user.",
    """
exit codes:
  0                  resumed
  1                  it was not paused
  64, 69, 70, 77, 78 as for run

examples:
  leasehold resume nightly
""",
)

_FORGET = Page(
    "make a job forget a slot, so that it can run again",
    "leasehold forget NAME --slot LABEL --reason TEXT [OPTIONS]",
    """
Drops the record of one slot of a job of `leasehold once`: the next attempt for that slot runs, on
whichever machine it comes from. LABEL is the slot as `leasehold info NAME` shows it. To run it at once and
here, use `leasehold once NAME ... --again`. For a job with --every or --cron only its last slot is
remembered, and the present one runs when it is attempted; slots of the past do not come again.

The user and the reason are logged, and shown by `leasehold info`. A paused job can be made to forget.
""",
    """
exit codes:
  0                  forgotten
  1                  there is no record of that slot
  75                 the job is running
  64, 69, 70, 77, 78 as for run

examples:
  leasehold forget import --slot 2026-11-15 --reason "the file was cut off"
""",
)

JOB_PAGES = {"pause": _PAUSE, "resume": _RESUME, "forget": _FORGET}
