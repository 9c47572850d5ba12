"""Jobs as a workload: every process attempts the same few jobs again and again, for slots and for labels.

Each job has the name of a lock, and others take that lock by hand, or break it. A run works on the register of the job
under its fence, and ends well, fails, is cancelled, or loses its lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from leasehold.errors import AlreadyRun, AlreadyRunning
from verification.simulation.jobs import End
from verification.simulation.workloads import Actor, BodyError, Entered

if TYPE_CHECKING:
    from leasehold._face.lease import AsyncLease
    from leasehold._patterns.once import AsyncAttempt, AsyncOnce, AsyncRun, OnceOptions
    from leasehold.values import Skipped
    from verification.simulation.jobs import Asked, Jobs

__all__ = ["JobRunner"]

LABELS = ("first", "second", "third")
LAST_LABEL = "last"  # that every process attempts once all faults are healed


class JobRunner(Actor):
    """Attempts jobs; some attempts are orders of an operator to run a slot once more."""

    ends_when_healed = True

    def _choices(self) -> None:
        by_hand = [self._hold_one, self._acquire_and_release, self._break_a_run, self._drop]
        self._deeds = [*[self._attempt_a_job] * 10, *[self._be_cancelled] * 2, *by_hand]
        self._cancellable = [self._attempt_a_job]

    @property
    def _jobs(self) -> Jobs:
        jobs = self._scene.jobs
        assert jobs is not None
        return jobs

    # --- what it does

    async def _attempt_a_job(self) -> None:
        options, random = self._job_options(), self._random.random
        job = self._job(self._mutex(), self._random.choice([None, None, *LABELS]), options)
        attempt = job.attempt(again="it was wrong", by="an operator") if random() < 0.1 else job.attempt()
        await self._go_through(attempt, options, calm=False)

    async def _break_a_run(self) -> None:
        """An operator breaks the lock of a job; if at once, another run may begin beside the one that had it."""
        state = await self._site.client.inspect(name := self._mutex())
        if state is not None and state.holdings:
            at_once = self._random.random() < 0.5
            await self._site.client.break_lock(name, fence=state.holdings[0].fence, reason="stuck", now=at_once)

    async def _contend(self) -> None:
        """The next slot of a job is run by somebody, soon after it has begun."""
        name, label = self._mutex(), LAST_LABEL if self._random.random() < 0.3 else None
        if label is None:
            starts = self._jobs.next_start(name) + self._jobs.records.error
            while self._jobs.records.time() < starts:
                await self._runtime.sleep(starts - self._jobs.records.time())
        began_at = self._world.now
        while not await self._is_settled(name, label):
            if self._world.now > began_at + self._scene.patience:
                self._scene.history.violate("a job is stuck", f"{name} {label or ''}")
                return
            await self._runtime.sleep(self._random.random() * self._scene.ttl / 2)

    async def _is_settled(self, name: str, label: str | None) -> bool:
        """Whether the slot has been run, by this attempt or by another."""
        options: OnceOptions = {"on_conflict": self._random.choice(["skip", "standby"]), "ttl": self._scene.ttl}
        answer: list[bool] = []

        async def attempt() -> None:
            skipped = await self._go_through(self._job(name, label, options).attempt(), options, calm=True)
            answer.append(skipped is None or skipped.finished is not None)

        await self._attempt(attempt)
        return any(answer)

    async def _go_through(self, attempt: AsyncAttempt, options: OnceOptions, *, calm: bool) -> Skipped | None:
        """One attempt, and the run that may come of it."""
        asked = self._jobs.ask(attempt, closes=options.get("on_failure") == "close")
        answers: list[AsyncRun | Skipped] = []
        try:
            await self._ask(attempt._lock, _enter(attempt, answers), patient=False, timeout=None)
        except (AlreadyRun, AlreadyRunning) as error:
            answers += [] if error.skipped is None else [error.skipped]  # a skipped slot is false
        finally:
            self._jobs.answered(asked)
        (answer,) = answers
        if not answer:
            self._jobs.skipped(asked, answer)
            return answer
        self._jobs.begun(asked, answer)
        async with Entered(attempt):
            await self._watched(answer, asked, calm=calm)
        self._jobs.left(answer, asked.key)
        return None

    async def _watched(self, run: AsyncRun, asked: Asked, *, calm: bool) -> None:
        """The block of a run."""
        end = End.INTERRUPTED
        try:
            end = await self._work_on(run, calm=calm)
        except Exception:
            end = End.FAILED
            raise
        finally:
            self._jobs.over(run, asked.key, end)

    async def _work_on(self, run: AsyncRun, *, calm: bool) -> End:
        """Change what the job is about, look whether the slot is still ours, and end well or not."""
        chance, ttl = self._random.random(), self._scene.ttl
        if calm:
            await self._runtime.sleep(chance * ttl / 4)
            return End.WELL
        await self._work(run.lease, run.name)
        if chance < 0.2:
            await run.lost.wait(self._random.random() * ttl)
        elif chance < 0.5:
            need = self._random.choice([0, ttl / 3])
            run.check(need)
            self._check_alive(run.lease, need)
            await self._update(run.lease, run.name, chance * ttl, fenced=True)
        if self._random.random() < 0.12:
            raise BodyError
        if self._random.random() < 0.08:
            run.fail()
            return End.FAILED
        return End.WELL

    # --- choices

    def _job(self, name: str, label: str | None, options: OnceOptions) -> AsyncOnce:
        of_slot: OnceOptions = options.copy()
        if label is None:
            of_slot["every"] = self._jobs.period(name)
        else:
            of_slot["slot"] = label
        return self._site.client.once(name, **of_slot)

    def _job_options(self) -> OnceOptions:
        random, ttl = self._random, self._scene.ttl
        on_conflict: list[Literal["skip", "raise", "standby"]] = ["skip", "raise", "standby"]
        options: OnceOptions = {
            "on_conflict": random.choice(on_conflict),
            "on_failure": "close" if random.random() < 0.3 else "open",
            "ttl": ttl * (1.0 if random.random() < 0.7 else 0.5 + random.random()),
            "timeout": self._timeout(),
        }
        if random.random() < 0.1:
            options["max_hold"] = ttl * (0.4 + random.random())
        return options


async def _enter(attempt: AsyncAttempt, answers: list[AsyncRun | Skipped]) -> AsyncLease | None:
    """Begin an attempt, and tell what it brought."""
    answers.append(answer := await attempt.__aenter__())
    return answer.lease if answer else None
