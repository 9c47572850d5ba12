"""`leasehold once`: run the command under the job's lock, unless its slot is another's.

Everything about processes is that of `run`; the library decides whose slot it is.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.run import Attempt, perform

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold.blocking import Client
    from leasehold.blocking.once import Once, Run
    from leasehold.cli.child import Child
    from leasehold.cli.guarding import Guard
    from leasehold.cli.output import Talk
    from leasehold.cli.signals import Signals
    from leasehold.values import Skipped

__all__ = ["once"]


def once(arguments: Namespace, talk: Talk) -> int:
    """The verb: returns the exit code."""
    return perform(_OnceAttempt(arguments, talk), arguments, talk)


class _OnceAttempt(Attempt):
    """A run that may turn out to be another's."""

    def _with_client(self, client: Client, child: Child, guard: Guard, signals: Signals) -> int:
        from leasehold.blocking.once import Run  # noqa: PLC0415 - after the forks
        from leasehold.errors import AcquireTimeout, BackendError, LeaseLost  # noqa: PLC0415

        job = self._job(client)
        code = exit_codes.INTERNAL
        with ExitStack() as block:
            try:
                run = self._begin(client, job, block, signals)
            except AcquireTimeout:
                return self._busy(client)
            if not isinstance(run, Run):
                return self._skipped(run)
            self.slot = self.facts["slot"] = run.slot
            try:
                code = self._under_lease(client, run.lease, child, guard, signals)
            finally:
                child.discard()  # after an error of our own: what is left must not outlive the lock
            if code != exit_codes.OK:
                run.fail()
            try:
                block.close()
            except LeaseLost as lost:
                if code != exit_codes.LEASE_LOST:
                    self._talk.error(lost)
                self.facts["outcome"], code = "lost", exit_codes.LEASE_LOST
            except BackendError as error:
                self._talk.error(f"{error}; the command ended with {code}, but this may not be recorded")
                self.facts["outcome"], code = "not recorded", exit_codes.for_error(error)
        return code

    def _job(self, client: Client) -> Once:
        arguments = self._arguments
        return client.once(
            arguments.name,
            every=arguments.every,
            cron=arguments.cron,
            slot=arguments.slot,
            tz=arguments.tz,
            on_conflict="standby" if arguments.on_conflict == "standby" else "skip",
            on_failure="close" if arguments.close_on_failure else "open",
            keep=arguments.keep,
            timeout=arguments.wait,
            reason=arguments.reason,
        )

    def _begin(self, client: Client, job: Once, block: ExitStack, signals: Signals) -> Run | Skipped:
        """Enter the block of the job; waiting for another's run may be interrupted."""
        from leasehold.cli.waiting import WaitLine  # noqa: PLC0415 - after the forks

        waits = self._arguments.on_conflict == "standby"
        started = time.monotonic()
        signals.wait_begins()
        try:
            with WaitLine(client, job.name, self._talk, self._arguments.wait) if waits else nullcontext():
                return block.enter_context(job.attempt())
        finally:
            signals.wait_ended()
            self.facts["waited"] = round(time.monotonic() - started, 3)

    def _skipped(self, skipped: Skipped) -> int:
        self._talk.note(str(skipped))
        self.facts |= {"outcome": "skipped", "slot": skipped.slot, "finished": skipped.finished}
        if self._arguments.on_conflict != "fail":
            return exit_codes.OK
        self.facts["outcome"] = "busy"
        code = self._arguments.conflict_exit_code
        return exit_codes.BUSY if code is None else int(code)
