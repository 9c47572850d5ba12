"""`leasehold run`: acquire the lock, run the command under it, release the lock. Reads from top to bottom.

What can be refused without the store is refused first. Then the processes are forked, while there is one thread, and
only after that the store is opened. However it ends, the command has not run, has run under the lock, or was stopped.

`leasehold once` differs only in how the lock is acquired and released: it calls `run_command` with a body of its own.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from leasehold.cli import exit_codes
from leasehold.cli.child import Child, CommandFailed, find_command
from leasehold.cli.held import environment_of, names_as_json
from leasehold.cli.signals import Interrupted, Signals
from leasehold.cli.terminal import Terminal
from leasehold.cli.watchdog_handle import WatchdogHandle

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from leasehold import Client, Lock, LockSet
    from leasehold.cli.held import Held
    from leasehold.cli.lease_record import LeaseRecord
    from leasehold.cli.output import Console
    from leasehold.cli.supervisor import Supervisor

__all__ = ["Job", "acquire", "conflict", "held_names", "is_nested", "release", "run", "run_command", "supervise"]

HELD = "LEASEHOLD_HELD"
OF_ONE_RUN = {"LEASEHOLD_NAME", "LEASEHOLD_FENCE", "LEASEHOLD_FENCES", "LEASEHOLD_SLOT"}  # not those of a run around it
OUTCOME_OF_STOP = {exit_codes.LEASE_LOST: "lost", exit_codes.MAX_HOLD: "max_hold"}


def run(arguments: Namespace, console: Console) -> int:
    """The verb; returns the exit code."""
    return run_command(Job(arguments, console), _under_lock)


class Job:
    """One run: its arguments, its processes from the fork on, and the facts for the report."""

    child: Child
    watchdog: WatchdogHandle
    signals: Signals
    is_ending = False  # a signal that would end this program was passed on to the command

    def __init__(self, arguments: Namespace, console: Console) -> None:
        self.arguments = arguments
        self.console = console
        self.names: list[str] = list(dict.fromkeys(getattr(arguments, "names", None) or [arguments.name]))
        name: dict[str, Any] = {"name": self.names[0]} if len(self.names) == 1 else {"names": self.names}
        self.facts: dict[str, Any] = {**name, "command": arguments.command, "outcome": "error"}


# --- 1. the report, which is written however the run ends


def run_command(job: Job, body: Callable[[Job, Client], int]) -> int:
    """Run `body` with the processes forked and the store open; write the report if one is wanted."""
    path = job.arguments.report
    if path is None:
        return _checked(job, body)
    from leasehold.cli.report import obstacle, write_report  # noqa: PLC0415 - only with --report

    if (reason := obstacle(path)) is not None:
        job.console.error(f"cannot write the report to {path}: {reason}; the command was not run")
        return exit_codes.USAGE
    started, code = time.time(), exit_codes.INTERNAL
    try:
        code = _checked(job, body)
    finally:
        try:
            write_report(path, {**job.facts, "started_at": round(started, 3), "exit_code": code})
        except OSError as error:
            job.console.error(f"cannot write the report to {path}: {error}; the run itself ended with {code}")
    return code


# --- 2. what can be refused without the store


def _checked(job: Job, body: Callable[[Job, Client], int]) -> int:
    if is_nested(job):
        job.facts["outcome"] = "nested"
        return exit_codes.USAGE
    try:
        find_command(job.arguments.command[0])
    except CommandFailed as failure:
        return _not_started(job, failure)
    environment = {name: value for name, value in os.environ.items() if name not in OF_ONE_RUN}
    environment[HELD] = names_as_json([*held_names(), *job.names])
    return _with_processes(job, environment, body)


def is_nested(job: Job) -> bool:
    """Whether a caller of this command holds one of the names, which is reported: it would wait for itself."""
    held = held_names()
    name = next((name for name in job.names if name in held), None)
    if name is None:
        return False
    job.console.error(
        f"a caller of this command already holds {name!r} ({HELD} is {os.environ[HELD]}), so it would wait for "
        f"itself for ever; use another name, or unset {HELD} if the two are on different stores"
    )
    return True


def held_names() -> list[str]:
    """The names that the callers of this command hold; none if the variable is not a list of texts."""
    text = os.environ.get(HELD)
    if not text:
        return []
    import json  # noqa: PLC0415 - only when nested

    try:
        names = json.loads(text)
    except ValueError:
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


# --- 3. processes, then the store


def _with_processes(job: Job, environment: dict[str, str], body: Callable[[Job, Client], int]) -> int:
    job.child = Child(job.arguments.command, environment)
    job.watchdog = WatchdogHandle(job.child.pid, job.arguments.kill_after)
    job.signals = Signals()
    try:
        return _with_store(job, body)
    except Interrupted as interruption:
        job.facts["outcome"] = "interrupted"
        job.console.interrupted(f"{interruption} ended the wait for the lock; the command was not run")
        return exit_codes.for_signal(interruption.number)
    finally:
        job.child.discard()
        job.watchdog.dismiss()
        job.watchdog.reap()
        job.signals.restore()


def _with_store(job: Job, body: Callable[[Job, Client], int]) -> int:
    # Imported after the forks, which are cheaper the less is loaded.
    from leasehold.cli.connection import open_client, refuse_private_store  # noqa: PLC0415

    label = os.path.basename(job.arguments.command[0])[:256]  # noqa: PTH119
    with open_client(job.arguments, label=label) as client:
        refuse_private_store(client)
        job.facts["store"] = client.store
        job.console.detail(f"store: {client.store}")
        return body(job, client)


# --- 4. the lock


def _under_lock(job: Job, client: Client) -> int:
    started = time.monotonic()
    held = acquire(job, client)
    job.facts["waited"] = round(time.monotonic() - started, 3)
    if held is None:
        return conflict(job, client)
    try:
        return supervise(job, client, held)
    finally:
        job.child.discard()  # after an error of our own: nothing of the command may outlive the lock
        release(job, held)


def _lock(job: Job, client: Client) -> Lock | LockSet:
    arguments, name = job.arguments, job.names[0]
    options: dict[str, Any] = {"min_hold": arguments.min_hold, "reason": arguments.reason}
    if arguments.permits is not None:
        return client.semaphore(name, arguments.permits, **options)
    if arguments.shared:
        return client.rwlock(name, **options).read
    return client.lock(name, **options) if len(job.names) == 1 else client.lock_all(job.names, **options)


def acquire(job: Job, client: Client) -> Held | None:
    """What is held then, or None if a lock stays busy for the whole wait."""
    from leasehold.cli.held import Held  # noqa: PLC0415 - after the forks
    from leasehold.cli.wait_line import WaitLine  # noqa: PLC0415
    from leasehold.errors import AcquireTimeout  # noqa: PLC0415

    lock = _lock(job, client)
    job.signals.wait_begins()
    try:
        if job.arguments.no_wait or job.arguments.wait == 0:
            lease = lock.try_acquire()
            return None if lease is None else Held(lease)
        with WaitLine(client, job.names, job.console, job.arguments.wait):
            return Held(lock.acquire(job.arguments.wait))
    except AcquireTimeout:
        return None
    finally:
        job.signals.wait_ended()


def conflict(job: Job, client: Client) -> int:
    """A lock is busy: show its holder, unless conflicts are to be skipped in silence."""
    from leasehold.cli.inspect import conflict_block  # noqa: PLC0415 - only on a conflict

    skip = job.arguments.on_conflict == "skip"
    job.facts["outcome"] = "skipped" if skip else "busy"
    show = job.console.detail if skip else job.console.note
    show("\n".join(conflict_block(client, name) for name in _busy(client, job.names)))
    if skip:
        return exit_codes.OK
    code = job.arguments.conflict_exit_code
    return exit_codes.BUSY if code is None else int(code)


def _busy(client: Client, names: list[str]) -> list[str]:
    """Those of several names that are held now; all of them if none is held by now."""
    return names if len(names) == 1 else [name for name in names if client.inspect(name) is not None] or names


def release(job: Job, held: Held) -> None:
    """Give it back; if the store does not answer, that is reported, and the ttl does it."""
    from leasehold.errors import BackendError  # noqa: PLC0415

    try:
        held.release()
    except BackendError as error:
        job.console.error(f"could not release {held.title}; it is free when its ttl is over: {error}")


# --- 5. the command, under the lease


def supervise(job: Job, client: Client, held: Held, slot: str | None = None) -> int:
    """Start the command, supervise it to its end, and return the exit code; `slot` goes into its environment."""
    from leasehold.cli.lease_record import LeaseRecord  # noqa: PLC0415 - after the forks

    fences = held.fences
    job.console.detail("acquired " + ", ".join(f"{name!r} with fence {fence}" for name, fence in fences.items()))
    job.facts |= {"fence": fences[job.names[0]]} if len(fences) == 1 else {"fences": fences}
    job.facts["abandoned"] = held.abandoned
    record = LeaseRecord(max(fences.values()))
    environment = {**environment_of(fences), **record.environment()}
    if slot is not None:
        environment["LEASEHOLD_SLOT"] = slot
    try:
        return _run_to_its_end(job, client, held, record, environment)
    finally:
        record.close()


def _run_to_its_end(job: Job, client: Client, held: Held, record: LeaseRecord, environment: dict[str, str]) -> int:
    from leasehold.cli.supervisor import Supervisor  # noqa: PLC0415 - after the forks

    arguments, terminal = job.arguments, Terminal(job.child.pid)
    supervisor = Supervisor(
        job.child,
        held,
        record=record,
        watchdog=job.watchdog,
        signals=job.signals,
        terminal=terminal,
        console=job.console,
        ttl=arguments.ttl,
        kill_after=arguments.kill_after,
        max_hold=arguments.max_hold,
        wait_group=arguments.wait_group,
    )
    client.on_event(supervisor.note)
    held_from = time.monotonic()
    terminal.offer()
    if not supervisor.may_start():
        terminal.take_back()
        job.facts["outcome"] = "lost"
        return exit_codes.LEASE_LOST
    try:
        job.child.start(environment, supervisor.may_start)
    except CommandFailed as failure:
        terminal.take_back()
        return _not_started(job, failure)
    supervisor.watch()
    job.is_ending = supervisor.is_ending
    job.facts["held"] = round(time.monotonic() - held_from, 3)
    return _ended(job, supervisor)


def _ended(job: Job, supervisor: Supervisor) -> int:
    job.facts["command_status"] = supervisor.exit_code
    code = supervisor.stopped_for
    if code is None:
        job.facts["outcome"] = "ran"
        return supervisor.exit_code
    job.facts["outcome"] = OUTCOME_OF_STOP.get(code, "error")
    return code


def _not_started(job: Job, failure: CommandFailed) -> int:
    job.console.error(failure)
    job.facts["outcome"] = "not started"
    return failure.code
