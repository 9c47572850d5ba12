"""Partitions: `count` numbers shared out among all members that live. The async face, which is the core face.

Each partition is a lock of its own, so the store keeps it to one owner at a time and counts its fences. A member holds
one permit of a semaphore as well; its fence is the member's identity, and one inspection lists all members. Now and
then a member looks at that list, finds from it alone how many partitions it is due (`shares`), announces a surplus to
its worker, and tries to take what it lacks. A member that vanishes is off the list when its ttl is over, and its
partitions are free then.

No member tells another what to do, and none has to be right about the others: a wrong idea of who lives makes the
shares uneven for a while, and never gives a partition two owners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, TypedDict

from leasehold._core import events as happened
from leasehold._core.backoff import GRACE
from leasehold._core.names import check_name
from leasehold._durations import Duration, optional_seconds
from leasehold._face.lock_spec import LockOptions, is_whole
from leasehold._log import logger
from leasehold._patterns.partition import AsyncPartition
from leasehold._patterns.pattern_events import PartitionTaken
from leasehold._patterns.shares import MAX_COUNT, MEMBERS_PER_PARTITION, plan
from leasehold.errors import BackendError, ClientClosed, ConfigurationError, LeaseholdError, ModeConflict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from leasehold._face.client import AsyncClient
    from leasehold._face.lease import AsyncLease
    from leasehold._patterns.shares import Plan
    from leasehold.spi import Task
    from leasehold.values import Loss

__all__ = ["AsyncShare", "ShareOptions"]

LOOKS_PER_TTL = 10


class ShareOptions(TypedDict, total=False):
    """The options of `client.partitions`."""

    ttl: Duration | None
    retry: Duration | None
    grace: Duration | None
    reason: str | None


class AsyncShare:
    """This member's share of the partitions, made by `client.partitions`; good for one block."""

    def __init__(
        self,
        client: AsyncClient,
        name: str,
        count: int,
        *,
        ttl: Duration | None = None,
        retry: Duration | None = None,
        grace: Duration | None = None,
        reason: str | None = None,
    ) -> None:
        if not is_whole(count) or not 1 <= count <= MAX_COUNT:
            raise ConfigurationError(f"count must be a whole number from 1 to {MAX_COUNT}, not {count!r}")
        self._client = client
        self._runtime = client._runtime
        self._name = check_name(name)
        self._count = count
        self._options = LockOptions(ttl=ttl, group=name[:256], reason=reason)
        self._members_lock = client.semaphore(f"{name}/members", count * MEMBERS_PER_PARTITION, **self._options)
        self._retry = _retry_seconds(retry, self._members_lock.ttl)
        limit = optional_seconds(grace, "grace")
        self._grace = self._members_lock.ttl if limit is None else limit
        self._membership: AsyncLease | None = None
        self._members = 0
        self._held: dict[int, AsyncPartition] = {}  # oldest first; only single calls touch it, so threads may share it
        self._entered = False
        self._over = self._runtime.signal()
        self._worker: Task | None = None
        self._failures = 0
        self._guard = self._runtime.guard()
        self._changed = self._runtime.signal()  # raised once, then replaced: so any number of callers can wait for it
        self._version = self._seen = 0
        self._watcher = _EndOfLease(self)

    @property
    def name(self) -> str:
        """The name under which all members share."""
        return self._name

    @property
    def count(self) -> int:
        """How many partitions there are."""
        return self._count

    @property
    def members(self) -> int:
        """How many members there were when we looked last, this one included."""
        return self._members

    def owned(self) -> Sequence[AsyncPartition]:
        """The partitions that are ours now, decided by the clock, in order of index; also those that are leaving.

        Look again after each round of work, and release those that are `leaving`: another member waits for them.
        """
        with self._guard:
            self._seen = self._version
        ours = [partition for partition in tuple(self._held.values()) if partition._is_ours()]
        return tuple(sorted(ours, key=lambda partition: partition.index))

    async def wait_change(self, timeout: Duration | None = None) -> bool:
        """Wait until `owned` has changed since it was last called: one more, one less, or one that is leaving.

        False if `timeout` passes first, or when the share is over.
        """
        limit = optional_seconds(timeout, "timeout")
        deadline = None if limit is None else self._runtime.now() + limit
        with self._guard:
            seen = self._seen
        while True:
            with self._guard:
                changed, version = self._changed, self._version
            if version != seen:
                with self._guard:
                    self._seen = version
                return True
            if self._over.is_set() or not await self._runtime.wait(changed, deadline):
                return False

    async def leave(self, timeout: Duration = 0) -> None:
        """Stop being a member and give all partitions back; may be called twice. The end of the block does it too.

        With a `timeout` all partitions are announced as leaving, and their workers get so long to release them; other
        members take each as soon as it is free. What the store does not confirm is free when its ttl is over.
        """
        limit = optional_seconds(timeout, "timeout") or 0.0
        deadline = self._runtime.now() + limit
        self._over.set()
        if self._worker is not None:
            await self._worker.join(self._runtime.now() + GRACE)
        await self._runtime.shielded(self._resign)
        if limit:
            self._announce(tuple(self._held.values()), deadline)
            await self._drained(deadline)
        await self._runtime.shielded(self._release_all)
        self._note_change()

    async def __aenter__(self) -> AsyncShare:
        if self._entered:
            raise TypeError("this share is in use or used up; call partitions() again for another block")
        self._entered = True
        try:
            self._membership = await self._join()
            await self._look_or_wait()
        except GeneratorExit:
            raise  # nothing can be awaited any more; the ttl frees what was taken
        except BaseException:
            await self.leave()
            raise
        self._worker = self._runtime.spawn(self._work(), "leasehold partitions")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()

    def __reduce__(self) -> NoReturn:
        """Refuse pickling: another process must join as a member itself."""
        raise TypeError("a share belongs to this process; call partitions() in the other one")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} {len(self._held)} of {self._count}>"

    # --- the worker

    async def _work(self) -> None:
        """Look now and then, until the share is over. The pauses vary, so that members do not look in step."""
        while not self._over.is_set():
            pause = self._retry * (1 - 0.2 * self._runtime.random())
            if not await self._runtime.wait(self._over, self._runtime.now() + pause):
                await self._look_or_wait()

    async def _look_or_wait(self) -> None:
        """Look once. A store that does not answer changes nothing: what we have stays ours until its own deadline."""
        try:
            await self._look()
        except ClientClosed:
            self._over.set()
            self._note_change()
        except LeaseholdError as error:
            if not self._failures:
                logger.warning("cannot look after the partitions of %r; trying again: %s", self._name, error)
            self._failures += 1
        else:
            if self._failures:
                self._client._events.emit(happened.StoreReached(self._name, self._failures))
            self._failures = 0

    async def _look(self) -> None:
        """Drop what is lost, find out what we are due, let go of a surplus, take what we lack."""
        held = tuple(self._held.values())
        for partition in held:
            if not partition._is_ours():
                self._forget(partition)
        if self._membership is None or self._membership.loss is not None:
            self._membership = await self._members_lock.try_acquire()
        if self._membership is None:
            return  # there is no room for another member
        if self._over.is_set():
            await self._resign()  # we were leaving while the store took its time
            return
        todo = await self._find_out(self._membership.fence)
        now = self._runtime.now()
        self._announce([self._held[index] for index in todo.let_go if index in self._held], now + self._grace)
        await self._take_away_overdue()
        await self._take(todo)

    async def _find_out(self, me: int) -> Plan:
        state = await self._client.inspect(self._members_lock.name)
        holdings = () if state is None else state.holdings
        members = [holding.fence for holding in holdings if holding.broken is None]
        self._members = len(members)
        held = tuple(self._held.values())
        staying = [partition.index for partition in held if not partition.leaving]
        return plan(self._count, members, me, staying, [p.index for p in held if p.leaving])

    async def _take(self, todo: Plan) -> None:
        wanted = todo.wanted
        for index in todo.candidates:
            if not wanted or self._over.is_set():
                return
            lease = await self._client.lock(f"{self._name}/{index}", **self._options).try_acquire()
            if lease is not None and self._over.is_set():
                await self._let_go(lease)  # `leave` did not wait any longer for this answer
            elif lease is not None:
                wanted -= 1
                lease._watch(self._watcher)
                self._held[index] = AsyncPartition(index, lease, self._forget)
                if self._client._events.wanted(PartitionTaken):
                    self._client._events.emit(PartitionTaken(lease.name, self._name, index, lease.fence))
                self._note_change()

    def _announce(self, partitions: Sequence[AsyncPartition], deadline: float) -> None:
        for partition in partitions:
            if partition._leave_by is None:
                partition._leave_by = deadline
                self._note_change()

    async def _take_away_overdue(self) -> None:
        now = self._runtime.now()
        for partition in tuple(self._held.values()):
            if partition._leave_by is not None and partition._leave_by <= now:
                await partition._take_away()

    # --- coming and going

    async def _join(self) -> AsyncLease:
        try:
            return await self._members_lock.acquire()
        except ModeConflict as error:
            raise ModeConflict(
                f"{self._name!r} is shared out by others, and not as {self._count} partitions: every member must give "
                f"the same count, and to change it all of them have to leave first ({error})",
                name=self._name,
                backend=error.backend,
            ) from None

    async def _resign(self) -> None:
        if self._membership is not None:
            await self._let_go(self._membership)

    async def _drained(self, deadline: float) -> None:
        """Wait until the workers have released everything."""
        is_waiting = True
        while is_waiting:
            with self._guard:
                changed = self._changed
            busy = any(partition._is_ours() for partition in tuple(self._held.values()))
            is_waiting = busy and await self._runtime.wait(changed, deadline)

    async def _release_all(self) -> None:
        for partition in tuple(self._held.values()):
            await partition.release()

    async def _let_go(self, lease: AsyncLease) -> None:
        """Release; if the store does not answer, that is tried again in the background, until the ttl frees it."""
        try:
            await lease.release()
        except (BackendError, ClientClosed):
            return

    def _forget(self, partition: AsyncPartition) -> None:
        if self._held.get(partition.index) is partition:
            del self._held[partition.index]  # the end of its lease was the change

    def _note_change(self) -> None:
        with self._guard:
            self._version += 1
            changed, self._changed = self._changed, self._runtime.signal()
        changed.set()


class _EndOfLease:
    """Tells the share that a lease is over; called by the keeper."""

    def __init__(self, share: AsyncShare) -> None:
        self._share = share

    def on_end(self, _: Loss | None) -> None:
        self._share._note_change()

    def loss_is_raised(self) -> None:
        pass


def _retry_seconds(retry: Duration | None, ttl: float) -> float:
    given = optional_seconds(retry, "retry")
    if given is None:
        return ttl / LOOKS_PER_TTL
    if not 0 < given <= ttl:
        raise ConfigurationError(
            f"retry ({given:g} s) must be above 0 and at most the ttl ({ttl:g} s): it is how often a member looks for "
            "others that came or went"
        )
    return given
