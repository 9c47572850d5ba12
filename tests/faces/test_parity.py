"""The blocking face and the async face have the same members and signatures, and docstrings that say the same."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import _blocking as blocking
from leasehold._blocking.cache import Cache, Cached
from leasehold._blocking.election import Election, Leading, Observation, Term
from leasehold._blocking.idempotency import Idempotency, KeyedAttempt
from leasehold._blocking.once import Attempt, Once, Run
from leasehold._blocking.partitions import Partition, Share
from leasehold._face.client import AsyncClient, connect_async
from leasehold._face.hold import AsyncHold
from leasehold._face.lease import AsyncLease, AsyncLeaseSet, AsyncLost
from leasehold._face.lock import AsyncLock, AsyncLockSet, AsyncMutex, AsyncRWLock
from leasehold._face.lock_words import LockWords
from leasehold._patterns.cache import AsyncCache, AsyncCached
from leasehold._patterns.election import AsyncElection, AsyncLeading, AsyncTerm
from leasehold._patterns.idempotency import AsyncIdempotency
from leasehold._patterns.keyed_attempt import AsyncKeyedAttempt
from leasehold._patterns.observation import AsyncObservation
from leasehold._patterns.once import AsyncAttempt, AsyncOnce, AsyncRun
from leasehold._patterns.partition import AsyncPartition
from leasehold._patterns.partitions import AsyncShare
from leasehold.sql import AsyncTransactionAttempt, TransactionAttempt
from tools import blocking_docstrings

if TYPE_CHECKING:
    from pathlib import Path

TWINS: list[tuple[type, type]] = [
    (AsyncAttempt, Attempt),
    (AsyncCache, Cache),
    (AsyncCached, Cached),
    (AsyncClient, blocking.Client),
    (AsyncElection, Election),
    (AsyncHold, blocking.Hold),
    (AsyncLeading, Leading),
    (AsyncIdempotency, Idempotency),
    (AsyncKeyedAttempt, KeyedAttempt),
    (AsyncLease, blocking.Lease),
    (AsyncLeaseSet, blocking.LeaseSet),
    (AsyncLock, blocking.Lock),
    (AsyncLockSet, blocking.LockSet),
    (AsyncLost, blocking.Lost),
    (AsyncMutex, blocking.Mutex),
    (AsyncObservation, Observation),
    (AsyncOnce, Once),
    (AsyncPartition, Partition),
    (AsyncRWLock, blocking.RWLock),
    (AsyncRun, Run),
    (AsyncShare, Share),
    (AsyncTerm, Term),
    (AsyncTransactionAttempt, TransactionAttempt),
]


def members(kind: type) -> dict[str, Any]:
    """The public ones, those of its parts (base classes) included; not the words that a lock only explains."""
    parts = [part for part in kind.__mro__[:-1] if part is not LockWords]
    return {name: member for part in parts for name, member in vars(part).items() if not name.startswith("_")}


def function_of(member: Any) -> Any:
    return member.fget if isinstance(member, property) else member


@pytest.mark.parametrize(("original", "twin"), TWINS, ids=lambda kind: kind.__name__)
def test_twins_have_the_same_members(original: type, twin: type) -> None:
    assert set(members(original)) == set(members(twin))
    assert twin.__name__ == original.__name__.removeprefix("Async")


@pytest.mark.parametrize(("original", "twin"), TWINS, ids=lambda kind: kind.__name__)
def test_twins_take_the_same_arguments(original: type, twin: type) -> None:
    for name, member in members(original).items():
        theirs = members(twin)[name]
        assert isinstance(member, property) == isinstance(theirs, property), name
        here, there = inspect.signature(function_of(member)), inspect.signature(function_of(theirs))
        # A function that is handed over is awaited there and called here.
        assert [
            re.sub(r"Awaitable\[(\w+)\]", r"\1", str(p).replace("Async", "")) for p in here.parameters.values()
        ] == [str(p).replace("Async", "") for p in there.parameters.values()], name


@pytest.mark.parametrize(("original", "twin"), TWINS, ids=lambda kind: kind.__name__)
def test_every_member_of_both_twins_has_a_docstring(original: type, twin: type) -> None:
    assert inspect.getdoc(original)
    assert inspect.getdoc(twin)
    for name, member in members(original).items():
        assert inspect.getdoc(function_of(member)), f"{original.__name__}.{name}"
        assert inspect.getdoc(function_of(members(twin)[name])), f"{twin.__name__}.{name}"


@pytest.mark.parametrize("path", sorted(blocking_docstrings.FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_docstrings_of_the_blocking_face_are_those_of_the_async_one_in_blocking_words(path: Path) -> None:
    assert blocking_docstrings.rewritten(path) == path.read_text(), "run python tools/blocking_docstrings.py"


def test_the_blocking_face_speaks_of_nothing_that_is_async() -> None:
    for twin in (twin for _, twin in TWINS if twin.__module__.startswith("leasehold._blocking")):
        for name, member in {**members(twin), "the class": twin}.items():
            assert not re.search(r"async|await |\btask|coroutine|Async", function_of(member).__doc__), (twin, name)


def test_every_sentence_that_is_said_differently_is_there() -> None:
    for name, sentences in blocking_docstrings.SENTENCES.items():
        kind, _, member = name.partition(".")
        face = {**{twin.__name__: twin for _, twin in TWINS}, "Patterns": blocking.Client}[kind]
        documented = " ".join(inspect.getdoc(function_of(members(face)[member])).split())  # type: ignore[union-attr]
        for _, said in sentences:
            assert said in documented, name


@pytest.mark.parametrize(("original", "twin"), TWINS, ids=lambda kind: kind.__name__)
def test_what_awaits_there_blocks_here_and_the_rest_is_plain_in_both(original: type, twin: type) -> None:
    for name, member in members(twin).items():
        assert not inspect.iscoroutinefunction(function_of(member)), f"{twin.__name__}.{name} must block"
    plain = {"check", "remaining", "is_set", "locked", "hold", "lock", "as_mutex"}
    for name in plain & set(members(original)):
        assert not inspect.iscoroutinefunction(function_of(members(original)[name])), name


@pytest.mark.parametrize(("original", "twin"), TWINS, ids=lambda kind: kind.__name__)
def test_context_managers_match(original: type, twin: type) -> None:
    assert hasattr(original, "__aenter__") == hasattr(twin, "__enter__")


def test_connect_and_connect_async_take_the_same_arguments() -> None:
    here, there = inspect.signature(leasehold.connect), inspect.signature(connect_async)
    assert list(map(str, here.parameters.values())) == list(map(str, there.parameters.values()))


def test_the_blocking_face_works_inside_a_running_loop() -> None:
    import asyncio

    async def notebook_cell() -> int:
        with leasehold.connect("memory://").lock("x").hold() as lease:
            return lease.fence

    assert asyncio.run(notebook_cell()) == 1
