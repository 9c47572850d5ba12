"""The manual pages of the dashboard and of the demonstration. Only text."""

from __future__ import annotations

from leasehold.cli.manual_page import Page

__all__ = ["UI_PAGES"]

_UI = Page(
    "serve the dashboard: all locks of a store in a browser",
    "leasehold ui [--listen HOST:PORT] [--auth FILE] [OPTIONS]",
    """
Shows locks, their holders and queues, leaders, jobs, idempotency keys, partitions and the retry queue,
and what doctor finds, at http://127.0.0.1:9480/ and as JSON below /api/v1. It needs the extra web.

It changes nothing. With --write, or for users whose role is write, locks can be broken and paused; each
order needs a confirmation and a reason, and is written into the audit before it is carried out.

It listens at the loopback address, where every user of this host can look. Any other address is
refused without --auth or --proxy-user:
  --auth FILE        a line name:role:hash for each user, with the role read or write; make a hash with
                     leasehold ui --hash-password. Passwords travel as they are: put TLS in front.
  --proxy-user NAME  the header in which a proxy names the user it has let in. It is believed only if
                     the request comes from a --proxy-address, and is read-only but for each --writer.

A store has no mark on the lock of an election and no list of jobs: name them with --election and --job.
""",
    """
exit codes:
  0                  INT or TERM ended it
  64, 70, 77, 78     as for run; 78 also for an address that is in use, or open without --auth

examples:
  leasehold ui --url redis://db-1
  leasehold ui --url redis://db-1 --write --audit /var/log/orders.jsonl
  leasehold ui --url redis://db-1 --listen 10.0.0.7:9480 --auth users
""",
)

_DEMO = Page(
    "see a paused holder damage data, and a fence prevent it",
    "leasehold demo [--ui] [OPTIONS]",
    """
Four worker processes increment a balance under a lock. One is stopped in the middle of its work for
longer than its lease; another takes over; then the first wakes up and writes. The same story runs
with and without the fence guard, and the two balances are shown side by side. It uses a temporary
directory, needs no server, and ends by itself within 30 seconds.

With --ui the dashboard shows the store of the demonstration, with a small fleet at work in it, and stays
until Ctrl-C.
""",
    """
exit codes:
  0                  the additions were lost without the guard, and none with it
  1                  it went otherwise, or took too long
""",
)

UI_PAGES = {"ui": _UI, "demo": _DEMO}
