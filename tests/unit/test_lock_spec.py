"""The description of a lock: one list of options, checked before any I/O."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

import leasehold
from leasehold._core.tenure import Tenure
from leasehold._face.lock_spec import LockOptions, LockSpec
from leasehold._record import replace
from leasehold.errors import ConfigurationError
from leasehold.values import Mode

GIVEN_BY_THE_CLIENT = {"name", "key", "mode", "capacity", "holder", "make_tenure"}


def test_what_a_user_may_write_is_what_the_spec_keeps() -> None:
    """`reason` is kept in the holder, because it is shown with it."""
    kept = {field.name for field in fields(LockSpec)} - GIVEN_BY_THE_CLIENT
    assert set(LockOptions.__annotations__) == kept | {"reason"}


def test_every_option_reaches_the_spec() -> None:
    options = LockOptions(
        ttl="2s", renew=False, max_hold=60, min_hold=1, group="jobs", reason="nightly run", reentrant=True
    )
    with leasehold.connect("memory://", label="batch") as client:
        spec = client.lock("x", **options)._twin._spec
    assert (spec.ttl, spec.renew, spec.max_hold, spec.min_hold) == (2.0, False, 60.0, 1.0)
    assert (spec.group, spec.reentrant) == ("jobs", True)
    assert (spec.holder.label, spec.holder.reason) == ("batch", "nightly run")
    with pytest.raises(FrozenInstanceError):
        spec.ttl = 3.0  # type: ignore[misc]


def test_every_kind_of_lock_takes_the_options() -> None:
    options = LockOptions(ttl="2s", reason="nightly run")
    with leasehold.connect("memory://") as client:
        pair = client.rwlock("x", **options)
        specs = [pair.read._twin._spec, pair.write._twin._spec, client.semaphore("x", 3, **options)._twin._spec]
        specs += [lock._spec for lock in client.lock_all(["b", "a", "b"], **options)._twin._locks]
    assert [(spec.ttl, spec.holder.reason) for spec in specs] == [(2.0, "nightly run")] * 5
    assert [(spec.name, spec.mode, spec.capacity) for spec in specs] == [
        ("x", Mode.SHARED, 1),
        ("x", Mode.EXCLUSIVE, 1),
        ("x", Mode.PERMIT, 3),
        ("a", Mode.EXCLUSIVE, 1),
        ("b", Mode.EXCLUSIVE, 1),
    ]


@pytest.mark.parametrize(("permits", "fits"), [(0, False), (1, True), (1_000_000, True), (1_000_001, False)])
def test_a_semaphore_has_from_one_to_a_million_permits(permits: int, fits: bool) -> None:
    with (
        leasehold.connect("memory://") as client,
        nullcontext() if fits else pytest.raises(ConfigurationError, match="from 1 to 1000000"),
    ):
        client.semaphore("x", permits)


def test_several_locks_need_names() -> None:
    with leasehold.connect("memory://") as client:
        with pytest.raises(ConfigurationError, match="at least one name"):
            client.lock_all([])
        with pytest.raises(ConfigurationError, match="not one text"):
            client.lock_all("ab")


def test_the_longest_hold_may_be_the_shortest() -> None:
    with leasehold.connect("memory://") as client:
        client.lock("x", min_hold=5, max_hold=5)


def test_a_lock_without_options_takes_the_defaults_and_the_clients_ttl() -> None:
    with leasehold.connect("memory://", ttl=7) as client:
        spec = client.lock("x")._twin._spec
    assert (spec.ttl, spec.renew, spec.max_hold, spec.min_hold) == (7.0, True, None, 0.0)
    assert (spec.group, spec.reentrant, spec.holder.reason) == (None, False, None)


@pytest.mark.parametrize("make", ["lock", "rwlock", "semaphore", "lock_all"])
def test_a_word_of_another_library_is_explained_for_every_kind_of_lock(make: str) -> None:
    arguments: dict[str, Any] = {"semaphore": ("x", 2), "lock_all": (["x"],)}
    with leasehold.connect("memory://") as client, pytest.raises(TypeError, match="is called ttl here"):
        getattr(client, make)(*arguments.get(make, ("x",)), expire=3)


def test_a_shortest_hold_above_the_longest_is_refused() -> None:
    with leasehold.connect("memory://") as client, pytest.raises(ConfigurationError, match="make it shorter"):
        client.lock("x", min_hold=10, max_hold=5)


@pytest.mark.parametrize(
    ("change", "in_batches"),
    [
        ({}, True),
        ({"max_hold": 9.0, "group": "g", "slow_wait": 2.0, "linger": 0.1}, True),
        ({"renew": False}, False),
        ({"min_hold": 1.0}, False),
        ({"reentrant": True}, False),
        ({"mode": Mode.SHARED}, False),
        ({"mode": Mode.PERMIT}, False),
        ({"fair": "strict"}, False),
        ({"make_tenure": Tenure}, False),
    ],
)
def test_only_a_plain_lock_is_passed_on_between_the_calls_of_a_client(change: dict[str, Any], in_batches: bool) -> None:
    """A term of an election, for one, ends earlier than its grant."""
    with leasehold.connect("memory://") as client:
        assert replace(client.lock("x")._twin._spec, **change).in_batches is in_batches
