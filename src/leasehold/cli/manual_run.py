"""The manual pages of the verbs that run a command: run, once and elect."""

from __future__ import annotations

from leasehold.cli.exit_codes import MEANINGS
from leasehold.cli.manual_page import Page

__all__ = ["RUN_PAGES"]


def _codes() -> str:
    return "\n".join(f"  {code:<19}{meaning}" for code, meaning in MEANINGS.items())


_RUN = Page(
    "run a command under a lock",
    "leasehold run NAME [NAME ...] [OPTIONS] -- COMMAND [ARGUMENTS ...]",
    """
Runs COMMAND while holding the lock NAME, and gives the lock back when COMMAND ends. The lock is a
lease: it is renewed while the command runs, and frees itself --ttl after this host has vanished. Several
names are taken together, always in the same order, so that two runs cannot wait for each other.

COMMAND is started without a shell, with this program's stdin, stdout, stderr and environment, in a
process group of its own. INT, TERM, HUP and QUIT are passed on to the whole group, USR1 and USR2 to
the command alone; a second INT kills the group. On a terminal the command gets the keyboard, so
Ctrl-C and Ctrl-Z reach it directly and are not counted: if it ignores Ctrl-C, use Ctrl-\\.

Without -w it waits for ever while the lock is busy, but gives up with 69 if the store could not be
reached for the first ten seconds. With -w both end after that time and not before: a store that
cannot be reached is tried for as long. After a second stderr shows what is waited for: the holder, an
outage of the store, or nodes of Redlock that sit out; how long so far, and the limit. On a terminal that
line is kept up to date, elsewhere it comes again after 10, 20, 40 s and so on, at last every ten minutes.

While renewals fail, stderr shows since when and how much time is left. When the lease is lost (the
store was away for too long, an operator broke the lock) the group gets TERM, and KILL after
--kill-after. The same happens when this program is killed, hangs or is stopped for longer than the
lease lasts: a small watchdog process sees to it. If this program was killed, KILL comes no later
than the end of the lease, so that the next holder never runs beside it. The lock is given
back when the command ends; processes that it left in the background run on without the lock, unless
--wait-group.
A process that has left the group (a daemon) cannot be stopped with it.
""",
    f"""
environment of the command:
  LEASEHOLD_NAME      NAME, if it is one
  LEASEHOLD_FENCE     the fencing token: a number that rises with every grant of this lock. Pass it
                      to the resource, which must refuse lower numbers; that stops a writer that
                      was paused and comes back late:
                        UPDATE report SET ..., fence = :fence
                        WHERE id = 1 AND fence <= :fence
  LEASEHOLD_FENCES    with several names, instead of these two: a JSON object of name and fence
  LEASEHOLD_LEASE     for `leasehold check`, which shows a script whether it still has the lock
  LEASEHOLD_HELD      JSON list of the names held by this command and its callers. `run` refuses a
                      NAME that is in it, with 64: it would wait for itself.

exit codes:
{_codes()}

report:
  --report FILE gets one JSON object when the run is over, also when the command never started (with
  64 if FILE could not be written): outcome (ran, busy, skipped, interrupted, lost, max_hold, not started,
  nested, error), exit_code, command_status, fence (or fences), abandoned (the last holder did not release),
  waited and held in seconds, and the command with its arguments.

examples:
  Skip this night's backup if the last one still runs, silently:
    leasehold run backup -n --on-conflict skip -- /usr/local/bin/backup.sh

  Wait half a minute for a migration, and stop it after an hour:
    leasehold run migrate -w 30s --max-hold 1h -- ./manage.py migrate

  At most three of these at a time:
    leasehold run thumbnails --permits 3 -- ./make-thumbnails

  Several commands are one script:
    leasehold run deploy -- sh -c 'git pull && make install'

  Two locks at once, and a check before the step that matters:
    leasehold run orders invoices -- ./book.sh
    # book.sh: ./prepare && leasehold check --need 1m && ./write
""",  # noqa: S608 - an example for people
)

_ONCE = Page(
    "run a command once per slot across all machines",
    "leasehold once NAME (--every TIME | --cron FIELDS | --slot LABEL) [OPTIONS] -- COMMAND [ARGUMENTS ...]",
    """
Runs COMMAND under the lock NAME, as `leasehold run` does, unless it has been run for this slot
before, on any machine. Put the same line into the crontab of every machine: one of them runs
the job, the others print which one does, and exit with 0.

The slot is decided by the store's clock, so the clocks of the machines need not agree: --every takes
the period that contains the store's time, --cron the tick nearest to it (one that is still to come
only when it is less than a minute away), --slot the label given. A period or tick runs only if it is
later than the last one that ran. A command that ends with another status than 0 leaves its slot open
for the next attempt, unless --close-on-failure.

A slot that must run once more, because its result was bad, is run with --again and --reason: on this
machine, now. Of several operators who do that at the same time, one runs it. The order is logged, and
`leasehold info NAME` shows it. While NAME is paused (`leasehold pause`), no host runs it: each prints
why, and exit with 0; who stands by goes on waiting.

With --on-conflict standby (recommended for cron) the others wait until the job is done, and one of
them takes over if its machine vanishes or it fails. This is not a scheduler: something has to start
it, and missed slots are not made up for. A machine that vanishes between the end of the work and
its record makes the job run twice; give the work an idempotency key of its own, such as
LEASEHOLD_SLOT, where that matters.
""",
    """
environment of the command:
  LEASEHOLD_SLOT      the slot: when it begins, with its offset from UTC, or the label
  and those of `leasehold run`

exit codes:
  0                  the command ended with 0, another run has the slot (stderr shows which), or it is paused
  75                 another run has the slot, with --on-conflict fail (-E N overrides); or --wait ended
  69                 also when the command ran but this could not be recorded: it may run again
  others             as for run

examples:
  leasehold once nightly --cron '0 2 * * *' --on-conflict standby -- ./report.sh
  leasehold once cleanup --every 1h -- ./cleanup.sh
  leasehold once import --slot "$(date -u +%F)" -- ./import.sh
  leasehold once import --slot 2026-11-15 --again --reason "cut off" -- ./import
""",
)

_ELECT = Page(
    "run a command on one machine at a time, for as long as it leads",
    "leasehold elect NAME [OPTIONS] (--observe | -- COMMAND [ARGUMENTS ...])",
    """
Start the same line on every machine: one of them is elected and runs COMMAND, the others wait. It is
for services of which one instance shall work: schedulers, pollers, controllers. COMMAND is started
and supervised as by `leasehold run`, with the same environment.

The term is renewed every --retry. When no renewal was confirmed for --renew-deadline, the leader has
to be doubted: its group gets TERM, and KILL after --kill-after, all before the lease can end
(--ttl) and the next leader starts its command. Then it campaigns again, or exits with 79 after
--exit-on-loss, where systemd or Kubernetes start it again. When COMMAND ends by itself, or after
INT, TERM, HUP or QUIT to this program, it resigns, the next leader follows at once, and this
program exits with the command's code.

A leader that is killed is followed after --ttl at the latest. Only a fence makes sure that nothing
of an old leader arrives late: see LEASEHOLD_FENCE in `leasehold run --help`.

--observe prints the present leader and then each new one, asking the store every --retry.
""",
    """
exit codes:
  the command's own  it ended by itself, or by a signal to this program; 128+N if signal N ended it
  75                 not elected within --wait
  79                 the term was lost, with --exit-on-loss
  130, 143           a signal ended the campaign, or --observe
  others             as for run

examples:
  leasehold elect scheduler -- ./scheduler
  leasehold elect poller --ttl 6s --renew-deadline 4s --retry 1s -- ./poll
  leasehold elect scheduler --observe --json | jq .leader
""",
)

RUN_PAGES = {"run": _RUN, "once": _ONCE, "elect": _ELECT}
