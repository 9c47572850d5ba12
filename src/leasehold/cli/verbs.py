"""The table of verbs: what each one is called, which arguments it takes, and where its code is.

A new verb is one `Verb` here, its text in `manual.py`, and one module with a function `(arguments, console) -> code`.
The arguments of those that hold locks are in `run_arguments`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from leasehold.cli.argument_types import add_json, fence_number, groups, time_span
from leasehold.cli.run_arguments import add_check, add_elect, add_hold, add_once, add_run, add_wait

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Callable

__all__ = ["VERBS", "Verb"]

NEEDS = (
    "transaction", "stock", "create", "edit", "tasks", "request", "job", "migration", "work", "readers", "limit",
    "leader", "partitions", "cache",
)  # fmt: skip
HAVES = ("host", "postgresql", "mysql", "redis", "redis-nodes", "etcd", "zookeeper", "nats", "tests")
SCHEMAS = ("fence", "guard", "idempotency", "mysql", "postgresql", "queue", "reservations")


class Verb:
    """One verb of the command line."""

    def __init__(
        self,
        name: str,
        code: str,
        add_arguments: Callable[[Any], None],
        *,
        takes_command: bool = False,
        asks_store: bool = True,
        mixes_words: bool = False,
    ) -> None:
        self.name = name
        self._code = code
        self.add_arguments = add_arguments
        self.takes_command = takes_command
        self.asks_store = asks_store
        self.mixes_words = mixes_words  # several words without an option, which may stand among options

    def handler(self) -> Callable[..., int]:
        """Load the verb's code; nothing of it is loaded before."""
        module, _, function = self._code.partition(":")
        handler: Callable[..., int] = getattr(import_module(f"leasehold.cli.{module}"), function)
        return handler


def _pause(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the lock or job")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why; shown to all who ask for it")
    parser.add_argument("--for", dest="duration", type=time_span, metavar="TIME", help="for how long (until resume)")
    add_json(parser)


def _resume(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the lock or job")
    add_json(parser)


def _forget(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the job")
    parser.add_argument("--slot", required=True, metavar="LABEL", help="the slot, as info shows it")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why; it is logged, and shown by info")
    add_json(parser)


def _ls(parser: ArgumentParser) -> None:
    parser.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="only names that begin so")
    parser.add_argument("--waiters", action="store_true", help="show the waiters, too")
    parser.add_argument("--names", action="store_true", help="print the names only, one per line")
    add_json(parser)


def _info(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the lock")
    parser.add_argument("--slot", metavar="LABEL", help="show the last run of a `once` job for this slot")
    add_json(parser)


def _watch(parser: ArgumentParser) -> None:
    parser.add_argument("prefix", metavar="PREFIX", nargs="?", default="", help="only names that begin so")
    parser.add_argument("--every", type=time_span, default=1.0, metavar="TIME", help="how often to look (1s)")
    add_json(parser)


def _break(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the lock")
    parser.add_argument(
        "--fence", type=fence_number, required=True, metavar="F", help="the fence of the grant to end, from info"
    )
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why; shown to the holder")
    parser.add_argument("--yes", action="store_true", help="without a confirmation")
    parser.add_argument(
        "--now", action="store_true", help="let the next holder in before the ttl of the broken lease is over"
    )
    add_json(parser)


def _doctor(parser: ArgumentParser) -> None:
    parser.add_argument("store", metavar="URL", nargs="?", help="the store to examine, instead of --url")
    parser.add_argument(
        "--try", dest="tries", action="store_true", help="take and give back a lock, too; this writes to the store"
    )
    add_json(parser)


def _exporter(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--listen", default="127.0.0.1:9479", metavar="HOST:PORT", help="where to answer (127.0.0.1:9479)"
    )
    parser.add_argument("--prefix", default="", metavar="TEXT", help="only locks whose name begins with this")
    parser.add_argument(
        "--group", action="append", metavar="PREFIX", help="a group of names that begin so; may be repeated"
    )
    parser.add_argument("--max-groups", type=groups, default=50, metavar="N", help="more groups count as other (50)")
    parser.add_argument(
        "--max-age", type=time_span, default=5.0, metavar="TIME", help="ask the store at most this often (5s)"
    )
    parser.add_argument(
        "--patience", type=time_span, default=5.0, metavar="TIME", help="how long a scrape waits for the store (5s)"
    )


def _ui(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--listen", default="127.0.0.1:9480", metavar="HOST:PORT", help="where to answer (127.0.0.1:9480)"
    )
    parser.add_argument("--write", action="store_true", help="let all who can reach it break and pause locks")
    parser.add_argument("--auth", metavar="FILE", help="only these users, each with a role; see above")
    parser.add_argument("--proxy-user", metavar="HEADER", help="a proxy names the user in this header")
    parser.add_argument(
        "--proxy-address", action="append", metavar="ADDRESS", help="of that proxy, or a network (127.0.0.1)"
    )
    parser.add_argument("--writer", action="append", metavar="USER", help="of the proxy's users, who may change things")
    parser.add_argument("--allow-host", action="append", metavar="NAME", help="another name of this server, as in DNS")
    parser.add_argument("--database", metavar="URL", help="the database with the queues of leasehold.sql.Queue")
    parser.add_argument("--election", action="append", metavar="NAME", help="an election, or a pattern such as lead:*")
    parser.add_argument("--job", action="append", metavar="NAME", help="a once job, or a pattern such as nightly-*")
    parser.add_argument("--audit", metavar="FILE", help="append every order to this file, as JSON lines")
    parser.add_argument("--hash-password", action="store_true", help="ask for a password, print its hash, and end")


def _demo(parser: ArgumentParser) -> None:
    parser.add_argument("--ui", action="store_true", help="with the dashboard on the demonstration's store")


def _completion(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "fish", "zsh"), help="for which shell")


def _explain(parser: ArgumentParser) -> None:
    parser.add_argument("error", metavar="ERROR", nargs="?", help="its name, such as LeaseLost; without it, all names")
    add_json(parser)


def _choose(parser: ArgumentParser) -> None:
    parser.add_argument("--need", choices=NEEDS, metavar="NEED", help=f"what has to be done: {', '.join(NEEDS)}")
    parser.add_argument(
        "--have", action="append", metavar="WHAT,...", help=f"what is there: {', '.join(HAVES)}; may be repeated"
    )
    parser.add_argument("--twice", choices=("costly", "cheap"), help="if it happens twice, that is (costly)")
    add_json(parser)


def _fence(parser: ArgumentParser) -> None:
    parser.add_argument("action", metavar="{raise,move}", choices=("raise", "move"), help="see above")
    parser.add_argument("words", metavar="NAME", nargs="*", help="raise: the lock, then F; move: the locks")
    parser.add_argument("--from", dest="old", metavar="URL", help="move: the store that the locks were in")
    parser.add_argument("--to", dest="new", metavar="URL", help="move: the store that they are in from now on")
    parser.add_argument("--all", action="store_true", help="move: all names of the namespace")
    parser.add_argument("--dry-run", action="store_true", help="move: look who is in the way, and change nothing")
    parser.add_argument("--reason", metavar="TEXT", help="why; it is logged, and raise needs it")
    parser.add_argument("--yes", action="store_true", help="without a confirmation")
    add_json(parser)


def _schema(parser: ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="WHAT",
        choices=SCHEMAS,
        help=f"{', '.join(SCHEMAS[:-1])} or {SCHEMAS[-1]}, see above",
    )
    parser.add_argument("--dialect", choices=("mysql", "postgresql", "sqlite"), help="of which database (postgresql)")
    parser.add_argument("--table", metavar="NAME", help="fence: the table, as it is written in the catalogue")
    parser.add_argument("--key", metavar="COLUMN", help="fence: the column that names a row")
    parser.add_argument(
        "--schema", metavar="NAME", help="the schema of the table (fence: public), or of the store (mysql: database)"
    )
    parser.add_argument("--role", metavar="NAME", help="postgresql, mysql: also the least rights of this role")
    parser.add_argument("--lock", metavar="NAME", help="fence: the lock of a row, such as 'order:{id}' (TABLE:{KEY})")
    parser.add_argument("--lock-namespace", metavar="TEXT", help="fence: the namespace of the lock (leasehold)")
    parser.add_argument("--guard-schema", metavar="NAME", help="fence: where leasehold_guard is, if not in --schema")
    parser.add_argument("--lenient", action="store_true", help="fence: let writes through that carry no fence at all")


def _queue(parser: ArgumentParser) -> None:
    parser.add_argument("action", metavar="ACTION", choices=("ls", "info", "retry", "purge"), help="see above")
    parser.add_argument("target", metavar="QUEUE|JOB", nargs="?", help="the name of a queue, or the number of a job")
    parser.add_argument("--url", metavar="URL", help="the database; without it, the variable LEASEHOLD_DATABASE")
    parser.add_argument("--dead", action="store_true", help="ls, retry, purge: the jobs that are dead")
    parser.add_argument("--state", choices=("ready", "claimed", "done", "dead"), help="ls: only the jobs in this state")
    parser.add_argument("--older-than", type=time_span, metavar="TIME", help="purge: over for longer than this (1d)")
    parser.add_argument("--schema", metavar="NAME", help="where the table is in PostgreSQL, if there are several")
    add_json(parser)


def _nothing(_: ArgumentParser) -> None:
    """No arguments of its own."""


VERBS = {
    verb.name: verb
    for verb in (
        Verb("run", "run:run", add_run, takes_command=True),
        Verb("once", "once:once", add_once, takes_command=True),
        Verb("elect", "elect:elect", add_elect, takes_command=True),
        Verb("hold", "hold:hold", add_hold),
        Verb("wait", "wait:wait", add_wait),
        Verb("check", "check:check", add_check),
        Verb("ls", "inspect:ls", _ls),
        Verb("info", "inspect:info", _info),
        Verb("watch", "watch:watch", _watch),
        Verb("break", "break_lock:break_lock", _break),
        Verb("pause", "jobs:pause", _pause),
        Verb("resume", "jobs:resume", _resume),
        Verb("forget", "jobs:forget", _forget),
        Verb("fence", "fence:fence", _fence, mixes_words=True),
        Verb("queue", "queue:queue", _queue, asks_store=False),
        Verb("schema", "schema:schema", _schema, asks_store=False),
        Verb("doctor", "doctor:doctor", _doctor),
        Verb("exporter", "exporter:exporter", _exporter),
        Verb("explain", "explain:explain", _explain, asks_store=False),
        Verb("choose", "choose:choose", _choose, asks_store=False),
        Verb("completion", "completion:completion", _completion, asks_store=False),
        Verb("ui", "ui:ui", _ui),
        Verb("demo", "demo:demo", _demo, asks_store=False),
    )
}
