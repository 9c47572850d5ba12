"""`queue`: the jobs of leasehold.sql.Queue in a database, for people and for programs; retry and remove them."""

from __future__ import annotations

import json
import os
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from leasehold.cli import exit_codes
from leasehold.cli.durations import show_duration
from leasehold.cli.output import print_json, print_lines, printable, table
from leasehold.errors import ConfigurationError
from leasehold.sql import Queue, find_job, list_queues
from leasehold.sql.database_url import database_name, open_database

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

    from leasehold.cli.output import Console
    from leasehold.sql import JobInfo, QueueCounts

__all__ = ["queue"]

VARIABLE = "LEASEHOLD_DATABASE"
QUEUES_HEAD = ("QUEUE", "READY", "DELAYED", "CLAIMED", "DEAD", "DONE", "LAG")
JOBS_HEAD = ("JOB", "QUEUE", "STATE", "DUE", "ATTEMPTS", "FENCE", "AGE", "KEY", "ERROR")
WIDEST_ERROR = 60


def queue(arguments: Namespace, console: Console) -> int:
    """The verb: one action on the queues of one database."""
    return _ACTIONS[arguments.action](arguments, console)


def _ls(arguments: Namespace, console: Console) -> int:
    with _database(arguments, console) as database:
        if arguments.target is None and arguments.state is None and not arguments.dead:
            return _print_queues(database, arguments)
        names = [arguments.target] if arguments.target else [each.queue for each in _queues(database, arguments)]
        state: Any = "dead" if arguments.dead else arguments.state
        jobs = [job for name in names for job in _queue(name, arguments).jobs(database, state=state, limit=1000)]
    if arguments.json:
        for job in jobs:
            print_json(asdict(job))
    else:
        print_lines(table(JOBS_HEAD, [_row(job) for job in jobs]))
    return exit_codes.OK


def _print_queues(database: Any, arguments: Namespace) -> int:
    queues = _queues(database, arguments)
    if arguments.json:
        for each in queues:
            print_json(asdict(each))
        return exit_codes.OK
    rows = [
        (each.queue, each.ready, each.delayed, each.claimed, each.dead, each.done, show_duration(max(each.lag, 0)))
        for each in queues
    ]
    print_lines(table(QUEUES_HEAD, rows))
    return exit_codes.OK


def _row(job: JobInfo) -> tuple[object, ...]:
    error = job.last_error or ""
    short = error if len(error) <= WIDEST_ERROR else f"{error[: WIDEST_ERROR - 3]}..."
    return (
        job.id, job.queue, job.state, _due(job), job.attempts, job.fence, show_duration(job.age), job.key or "-", short,
    )  # fmt: skip


def _due(job: JobInfo) -> str:
    if job.due_in is None:
        return "-"
    return f"in {show_duration(job.due_in)}" if job.due_in > 0 else "now"


def _info(arguments: Namespace, console: Console) -> int:
    number = _number(arguments)
    with _database(arguments, console) as database:
        job = find_job(database, number, schema=arguments.schema)
    if arguments.json:
        print_json({"found": False, "id": number} if job is None else {"found": True, **asdict(job)})
        return exit_codes.OK if job else exit_codes.FREE
    if job is None:
        print_lines([f"there is no job {number}"])
        return exit_codes.FREE
    lines = [
        f"job {job.id} of {printable(repr(job.queue))} is {job.state}",
        f"  key       {printable(job.key) if job.key else '-'}",
        f"  payload   {printable(json.dumps(job.payload, ensure_ascii=False))}",
        f"  due       {_due(job)}",
        f"  attempts  {job.attempts}",
        f"  fence     {job.fence}",
        f"  worker    {printable(job.worker) if job.worker else '-'}",
        f"  enqueued  {show_duration(job.age)} ago",
        f"  changed   {show_duration(job.changed)} ago",
    ]
    if job.last_error is not None:
        lines.append(f"  error     {printable(job.last_error)}")
    if job.state == "dead":
        lines += ["", f"To try it again: leasehold queue retry {job.id}"]
    print_lines(lines)
    return exit_codes.OK


def _retry(arguments: Namespace, console: Console) -> int:
    with _database(arguments, console) as database:
        if arguments.dead:
            count = _all(lambda: _named(arguments).retry_dead(database))
        else:
            job = find_job(database, _number(arguments), schema=arguments.schema)
            count = 0 if job is None else _queue(job.queue, arguments).retry_dead(database, job.id)
        database.commit()
    return _changed(arguments, count, "retried")


def _purge(arguments: Namespace, console: Console) -> int:
    target = _named(arguments)
    older_than = target.keep if arguments.older_than is None else arguments.older_than
    with _database(arguments, console) as database:

        def purge() -> int:
            count = target.purge(database, dead=arguments.dead, older_than=older_than)
            database.commit()
            return count

        count = _all(purge)
    return _changed(arguments, count, "removed")


def _all(some: Callable[[], int]) -> int:
    """Again while there may be more."""
    total = 0
    while True:
        count = some()
        total += count
        if count < 1000:
            return total


def _changed(arguments: Namespace, count: int, what: str) -> int:
    if arguments.json:
        print_json({"queue_action": arguments.action, what: count})
    else:
        print_lines([f"{what} {count} job{'' if count == 1 else 's'}"])
    return exit_codes.OK if count else exit_codes.FREE


def _queues(database: Any, arguments: Namespace) -> list[QueueCounts]:
    return list_queues(database, schema=arguments.schema)


def _queue(name: str, arguments: Namespace) -> Queue:
    return Queue(name, schema=arguments.schema)


def _named(arguments: Namespace) -> Queue:
    if arguments.target is None:
        raise ConfigurationError(f"queue {arguments.action} needs the name of a queue here")
    return _queue(arguments.target, arguments)


def _number(arguments: Namespace) -> int:
    text = arguments.target or ""
    if not text.isascii() or not text.isdigit():
        raise ConfigurationError(
            f"queue {arguments.action} needs the number of a job, as leasehold queue ls QUEUE shows it, not {text!r}"
        )
    return int(text)


@contextmanager
def _database(arguments: Namespace, console: Console) -> Iterator[Any]:
    url = arguments.url or os.environ.get(VARIABLE)
    if not url:
        raise ConfigurationError(
            f"no database given. Add --url with postgresql://, mysql:// or the path of a SQLite file, or set {VARIABLE}"
        )
    console.note(f"database: {database_name(url)}")
    with closing(open_database(url)) as database:
        yield database


_ACTIONS = {"ls": _ls, "info": _info, "retry": _retry, "purge": _purge}
