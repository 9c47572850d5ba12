"""The manual: one page per verb, in the order that man pages have. Only text."""

from __future__ import annotations

from leasehold.cli.exit_codes import MEANINGS
from leasehold.cli.manual_advice import CHOOSE_PAGE, EXPLAIN_PAGE
from leasehold.cli.manual_exporter import EXPORTER as _EXPORTER
from leasehold.cli.manual_fence import FENCE_PAGE
from leasehold.cli.manual_jobs import JOB_PAGES
from leasehold.cli.manual_page import Page
from leasehold.cli.manual_queue import QUEUE_PAGE
from leasehold.cli.manual_ui import UI_PAGES

__all__ = ["OVERVIEW", "PAGES", "Page"]


def _codes() -> str:
    return "\n".join(f"  {code:<19}{meaning}" for code, meaning in MEANINGS.items())


OVERVIEW = """\
usage: leasehold VERB [OPTIONS]

Runs commands under a lock that many machines share, and shows which locks are held, and by whom.

verbs:
{verbs}

The store is named with --url or the variable LEASEHOLD_URL. There is no default: fifty servers that
each locked a private file would run the job fifty times.

  local:              the embedded file of this user on this host
  sqlite:////path     an embedded file that all users of this host may share
  redis://host        a server that many hosts share; `leasehold choose` helps to choose

examples:
  leasehold run nightly --url local: -- ./backup.sh
  leasehold ls --waiters
  leasehold info nightly
  leasehold doctor sqlite:////var/lib/app/locks.db

`leasehold VERB --help` is the manual page of a verb; `leasehold --version` prints the version.
Data goes to stdout, messages to stderr. NO_COLOR or TERM=dumb turn off lines updated in place."""

_RUN = Page(
    "run a command under a lock",
    "leasehold run NAME [OPTIONS] -- COMMAND [ARGUMENTS ...]",
    """
Runs COMMAND while holding the lock NAME, and gives the lock back when COMMAND ends. The lock is a
lease: it is renewed while the command runs, and frees itself --ttl after this host has vanished.

COMMAND is started without a shell, with this program's stdin, stdout, stderr and environment, in a
process group of its own. INT, TERM, HUP and QUIT are passed on to the whole group, USR1 and USR2 to
the command alone; a second INT kills the group. On a terminal the command gets the keyboard, so
Ctrl-C and Ctrl-Z reach it directly and are not counted: if it ignores Ctrl-C, use Ctrl-\\.

Without -w it waits for ever while the lock is busy, but gives up with 69 if the store could not be
reached for the first ten seconds. With -w both end after that time and not before: a store that
cannot be reached is tried for as long. Each kind of wait is announced on stderr after a second.

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
  LEASEHOLD_NAME      NAME
  LEASEHOLD_FENCE     the fencing token: a number that rises with every grant of this lock. Pass it
                      to the resource, which must refuse lower numbers; that stops a writer that
                      was paused and comes back late:
                        UPDATE report SET ..., fence = :fence WHERE id = 1 AND fence <= :fence
  LEASEHOLD_HELD      JSON list of the names held by this command and its callers. `run` refuses a
                      NAME that is in it, with 64: it would wait for itself.

exit codes:
{_codes()}

report:
  --report FILE gets one JSON object when the run is over, also when the command never started (with
  64 if FILE could not be written):
  outcome (ran, busy, skipped, interrupted, lost, max_hold, not started, nested, error), exit_code,
  command_status, fence, abandoned (the last holder did not release), waited and held in seconds.

examples:
  Skip this night's backup if the last one still runs, without a message to cron:
    leasehold run backup -n --on-conflict skip -- /usr/local/bin/backup.sh

  Wait half a minute for a migration, and stop it after an hour:
    leasehold run migrate -w 30s --max-hold 1h --reason "release 42" -- ./manage.py migrate

  At most three of these at a time:
    leasehold run thumbnails --permits 3 -- ./make-thumbnails

  Several commands are one script:
    leasehold run deploy -- sh -c 'git pull && make install'
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
`leasehold info NAME` shows it. While NAME is paused (`leasehold pause`), nobody runs it: the others print
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
  0 2 * * *  leasehold once nightly --cron '0 2 * * *' --on-conflict standby -- ./report.sh
  leasehold once cleanup --every 1h -- ./cleanup.sh
  leasehold once import --slot "$(date -u +%F)" -- ./import.sh
  leasehold once import --slot 2026-11-15 --again --reason "the file was cut off" -- ./import.sh
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

_LS = Page(
    "list the locks that are in use",
    "leasehold ls [PREFIX] [--waiters] [OPTIONS]",
    """
Lists the locks that are held, waited for or paused, in order of name, one line for each holder and
for each pause. The time left is on the store's clock; a holder that is alive renews it.
""",
    """
exit codes:
  0                  the list is printed, even if it is empty
  64, 69, 70, 77, 78 as for run

examples:
  leasehold ls
  leasehold ls payment: --waiters
  leasehold ls --json | jq -r 'select(.waiting | length > 5) | .name'
""",
)

_INFO = Page(
    "show one lock: holder, fence, queue",
    "leasehold info NAME [OPTIONS]",
    """
Shows the holders of a lock, since when and why, its waiters, and the command that would end the
lease; whether an operator has paused it, and why; and if it is a job of `leasehold once`, the last slot
that was run, by which process and when. A run is remembered for as long as its slot; the last of a job
with labels, or one that failed, for a month. That a lock is held does not mean that its holder makes
progress: it may hang.
""",
    """
exit codes:
  0                  the lock is held
  1                  nobody holds it, paused or not
  64, 69, 70, 77, 78 as for run

examples:
  leasehold info nightly
  leasehold info import --slot 2026-11-15
  until ! leasehold info nightly -q > /dev/null; do sleep 1; done
""",
)

_WATCH = Page(
    "show locks as they change",
    "leasehold watch [PREFIX] [--every TIME] [OPTIONS]",
    """
Shows the locks in use and keeps the table up to date until Ctrl-C. Without a terminal it prints a
line for each change instead: held, free, waiting, left (gave up waiting), broken, cooling (released,
but kept for its --min-hold), paused, resumed. It looks once per --every; what comes and goes in between is not seen.
""",
    """
exit codes:
  130                ended with Ctrl-C
  64, 69, 70, 77, 78 as for run

examples:
  leasehold watch payment:
  leasehold watch --json | grep '"broken"'
""",
)

_BREAK = Page(
    "end a lease from outside, with a reason",
    "leasehold break NAME --fence F --reason TEXT [--yes] [--now] [OPTIONS]",
    """
Ends the grant with the fence F, which `leasehold info NAME` shows; if the lock has changed hands
meanwhile, nothing happens. The holder learns of it with its next renewal and may still be running
until then, so the next holder waits until the ttl of the broken lease is over, unless --now. The
reason and the user are kept in the store, logged, and shown to the holder.

On a terminal it asks for a confirmation; without a terminal it needs --yes. A store that does not
exist yet, such as a misspelt file, is refused with 78 and not created.
""",
    """
exit codes:
  0                  the lease was ended
  1                  it was not held with that fence, or it was not confirmed
  64, 69, 70, 77, 78 as for run

examples:
  leasehold break nightly --fence 1794724016973247 --reason "host db-3 is gone" --yes
""",
)

_DOCTOR = Page(
    "examine a store: can it be trusted with locks?",
    "leasehold doctor [URL] [OPTIONS]",
    """
Opens the store, tries a lock on it and looks for what endangers locks: network file systems, full
disks, missing rights, slow answers, wrong clocks. Each finding has its reason and what to do.
It leaves nothing behind but the store itself.
""",
    """
exit codes:
  0                  nothing to worry about (warnings are possible)
  1                  at least one problem
  64, 78             as for run

examples:
  leasehold doctor local:
  leasehold doctor sqlite:////var/lib/app/locks.db --json
""",
)

_SCHEMA = Page(
    "print the SQL of the store's tables, or what lets a database refuse late writers",
    "leasehold schema {fence,guard,idempotency,mysql,postgresql,queue,reservations} [OPTIONS]",
    """
postgresql: prints the tables and functions of the store postgresql://, which a client makes by
itself if it may, and with --role the least rights that a role needs to lock. It may be run again,
and upgrades the tables of an earlier leasehold.

mysql: the same for mysql:// and mariadb://; --schema is the database in which --role gets its rights.

guard: prints the table that leasehold.sql.guard() keeps, for programs that may not create it.

idempotency, queue, reservations: prints the tables of leasehold.sql.IdempotencyKeys, Queue and Stock,
likewise. --dialect mysql is also for MariaDB, where they have to be made so: no program makes them by
itself inside a transaction, for that would commit it.

fence: prints triggers for a table of PostgreSQL, or with --dialect mysql of MySQL and MariaDB. From
then on every write to it, from any program, is refused unless its transaction carries the fence of
the row's lock, and unless that fence is the newest. Programs with leasehold call guard(tx, lease) first; others use
  BEGIN; SET LOCAL leasehold.fence = '...'; UPDATE ...; COMMIT;    (PostgreSQL)
  BEGIN; SET @leasehold_fence = ...; UPDATE ...; COMMIT;           (MySQL, MariaDB)
with the number from LEASEHOLD_FENCE. Nothing is executed: put the output into your migrations.
Names are taken as they are, and quoted.
""",
    """
exit codes:
  0                  printed
  64                 bad usage

examples:
  leasehold schema postgresql --role worker | psql locks
  leasehold schema mysql --schema locks --role worker@% | mariadb locks
  leasehold schema guard | psql orders
  leasehold schema idempotency --dialect sqlite | sqlite3 shop.db
  leasehold schema reservations --dialect mysql | mariadb shop
  leasehold schema guard --dialect mysql | mysql shop
  leasehold schema fence --table orders --key id --lock 'order:{id}' > migrations/0042_fence.sql
""",
)

_COMPLETION = Page(
    "print the completion script of a shell",
    "leasehold completion {bash,zsh}",
    "Prints a script that teaches the shell the verbs and options.",
    """
examples:
  bash:  eval "$(leasehold completion bash)"          in ~/.bashrc
  zsh:   leasehold completion zsh > "${fpath[1]}/_leasehold"
""",
)

PAGES = {
    "run": _RUN,
    "once": _ONCE,
    "elect": _ELECT,
    "ls": _LS,
    "info": _INFO,
    "watch": _WATCH,
    "break": _BREAK,
    **JOB_PAGES,
    "fence": FENCE_PAGE,
    "queue": QUEUE_PAGE,
    "schema": _SCHEMA,
    "doctor": _DOCTOR,
    "exporter": _EXPORTER,
    "explain": EXPLAIN_PAGE,
    "choose": CHOOSE_PAGE,
    "completion": _COMPLETION,
    **UI_PAGES,
}
