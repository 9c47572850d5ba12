"""`Election`, `Leading`, `Term` and `Observation`: the blocking twins of `leasehold._patterns.election`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, NoReturn, TypedDict, cast

from leasehold._blocking.lease import Lease
from leasehold._blocking.twin import BlockTwin, Twin
from leasehold._runtimes.threads import run
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._durations import Duration
    from leasehold._face.client import AsyncClient
    from leasehold._face.lock_spec import Timeout
    from leasehold._patterns.election import AsyncElection, AsyncElectionOptions, AsyncLeading, AsyncTerm
    from leasehold._patterns.observation import AsyncObservation
    from leasehold.values import Leader, Loss

__all__ = ["Election", "ElectionOptions", "Leading", "Observation", "Term", "make_election"]


class ElectionOptions(TypedDict, total=False):
    """The options of `client.election`."""

    ttl: Duration
    renew_deadline: Duration
    retry: Duration
    group: str | None
    reason: str | None
    on_elected: Callable[[Term], object] | None
    on_lost: Callable[[Loss], object] | None
    on_new_leader: Callable[[Leader], object] | None


def make_election(twin: AsyncClient, name: str, options: ElectionOptions) -> Election:
    """The election; its `on_elected` gets a blocking term."""
    for what in ("on_elected", "on_lost", "on_new_leader"):
        _refuse_async(options.get(what), what)
    theirs = cast("AsyncElectionOptions", dict(options))
    on_elected = options.get("on_elected")
    if on_elected is not None:
        theirs["on_elected"] = lambda term: on_elected(Term._of(term))
    return Election._of(twin.election(name, **theirs))


def _refuse_async(function: object, what: str) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{what} is async ({function.__qualname__}), and a blocking client would never await it; use a client of "
            "connect_async()"
        )


class Election(Twin):
    """An election, made by `client.election`: `lead` or `run` to be a candidate, `observe` to look on."""

    _twin: AsyncElection

    @property
    def name(self) -> str:
        """The name of the election, which is also the name of its lock."""
        return self._twin.name

    @property
    def is_leader(self) -> bool:
        """Whether this object leads now, by the clock: true only before the renew deadline. It never waits."""
        return self._twin.is_leader

    @property
    def term(self) -> Term | None:
        """The term that this object leads in now; None while it does not lead."""
        term = self._twin.term
        return None if term is None else Term._of(term)

    def lead(self, timeout: Timeout = None) -> Leading:
        """A context manager: waits to be elected, runs the block as the leader, and resigns, however the block ends.

        It gives the term, which is a lease. When the term ends first, `term.lost` is set. The block then ends with
        `LeaseLost`. `timeout` (None: for ever) limits the wait; `AcquireTimeout` names the leader.
        """
        return Leading._of(self._twin.lead(timeout))

    def run(self, function: Callable[[Term], object]) -> NoReturn:
        """Be a candidate for ever: call `function(term)` in each term, resign when it ends, and campaign again.

        When the term ends first, `term.lost` is set, and the function has to return. An error of the function ends
        `run`, after it has resigned; so does closing the client. A store that cannot be reached is tried again.
        """
        _refuse_async(function, "the function")

        async def body(term: AsyncTerm) -> None:
            function(Term._of(term))

        run(self._twin.run(body))

    def observe(self) -> Observation:
        """Iterate over the changes of the leader: a `Leader`, or None while there is none; the present one first.

        The store is asked every `retry` seconds; terms that come and go in between are not seen. Looking on is free of
        promises: what it shows may be over by now.
        """
        return Observation._of(self._twin.observe())


class Term(Lease):
    """One term of a leader: a lease that ends at the renew deadline, while the store still keeps others out."""

    _twin: AsyncTerm

    def step_down(self) -> bool:
        """End the term now, from anywhere, without waiting; True if it was not over before.

        `is_leader` is False at once; `lost` is set. The successor is let in when the body has ended, no later than
        after the ttl: stepping down never makes two leaders.
        """
        return self._twin.step_down()


class Leading(BlockTwin):
    """Campaigns and leads for one block: `with election.lead() as term`. The body never runs without a term."""

    _twin: AsyncLeading

    def __enter__(self) -> Term:
        return Term._of(run(self._twin.__aenter__()))


class Observation(Twin):
    """The changes of a leader: `for leader in election.observe()`. It ends when `stop` is called."""

    _twin: AsyncObservation

    def stop(self) -> None:
        """End the iteration, also from another thread."""
        self._twin.stop()

    def __iter__(self) -> Observation:
        return self

    def __next__(self) -> Leader | None:
        try:
            return run(self._twin.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
