"""The manual page of the exporter. Only text."""

from __future__ import annotations

from leasehold.cli.manual_page import Page

__all__ = ["EXPORTER"]

EXPORTER = Page(
    "serve the locks of the whole fleet as metrics",
    "leasehold exporter [--listen HOST:PORT] [OPTIONS]",
    """
Answers GET /metrics with gauges for Prometheus: locks that are held, calls that wait, the longest hold
and the queue that has stood still for longest, for each group of names. One of these per store is
enough: it shows what is in the store, whichever process put it there. The metrics of single
processes (waits, losses, renewals) come from leasehold.telemetry in those processes.

No name of a lock is in a label. The group of a lock is what stands before the first : or / of its
name, or the longest --group that its name begins with; at most --max-groups, the others count as other.

The store is read at each scrape, page by page, and at most once per --max-age. While it does
not answer, leasehold_up is 0 and the gauges are missing; they come back with the store. /healthz
answers 200 for as long as this program runs.

It listens at 127.0.0.1 by default, answers every client that can reach it, and changes nothing.
""",
    """
exit codes:
  0                  INT or TERM ended it
  64, 70, 77, 78     as for run; 78 also for a store inside one process, and an address that is in use

examples:
  leasehold exporter --url redis://db-1
  leasehold exporter --url redis://db-1 --listen 10.0.0.7:9479 --group order:
""",
)
