"""`Election`, `Leading`, `Term` and `Observation`: the blocking twins of `leasehold.patterns.election`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, NoReturn, TypedDict, cast

from leasehold._runtimes.threads import run as finish
from leasehold.blocking._mirror import mirrors
from leasehold.blocking.lease import Lease
from leasehold.errors import ConfigurationError
from leasehold.patterns.election import AsyncElection, AsyncElectionOptions, AsyncLeading, AsyncTerm
from leasehold.patterns.observation import AsyncObservation

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from leasehold.client import AsyncClient
    from leasehold.durations import Duration
    from leasehold.lock_spec import Timeout
    from leasehold.values import Leader, Loss

__all__ = ["Election", "ElectionOptions", "Leading", "Observation", "Term", "make_election"]


@mirrors(AsyncElectionOptions)
class ElectionOptions(TypedDict, total=False):
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
        theirs["on_elected"] = lambda term: on_elected(Term(term))
    return Election(twin.election(name, **theirs))


def _refuse_async(function: object, what: str) -> None:
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"{what} is async ({function.__qualname__}), and a blocking client would never await it; use a client of "
            "connect_async()"
        )


@mirrors(AsyncElection)
class Election:
    def __init__(self, twin: AsyncElection) -> None:
        self._twin = twin

    @property
    @mirrors(AsyncElection.name)
    def name(self) -> str:
        return self._twin.name

    @property
    @mirrors(AsyncElection.is_leader)
    def is_leader(self) -> bool:
        return self._twin.is_leader

    @property
    @mirrors(AsyncElection.term)
    def term(self) -> Term | None:
        term = self._twin.term
        return None if term is None else Term(term)

    @mirrors(AsyncElection.lead)
    def lead(self, timeout: Timeout = None) -> Leading:
        return Leading(self._twin.lead(timeout))

    @mirrors(AsyncElection.run)
    def run(self, function: Callable[[Term], object]) -> NoReturn:
        _refuse_async(function, "the function")

        async def body(term: AsyncTerm) -> None:
            function(Term(term))

        finish(self._twin.run(body))

    @mirrors(AsyncElection.observe)
    def observe(self) -> Observation:
        return Observation(self._twin.observe())

    @mirrors(AsyncElection.__reduce__)
    def __reduce__(self) -> NoReturn:
        self._twin.__reduce__()

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncElection", "Election")


@mirrors(AsyncTerm)
class Term(Lease):
    _twin: AsyncTerm

    def __init__(self, twin: AsyncTerm) -> None:
        super().__init__(twin)

    @mirrors(AsyncTerm.step_down)
    def step_down(self) -> bool:
        return self._twin.step_down()

    def __repr__(self) -> str:
        return repr(self._twin).replace("AsyncTerm", "Term")


@mirrors(AsyncLeading)
class Leading:
    def __init__(self, twin: AsyncLeading) -> None:
        self._twin = twin

    def __enter__(self) -> Term:
        return Term(finish(self._twin.__aenter__()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finish(self._twin.__aexit__(kind, error, trace))


@mirrors(AsyncObservation)
class Observation:
    def __init__(self, twin: AsyncObservation) -> None:
        self._twin = twin

    @mirrors(AsyncObservation.stop)
    def stop(self) -> None:
        self._twin.stop()

    def __iter__(self) -> Observation:
        return self

    def __next__(self) -> Leader | None:
        try:
            return finish(self._twin.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
