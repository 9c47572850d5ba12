"""From events to measurements: what one client's events mean for counters, gauges and spans. It knows no library.

Every `Acquired` is followed by `Released`, `Lost`, `Dropped` or `ReleaseFailed` with the same name and fence, and every
`WaitBegan` by the end of its call; the recorder keeps what is open, so that no gauge goes below zero, whenever it was
switched on. In a forked child nothing is held: leases and waiting calls are the parent's.

A grant and a release come as calls with the fields of their events, because they are the bulk of all events; see
docs/adr/0104.
"""

from __future__ import annotations

import os
import weakref
from time import monotonic
from typing import TYPE_CHECKING, Any

from leasehold import events as happened
from leasehold.errors import ConfigurationError
from leasehold.fencing import checks
from leasehold.telemetry.batch import CHANGING
from leasehold.telemetry.labels import OTHER, BoundedValues, backend_of
from leasehold.telemetry.sink import ACQUIRE, HELD, HOLD, Hold
from leasehold.values import LossReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leasehold._face.client import AsyncClient
    from leasehold.telemetry.sink import Pair, Sink

__all__ = ["LEADER", "PARTITIONS", "WAITERS", "Recorder", "switch_on"]


WAITERS = "leasehold.lock.waiters"
PARTITIONS = "leasehold.partitions.owned"
LEADER = "leasehold.leader.status"

_SWITCHED_ON: weakref.WeakKeyDictionary[AsyncClient, dict[int, Recorder]] = weakref.WeakKeyDictionary()


def switch_on(client: AsyncClient, sink: Sink, groups: Iterable[str], max_groups: int) -> Callable[[], None]:
    """Connect the events of a client with a sink; the result ends that."""
    recorder = Recorder(sink, backend_of(client._store), BoundedValues(max_groups, groups))  # noqa: SLF001 - a friend
    recorders = _SWITCHED_ON.setdefault(client, {})
    place = id(sink.destination)
    if recorders.setdefault(place, recorder) is not recorder:
        raise ConfigurationError(
            "this client is reported there already, and would be counted twice; switch it off first, with what the "
            "earlier call returned"
        )
    recorder.announce()
    stop = client._events.attach(recorder)  # noqa: SLF001 - a friend
    _watch_guards(sink)

    def switch_off() -> None:
        if recorders.get(place) is recorder:
            stop()
            del recorders[place]
            recorder.close()

    return switch_off


_GUARDS_COUNTED: dict[int, Sink] = {}  # by destination, which the sink keeps


def _watch_guards(sink: Sink) -> None:
    """Count what guards decide, once for each sink, however many clients report to it; guards are the process's."""
    if id(sink.destination) not in _GUARDS_COUNTED:
        _GUARDS_COUNTED[id(sink.destination)] = sink
        checks.subscribe(lambda outcome: sink.count("leasehold.fence.checks", outcome))


class Recorder:
    """Hears the events of one client."""

    def __init__(self, sink: Sink, backend: str, groups: BoundedValues) -> None:
        self._sink = sink
        self._traces = sink.traces
        self._backend = backend
        self._groups = groups
        self._pairs: dict[tuple[str | None, str], Pair] = {}
        self._held: dict[tuple[str, int], tuple[Pair, float]] = {}  # by name and fence, with its beginning
        self._holds: dict[tuple[str, int], Hold] = {}  # of those, the ones that have a span or are a pattern's
        self._waiting: dict[int, str] = {}
        self._known: dict[type[happened.Event], Callable[[Any], None]] = {
            happened.WaitBegan: self._wait_began,
            happened.TimedOut: self._timed_out,
            happened.Refused: self._refused,
            happened.AcquireFailed: self._acquire_failed,
            happened.Lost: self._lost,
            happened.Dropped: self._dropped,
            happened.ReleaseFailed: self._release_failed,
            happened.Renewed: self._renewed,
            happened.RenewalFailed: self._renewal_failed,
            happened.StoreUnreachable: self._store_unreachable,
            happened.Campaigning: self._campaigning,
            happened.Elected: self._elected,
            happened.PartitionTaken: self._partition_taken,
            happened.RunEnded: self._run_ended,
            happened.RunSkipped: self._run_skipped,
            happened.Completed: lambda _: self._key("executed"),
            happened.Replayed: lambda _: self._key("replayed"),
            happened.KeyRefused: lambda event: self._key(event.why),
            happened.Unprotected: lambda _: self._key("unprotected"),
            happened.CacheRead: self._cache_read,
            happened.Built: self._built,
            happened.BuildFailed: lambda _: self._cache_failed("build"),
            happened.FillRefused: lambda _: self._cache_failed("refused"),
            happened.FillFailed: lambda _: self._cache_failed("store"),
        }
        sink.follow(self)
        _RECORDERS.add(self)

    def record(self, event: happened.Event) -> None:
        """One event."""
        known = self._known.get(type(event))
        if known is not None:
            known(event)

    def announce(self) -> None:
        """Let the groups that are known from the start show a zero."""
        for group in tuple(self._groups.known):
            self._sink.shift(HELD, 0, self._backend, group)
            self._sink.shift(WAITERS, 0, self._backend, group)

    def held(self) -> Iterable[tuple[str, str]]:
        """Backend and group of each lock that is held."""
        return [(self._backend, pair.group) for pair, _ in list(self._held.values())]

    def close(self) -> None:
        """Take back what is open: its end would not be recorded any more."""
        for call in list(self._waiting):
            self._stop_waiting(call)
        for key in list(self._held):
            held = self._held.pop(key, None)
            if held is not None:
                self._sink.shift(HELD, -1, self._backend, held[0].group)
                self._after(key, "unobserved")
        self._sink.leave(self)

    def after_fork(self) -> None:
        """In a child: what is open is the parent's, and so are its spans."""
        groups = {pair.group for pair, _ in self._held.values()} | set(self._waiting.values())
        holds = list(self._holds.values())
        self._held.clear()
        self._holds.clear()
        self._waiting.clear()
        for group in groups:
            self._sink.zero(HELD, self._backend, group)
            self._sink.zero(WAITERS, self._backend, group)
        for hold in holds:
            if hold.election is not None:
                self._sink.zero(LEADER, self._backend, hold.election)
            if hold.share is not None:
                self._sink.zero(PARTITIONS, self._backend, hold.share)

    # --- every pair

    def acquired(  # noqa: PLR0917 - the fields of the event
        self, name: str, fence: int, waited: float, group: str | None, mode: str, call: int
    ) -> None:
        """A lock was granted."""
        pair = self._pairs.get((group, mode))
        if pair is None:
            pair = self._find_pair(group, mode)
        if call:
            self._stop_waiting(call)
        self._held[name, fence] = pair, monotonic()
        pair.acquired(waited)
        if self._traces:
            hold = self._holds[name, fence] = Hold()
            self._sink.begin(hold, pair, name, fence, waited)

    def released(self, name: str, fence: int) -> None:
        """A lock was given back."""
        held = self._held.pop((name, fence), None)
        if held is not None:
            pair, since = held
            pair.released(monotonic() - since)
            if self._holds:
                self._after((name, fence), "released")

    def _find_pair(self, group: str | None, mode: str) -> Pair:
        """Kept for the groups that are known; those that count as `other` may be without end, and are not kept."""
        known = self._groups.of(group)
        pair = self._sink.pair(self._backend, known, mode)
        if known != OTHER:
            self._pairs[group, mode] = pair
        return pair

    # --- calls that want a lock

    def _wait_began(self, event: happened.WaitBegan) -> None:
        group = self._waiting[event.call] = self._groups.of(event.group)
        self._sink.shift(WAITERS, 1, self._backend, group)

    def _stop_waiting(self, call: int) -> None:
        group = self._waiting.pop(call, None)
        if group is not None:
            self._sink.shift(WAITERS, -1, self._backend, group)

    def _timed_out(self, event: happened.TimedOut) -> None:
        self._not_acquired(event, "busy" if event.at_once else "timeout")

    def _refused(self, event: happened.Refused) -> None:
        self._not_acquired(event, "busy")

    def _acquire_failed(self, event: happened.AcquireFailed) -> None:
        self._not_acquired(event, "cancelled" if event.cancelled else "error")

    def _not_acquired(self, event: happened.TimedOut | happened.Refused | happened.AcquireFailed, outcome: str) -> None:
        group = self._groups.of(event.group)
        if event.call:
            self._stop_waiting(event.call)
        self._sink.observe(ACQUIRE, event.waited, self._backend, group, event.mode, outcome)
        self._sink.not_acquired(event, outcome, group)

    # --- leases

    def _dropped(self, event: happened.Dropped) -> None:
        self._end(event.name, event.fence, "dropped")

    def _release_failed(self, event: happened.ReleaseFailed) -> None:
        self._end(event.name, event.fence, "unconfirmed")

    def _lost(self, event: happened.Lost) -> None:
        held = self._held.get((event.name, event.fence))
        group = self._groups.of(None) if held is None else held[0].group
        self._sink.count("leasehold.lock.lost", self._backend, group, _word(event.loss.reason))
        self._during(event.name, event.fence, event)
        self._end(event.name, event.fence, "forced" if event.loss.reason is LossReason.BROKEN else "lost")

    def _end(self, name: str, fence: int, end: str) -> None:
        held = self._held.pop((name, fence), None)
        if held is not None:  # else it ended before: a lost lease may be released as well
            (pair, since), key = held, (name, fence)
            self._sink.observe(HOLD, monotonic() - since, self._backend, pair.group, end)
            self._sink.shift(HELD, -1, self._backend, pair.group)
            self._after(key, end)

    def _after(self, key: tuple[str, int], end: str) -> None:
        hold = self._holds.pop(key, None)
        if hold is None:
            return
        if hold.election is not None:
            self._sink.put(LEADER, 0, self._backend, hold.election)
        if hold.share is not None:
            self._sink.shift(PARTITIONS, -1, self._backend, hold.share)
        self._sink.end(hold, end)

    def _during(self, name: str, fence: int, event: happened.Event) -> None:
        hold = self._holds.get((name, fence))
        if hold is not None:
            self._sink.during(hold, event)

    def _renewed(self, _: happened.Renewed) -> None:
        self._sink.count("leasehold.lock.renewals", self._backend, "ok")

    def _renewal_failed(self, event: happened.RenewalFailed) -> None:
        self._sink.count("leasehold.lock.renewals", self._backend, "failed")
        self._during(event.name, event.fence, event)

    def _store_unreachable(self, _: happened.StoreUnreachable) -> None:
        self._sink.count("leasehold.store.outages", self._backend)

    # --- patterns

    def _campaigning(self, event: happened.Campaigning) -> None:
        self._sink.put(LEADER, 0, self._backend, self._groups.of(event.group or event.name))

    def _elected(self, event: happened.Elected) -> None:
        if (event.name, event.fence) in self._held:
            hold = self._holds.setdefault((event.name, event.fence), Hold())
            hold.election = self._groups.of(event.group or event.name)
            self._sink.put(LEADER, 1, self._backend, hold.election)

    def _partition_taken(self, event: happened.PartitionTaken) -> None:
        if (event.name, event.fence) in self._held:
            hold = self._holds.setdefault((event.name, event.fence), Hold())
            hold.share = self._groups.of(event.share)
            self._sink.shift(PARTITIONS, 1, self._backend, hold.share)

    def _run_ended(self, event: happened.RunEnded) -> None:
        outcome = "failed" if event.failed else "done"
        self._sink.count("leasehold.once.runs", self._backend, self._groups.of(event.job), outcome)

    def _run_skipped(self, event: happened.RunSkipped) -> None:
        self._sink.count("leasehold.once.runs", self._backend, self._groups.of(event.job or event.name), "skipped")

    def _key(self, outcome: str) -> None:
        self._sink.count("leasehold.idempotency.requests", self._backend, outcome)

    def _cache_read(self, event: happened.CacheRead) -> None:
        self._sink.count("leasehold.cache.requests", self._backend, self._groups.of(event.cache), event.found)

    def _built(self, event: happened.Built) -> None:
        self._sink.observe("leasehold.cache.build.duration", event.took, self._backend)

    def _cache_failed(self, kind: str) -> None:
        self._sink.count("leasehold.cache.failures", self._backend, kind)


def _word(reason: str) -> str:
    """A reason as the value of a label."""
    return str(reason).replace(" ", "_")


_RECORDERS: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _nothing_is_ours() -> None:
    CHANGING.release()
    for recorder in list(_RECORDERS):
        recorder.after_fork()


if hasattr(os, "register_at_fork"):  # a child must not inherit a metric that a thread of its parent is changing
    os.register_at_fork(before=CHANGING.acquire, after_in_parent=CHANGING.release, after_in_child=_nothing_is_ours)
