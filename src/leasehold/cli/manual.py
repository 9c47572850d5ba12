"""The manual: one page per verb, in the order that man pages have. Only text."""

from __future__ import annotations

from leasehold.cli.manual_advice import CHOOSE_PAGE, EXPLAIN_PAGE
from leasehold.cli.manual_exporter import EXPORTER as _EXPORTER
from leasehold.cli.manual_fence import FENCE_PAGE
from leasehold.cli.manual_holding import HOLDING_PAGES
from leasehold.cli.manual_jobs import JOB_PAGES
from leasehold.cli.manual_page import Page
from leasehold.cli.manual_queue import QUEUE_PAGE
from leasehold.cli.manual_run import RUN_PAGES
from leasehold.cli.manual_ui import UI_PAGES

__all__ = ["OVERVIEW", "PAGES", "Page"]


OVERVIEW = """\
usage: leasehold VERB [OPTIONS]

Runs commands under a lock that many machines share, and shows which locks are held, and by whom.

verbs:
{verbs}

The store is named with --url or the variable LEASEHOLD_URL, or stands in the file that LEASEHOLD_URL_FILE
names, which keeps passwords out of the environment. There is no default: fifty servers that each locked a
private file would run the job fifty times. LEASEHOLD_NAMESPACE is used without --namespace.

  local:              the embedded file of this user on this host
  sqlite:////path     an embedded file that all users of this host may share
  redis://host        a server that many hosts share; `leasehold choose` helps to choose

examples:
  leasehold run nightly --url local: -- ./backup.sh
  leasehold ls --waiters
  leasehold info nightly
  leasehold doctor sqlite:////var/lib/app/locks.db

`leasehold VERB --help` is the manual page of a verb; `leasehold --version` prints the version.
Data goes to stdout, messages to stderr. NO_COLOR turns off colour, TERM=dumb also lines updated in place."""

_LS = Page(
    "list the locks that are in use",
    "leasehold ls [PREFIX] [--waiters] [OPTIONS]",
    """
Lists the locks that are held, waited for or paused, in order of name, one line for each holder and
for each pause. The time left is on the store's clock; a holder that is alive renews it. -v adds the
fences. On a terminal long names are shortened in their middle; `info`, --json and a pipe show them whole.
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
Shows the holders of a lock, with program, host and user, since when and why, its waiters, and the
command that would end the lease; whether an operator has paused it, and why; and if it is a job of
`leasehold once`, the last slot that was run, by which process and when. A run is remembered for as
long as its slot; the last of a job
with labels, or one that failed, for a month. That a lock is held does not mean that its holder makes
progress: it may hang.
""",
    """
exit codes:
  0                  the lock is held
  1                  the lock is free, paused or not
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
Shows the locks in use and keeps the table up to date until Ctrl-C; -v adds the fences. Without a terminal it prints a
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
  leasehold break nightly --fence 1794724016973247 --reason "db-3 is gone" --yes
""",
)

_DOCTOR = Page(
    "examine a store: can it be trusted with locks?",
    "leasehold doctor [URL] [OPTIONS]",
    """
Looks at the store for what endangers locks: network file systems, full disks, missing rights, wrong clocks,
settings that lose writes. It prints what is wrong, with the reason and what to do, and how much is in
order; -v prints all of it. It writes nothing, and creates no file.

With --try it also takes and gives back a lock of its own twenty times, to measure how long that takes and
to see the fences rise. This leaves nothing behind but the store itself, which is created if need be.
""",
    """
exit codes:
  0                  nothing to worry about (warnings are possible)
  1                  at least one problem
  64, 78             as for run

examples:
  leasehold doctor local:
  leasehold doctor sqlite:////var/lib/app/locks.db --try -v
""",
)

_SCHEMA = Page(
    "print SQL: tables, and triggers that refuse late writers",
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
  leasehold schema fence --table orders --key id --lock 'order:{id}' > fence.sql
""",
)

_COMPLETION = Page(
    "print the completion script of a shell",
    "leasehold completion {bash,fish,zsh}",
    """
Prints a script that teaches the shell the verbs, the options and their values. The names of locks are
completed, too: from the store that the line names with --url, or else LEASEHOLD_URL.
""",
    """
examples:
  eval "$(leasehold completion bash)"                   # in ~/.bashrc
  leasehold completion zsh > "${fpath[1]}/_leasehold"
  leasehold completion fish > ~/.config/fish/completions/leasehold.fish
""",
)

PAGES = {
    **RUN_PAGES,
    **HOLDING_PAGES,
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
