"""`leasehold run`: get the lock, run the command under it, give the lock back.

The processes are forked first, while there is one thread; the store is opened after that. Whatever happens, the command
has either not run, or run under the lock, or been stopped.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from leasehold.cli import exit_codes
from leasehold.cli.child import Child, CommandFailed, find_command
from leasehold.cli.guarding import Guard
from leasehold.cli.nesting import held_names, held_with
from leasehold.cli.signals import Interrupted, Signals
from leasehold.cli.terminal import Terminal

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold.blocking import Client, Lease, Lock
    from leasehold.cli.output import Talk

__all__ = ["Attempt", "perform", "run"]


def run(arguments: Namespace, talk: Talk) -> int:
    """The verb: returns the exit code."""
    return perform(Attempt(arguments, talk), arguments, talk)


def perform(attempt: Attempt, arguments: Namespace, talk: Talk) -> int:
    """Go through with it, and write the report whatever happens."""
    started = time.time()
    code = exit_codes.INTERNAL
    if arguments.report is not None and (trouble := _report_trouble(arguments.report)) is not None:
        talk.error(f"the report could not be written to {arguments.report}: {trouble}; the command was not run")
        return exit_codes.USAGE
    try:
        code = attempt.perform()
    finally:
        if arguments.report is not None:
            _report(arguments.report, {**attempt.facts, "started_at": round(started, 3), "exit_code": code}, talk)
    return code


class Attempt:
    """One run: the arguments, the processes, and the facts for the report."""

    slot: str | None = None  # told to the command, where there is one

    def __init__(self, arguments: Namespace, talk: Talk) -> None:
        self._arguments = arguments
        self._talk = talk
        self.facts: dict[str, Any] = {"name": arguments.name, "command": arguments.command, "outcome": "error"}

    def perform(self) -> int:
        """Check what can be checked without the lock, then go through with it."""
        arguments, talk = self._arguments, self._talk
        held = held_names()
        if arguments.name in held:
            talk.error(
                f"{arguments.name!r} is already held by a caller of this command (LEASEHOLD_HELD is "
                f"{os.environ['LEASEHOLD_HELD']}): it would wait for itself for ever. Use another name, or unset "
                "LEASEHOLD_HELD if the two are on different stores"
            )
            self.facts["outcome"] = "nested"
            return exit_codes.USAGE
        try:
            find_command(arguments.command[0])
        except CommandFailed as failure:
            return self._command_failed(failure)
        environment = {
            **os.environ,
            "LEASEHOLD_NAME": arguments.name,
            "LEASEHOLD_HELD": held_with(held, arguments.name),
        }
        return self._with_processes(Child(arguments.command, environment))

    def _with_processes(self, child: Child) -> int:
        guard = Guard(child.pid, self._arguments.kill_after)
        signals = Signals()
        try:
            return self._with_store(child, guard, signals)
        except Interrupted as interruption:
            self.facts["outcome"] = "interrupted"
            self._talk.interrupted(f"signal {interruption.number} ended the wait; the command was not run")
            return exit_codes.for_signal(interruption.number)
        finally:
            child.discard()
            guard.dismiss()
            guard.reap()
            signals.restore()

    def _with_store(self, child: Child, guard: Guard, signals: Signals) -> int:
        # after the forks, which are cheap without it
        from leasehold.cli.connection import open_client, refuse_private_store  # noqa: PLC0415

        label = os.path.basename(self._arguments.command[0])[:256]  # noqa: PTH119
        with open_client(self._arguments, label=label) as client:
            refuse_private_store(client)
            self.facts["store"] = client.store
            self._talk.detail(f"store: {client.store}")
            return self._with_client(client, child, guard, signals)

    def _with_client(self, client: Client, child: Child, guard: Guard, signals: Signals) -> int:
        lock = self._lock(client)
        started = time.monotonic()
        lease = self._acquire(client, lock, signals)
        self.facts["waited"] = round(time.monotonic() - started, 3)
        if lease is None:
            return self._busy(client)
        try:
            return self._under_lease(client, lease, child, guard, signals)
        finally:
            child.discard()  # after an error of our own: what is left must not outlive the lock
            self._release(lease)

    def _lock(self, client: Client) -> Lock:
        arguments = self._arguments
        options: dict[str, Any] = {"min_hold": arguments.min_hold, "reason": arguments.reason}
        if arguments.permits is not None:
            return client.semaphore(arguments.name, arguments.permits, **options)
        if arguments.shared:
            return client.rwlock(arguments.name, **options).read
        return client.lock(arguments.name, **options)

    def _acquire(self, client: Client, lock: Lock, signals: Signals) -> Lease | None:
        """The lease, or None if the lock is busy for longer than we may wait."""
        from leasehold.cli.waiting import WaitLine  # noqa: PLC0415 - after the forks
        from leasehold.errors import AcquireTimeout  # noqa: PLC0415

        signals.wait_begins()
        try:
            if self._arguments.no_wait or self._arguments.wait == 0:
                return lock.try_acquire()
            with WaitLine(client, lock.name, self._talk, self._arguments.wait):
                return lock.acquire(self._arguments.wait)
        except AcquireTimeout:
            return None
        finally:
            signals.wait_ended()

    def _busy(self, client: Client) -> int:
        from leasehold.cli.conflict import conflict_block  # noqa: PLC0415 - only on a conflict

        skip = self._arguments.on_conflict == "skip"
        self.facts["outcome"] = "skipped" if skip else "busy"
        speak = self._talk.detail if skip else self._talk.note
        speak(conflict_block(client, self._arguments.name))
        if skip:
            return exit_codes.OK
        code = self._arguments.conflict_exit_code
        return exit_codes.BUSY if code is None else int(code)

    def _under_lease(self, client: Client, lease: Lease, child: Child, guard: Guard, signals: Signals) -> int:
        from leasehold.cli.supervise import Supervisor  # noqa: PLC0415 - after the forks

        arguments = self._arguments
        self._talk.detail(f"acquired {lease.name!r} with fence {lease.fence}")
        self.facts |= {"fence": lease.fence, "abandoned": lease.abandoned}
        terminal = Terminal(child.pid)
        supervisor = Supervisor(
            child,
            lease,
            guard=guard,
            signals=signals,
            terminal=terminal,
            talk=self._talk,
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
            self.facts["outcome"] = "lost"
            return exit_codes.LEASE_LOST
        try:
            child.start(lease.fence, self.slot, supervisor.may_start)
        except CommandFailed as failure:
            terminal.take_back()
            return self._command_failed(failure)
        supervisor.watch()
        self.facts["held"] = round(time.monotonic() - held_from, 3)
        return self._ended(supervisor)

    def _ended(self, supervisor: Any) -> int:
        self.facts["command_status"] = supervisor.exit_code
        code = supervisor.stopped_for
        if code is None:
            self.facts["outcome"] = "ran"
            return int(supervisor.exit_code)
        self.facts["outcome"] = {exit_codes.LEASE_LOST: "lost", exit_codes.MAX_HOLD: "max_hold"}.get(code, "error")
        return int(code)

    def _command_failed(self, failure: CommandFailed) -> int:
        self._talk.error(failure)
        self.facts["outcome"] = "not started"
        return failure.code

    def _release(self, lease: Lease) -> None:
        from leasehold.errors import BackendError  # noqa: PLC0415

        try:
            lease.release()
        except BackendError as error:
            self._talk.error(f"could not release {lease.name!r}, its ttl will free it: {error}")


def _report_trouble(path: str) -> str | None:
    """Why there can be no report at this path; better known before the command runs than after."""
    folder = os.path.dirname(path) or "."  # noqa: PTH120 - a path as the user gave it
    if os.path.isdir(path):  # noqa: PTH112
        return "it is a directory"
    if not os.path.isdir(folder):  # noqa: PTH112
        return "its directory does not exist"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "this user may not write to its directory"
    return None


def _report(path: str, facts: dict[str, Any], talk: Talk) -> None:
    from leasehold.cli.report import write_report  # noqa: PLC0415 - only when asked for

    try:
        write_report(path, facts)
    except OSError as error:
        talk.error(f"could not write the report to {path}: {error}")
