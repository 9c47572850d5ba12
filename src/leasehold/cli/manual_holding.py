"""The manual pages of hold, wait and check."""

from __future__ import annotations

from leasehold.cli.manual_page import Page

__all__ = ["HOLDING_PAGES"]

HOLDING_PAGES = {
    "hold": Page(
        "hold a lock without a command, while you work by hand",
        "leasehold hold NAME [NAME ...] [--for TIME] [--reason TEXT] [OPTIONS]",
        """
Takes the lock NAME and holds it in the foreground until Ctrl-C, until TERM, or for the time of --for; then
it is given back. With several names all are taken, or none. When it has the lock it prints a line with the
fence on stdout, which a script can wait for. It renews the lease as `run` does; if this host vanishes, the
lock is free after --ttl.

Other claims wait meanwhile, and are shown your name and --reason. To keep all claims out without a process
of yours, also over a restart of this host, use `leasehold pause NAME --for 2h --reason TEXT` instead.
""",
        """
exit codes:
  0                  it was held to the end: Ctrl-C, TERM, or --for is over
  75                 the lock is busy, or the wait ran out (-E N overrides)
  79                 the lease was lost before that; stderr shows why
  130, 143           a signal ended the wait for the lock
  others             as for run

examples:
  leasehold hold deploy --for 2h --reason "database move"
  leasehold hold orders invoices -n --for 10m
""",
    ),
    "wait": Page(
        "wait until a lock is free",
        "leasehold wait NAME [-w TIME] [OPTIONS]",
        """
Returns when NAME is free and not paused. It only looks, once per --every: it takes no lock,
stands in no queue and writes nothing. Between two holders that follow each other closely it may see no
gap; and when it returns, another process may have taken the lock already. To do something while no other
process can, use `leasehold run`.
""",
        """
exit codes:
  0                  it is free
  75                 still held when --wait was over (-E N overrides)
  130                ended with Ctrl-C
  64, 69, 70, 77, 78 as for run

examples:
  leasehold wait migrate -w 10m && ./start-server
""",
    ),
    "check": Page(
        "inside a run: is the lock still held, and for long enough?",
        "leasehold check [--need TIME] [OPTIONS]",
        """
Use it inside a command of `leasehold run`, `once` or `elect`, before a step that must not be done without
the lock. It asks the leasehold around it for how long the lease surely lasts, as far as the last renewal
that was confirmed goes: no store is asked, so it costs no more than a start of this program. It prints
nothing when all is well. Where runs are nested, all their locks must be held.

A lease can end right after the check; LEASEHOLD_FENCE lets the resource itself refuse what comes late.
Systems other than Linux have no such record: there it asks the store, which --url or LEASEHOLD_URL names.
""",
        """
exit codes:
  0                  it is held for at least --need
  79                 it is lost, or ends too soon
  64                 there is no leasehold around this process
  77                 the leasehold around it belongs to another user
  69, 70, 78         as for run

examples:
  leasehold check --need 30s || exit 79
  leasehold check --json | jq .remaining
""",
    ),
}
