"""Each option of a lock, of a client and of a call: which values it takes, and which option a refusal names."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

import leasehold
from leasehold import Backoff, ConfigurationError
from leasehold._face.lock_spec import LockSpec, how_to_wait, with_group
from leasehold.testing import ManualStore
from leasehold.values import Mode


def spec_of(**options: Any) -> LockSpec:
    with leasehold.connect("memory://", ttl=20) as client:
        return client.lock("x", **options)._twin._spec


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("ttl", 0, "ttl must be at least 0.1"),
        ("ttl", 0.05, "ttl must be at least 0.1"),
        ("ttl", "soon", "ttl must look like"),
        ("renew", 1, "renew must be True or False, not 1"),
        ("renew", None, "renew must be True or False"),
        ("max_hold", 0.05, "max_hold must be at least 0.1"),
        ("max_hold", "soon", "max_hold must look like"),
        ("min_hold", -1, "min_hold must be between 0"),
        ("group", 7, "group must be text"),
        ("group", "x" * 257, "group has 257 characters"),
        ("reason", 7, "reason must be text"),
        ("reason", "x" * 257, "reason has 257 characters"),
        ("reentrant", 0, "reentrant must be True or False, not 0"),
        ("fair", "batch", "fair must be 'batches' or 'strict', not 'batch'"),
        ("fair", None, "fair must be"),
        ("linger", -1, "linger must be between 0"),
        ("slow_wait", -1, "slow_wait must be between 0"),
        ("slow_wait_level", "LOUD", "slow_wait_level must be a level of logging"),
        ("slow_wait_level", True, "slow_wait_level must be a level of logging"),
        ("slow_wait_level", None, "slow_wait_level must be a level of logging"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_the_name_of_its_option(
    option: str, value: object, complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"^{complaint}"):
        spec_of(**{option: value})


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"ttl": None}, {"ttl": 20.0}),
        ({"ttl": "2s"}, {"ttl": 2.0}),
        ({"max_hold": None}, {"max_hold": None}),
        ({"max_hold": 0.1}, {"max_hold": 0.1}),
        ({"min_hold": "500ms"}, {"min_hold": 0.5}),
        ({"group": ""}, {"group": ""}),
        ({"group": "x" * 256}, {"group": "x" * 256}),
        ({"fair": "strict"}, {"fair": "strict", "in_batches": False}),
        ({"linger": None}, {"linger": 0.0, "in_batches": True}),
        ({"linger": 0}, {"linger": 0.0}),
        ({"linger": "1s"}, {"linger": 1.0}),
        ({"linger": 0.5, "ttl": 1}, {"linger": 0.5}),
        ({"slow_wait": None}, {"slow_wait": math.inf}),
        ({"slow_wait": 0}, {"slow_wait": 0.0}),
        ({"slow_wait": "2m"}, {"slow_wait": 120.0}),
        ({"slow_wait_level": "info"}, {"slow_wait_level": logging.INFO}),
        ({"slow_wait_level": "CRITICAL"}, {"slow_wait_level": logging.CRITICAL}),
        ({"slow_wait_level": 0}, {"slow_wait_level": 0}),
        ({"slow_wait_level": 23}, {"slow_wait_level": 23}),
        ({}, {"slow_wait": 1.0, "slow_wait_level": logging.WARNING, "fair": "batches", "linger": 0.0}),
        ({"renew": False}, {"in_batches": False}),
        ({"min_hold": 1}, {"in_batches": False}),
        ({"reentrant": True}, {"in_batches": False}),
    ],
)
def test_what_an_option_means(options: dict[str, Any], facts: dict[str, Any]) -> None:
    spec = spec_of(**options)
    assert {fact: getattr(spec, fact) for fact in facts} == facts


@pytest.mark.parametrize("name", ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])
def test_the_levels_are_those_of_logging(name: str) -> None:
    assert spec_of(slow_wait_level=name).slow_wait_level == getattr(logging, name)


def test_a_level_of_the_programs_own_is_known_by_its_name() -> None:
    logging.addLevelName(21, "NOTICE")
    try:
        assert spec_of(slow_wait_level="notice").slow_wait_level == 21
    finally:
        logging._nameToLevel.pop("NOTICE")
        logging._levelToName.pop(21)


@pytest.mark.parametrize("kind", [Mode.SHARED, Mode.PERMIT])
def test_only_a_lock_that_one_holder_has_alone_is_passed_on_in_batches(kind: Mode) -> None:
    with leasehold.connect("memory://") as client:
        lock = client.rwlock("x").read if kind is Mode.SHARED else client.semaphore("x", 2)
        assert lock._twin._spec.mode is kind
        assert not lock._twin._spec.in_batches


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"linger": 1.01}, r"linger \(1.01 s\) must be at most 1 s"),
        ({"linger": 0.51, "ttl": 1}, "must be at most 0.5 s"),
        ({"linger": 0.5, "renew": False}, "linger cannot be combined with renew=False"),
        ({"linger": 0.5, "min_hold": 1}, "linger cannot be combined with min_hold"),
        ({"linger": 0.5, "reentrant": True}, "linger cannot be combined with reentrant=True"),
        ({"linger": 0.5, "fair": "strict"}, 'linger cannot be combined with fair="strict"'),
    ],
)
def test_a_lock_cannot_linger_in_every_way(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        spec_of(**options)


@pytest.mark.parametrize("permits", [0, -1, True, 1.0, "3", None, 1_000_001])
def test_what_is_no_number_of_permits_is_refused(permits: Any) -> None:
    with leasehold.connect("memory://") as client, pytest.raises(ConfigurationError, match="permits must be a whole"):
        client.semaphore("x", permits)


def test_a_lock_has_the_slow_wait_of_its_client_unless_it_has_its_own() -> None:
    with leasehold.connect("memory://", slow_wait="3s", slow_wait_level="ERROR") as client:
        plain, own = client.lock("x")._twin._spec, client.lock("x", slow_wait=9, slow_wait_level=5)._twin._spec
    assert (plain.slow_wait, plain.slow_wait_level) == (3.0, logging.ERROR)
    assert (own.slow_wait, own.slow_wait_level) == (9.0, 5)
    with leasehold.connect("memory://", slow_wait=None) as client:
        assert client.lock("x")._twin._spec.slow_wait == math.inf
        assert client.lock("x", slow_wait=2)._twin._spec.slow_wait == 2.0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"namespace": ""}, "a namespace must not be empty"),
        ({"ttl": 0}, "ttl must be at least"),
        ({"timeout": -1}, "timeout must be between"),
        ({"label": 7}, "label must be text"),
        ({"label": "x" * 257}, "label has 257 characters"),
        ({"slow_wait": -1}, "slow_wait must be between"),
        ({"slow_wait_level": "LOUD"}, "slow_wait_level must be a level"),
    ],
)
@pytest.mark.parametrize("connect", [leasehold.connect, leasehold.connect_async], ids=lambda one: one.__name__)
def test_an_option_of_a_client_is_refused_by_its_name(connect: Any, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{complaint}"):
        connect("memory://", **options)


def test_what_a_client_is_like_unless_it_is_told() -> None:
    with leasehold.connect("memory://") as client:
        twin = client._twin
        assert client.lock("x").ttl == 30.0
        assert (twin._timeout, twin._label, twin._namespace) == (None, None, "leasehold")
        assert (twin._open().connect_timeout, twin._open().close_patience) == (10.0, 5.0)


@pytest.mark.parametrize(("given", "left"), [(..., 7.0), (None, None), (0, 0.0), (3, 3.0), ("500ms", 0.5)], ids=str)
def test_a_call_has_the_timeout_of_its_client_unless_it_has_its_own(given: Any, left: float | None) -> None:
    store = ManualStore(autojump=None)
    with store.connect(timeout=7) as client:
        assert client._twin._deadline(given) == (None if left is None else store.clock.now() + left)
        with pytest.raises(ConfigurationError, match=r"^timeout must"):
            client._twin._deadline("soon")


def test_how_a_call_waits_is_checked_before_it_does() -> None:
    async def asynchronous(*_: object) -> None: ...

    backoff = Backoff(tries=3)
    assert how_to_wait({}) == (None, None)
    assert how_to_wait({"backoff": backoff, "on_wait": print}) == (backoff, print)
    assert how_to_wait({"backoff": None, "on_wait": None}) == (None, None)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"backoff": 0}, "backoff must be a leasehold.Backoff, not 0"),
        ({"backoff": 0.5}, "backoff must be a leasehold.Backoff"),
        ({"on_wait": 0}, "on_wait must be a function"),
        ({"on_wait": asynchronous}, "on_wait must be a function that is not async"),
    ]
    for options, complaint in wrong:
        with pytest.raises(ConfigurationError, match=complaint):
            how_to_wait(options)  # type: ignore[arg-type]


def test_a_decorated_function_counts_under_its_template_unless_it_has_a_group() -> None:
    assert with_group({"ttl": 3}, "order:{id}") == {"ttl": 3, "group": "order:{id}"}
    assert with_group({"group": "shop"}, "order:{id}") == {"group": "shop"}
    assert with_group({"group": None}, "x" * 300) == {"group": "x" * 256}
