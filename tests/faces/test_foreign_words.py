"""Words of other libraries, and other wrong calls: every message says what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("call", "cure"),
    [
        (lambda client: client.lock("x", timeout=3), "is called ttl here"),
        (lambda client: client.semaphore("x", 3, timeout=3), "is called ttl here"),
        (lambda client: client.rwlock("x", expire=3), "is called ttl here"),
        (lambda client: client.lock_all(["x"], ttll=3), "did you mean 'ttl'?"),
        (lambda client: client.lock("x", colour=3), "see help(client.lock)"),
        (lambda client: client.lock("x").acquire(blocking=False), "use try_acquire()"),
        (lambda client: client.lock("x").hold(blocking_timeout=3), "is called timeout here"),
        (lambda client: client.once("x", evry="1d"), "did you mean 'every'?"),
        (lambda client: client.once("x", interval="1d"), "called every here"),
        (lambda client: client.election("x", tll=3), "did you mean 'ttl'?"),
        (lambda client: client.cache("x", expire=3), "called ttl or keep here"),
        (lambda client: client.idempotency("x", kep=3), "did you mean 'keep'?"),
        (lambda client: client.partitions("x", 4, colour=3), "see help(client.partitions)"),
    ],
)
def test_an_option_of_another_library_is_explained(
    client: leasehold.Client, call: Callable[[Any], object], cure: str
) -> None:
    with pytest.raises(TypeError) as refused:
        call(client)
    assert cure in str(refused.value)


@pytest.mark.parametrize(
    ("word", "cure"), [("locked", "lease.remaining() > 0"), ("extend", "lease.renew()"), ("unlock", "release()")]
)
def test_an_attribute_of_other_locks_is_explained_and_not_there(client: leasehold.Client, word: str, cure: str) -> None:
    lock = client.lock("x")
    assert not hasattr(lock, word)
    with pytest.raises(AttributeError) as refused:
        getattr(lock, word)
    assert cure in str(refused.value)


@pytest.mark.parametrize(
    ("word", "cure"),
    [("lock", "client.lock(name)"), ("Redlock", "redlock://"), ("conect", "did you mean 'connect'?"), ("zzz", "")],
)
def test_a_name_that_the_package_does_not_have_is_explained(word: str, cure: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{word}'") as refused:
        getattr(leasehold, word)
    assert cure in str(refused.value)


def test_a_client_and_a_lock_are_made_by_methods() -> None:
    made: Any = leasehold
    with pytest.raises(TypeError, match=r"leasehold\.connect\(url\)"):
        made.Client("redis://localhost")
    with pytest.raises(TypeError, match=r"leasehold\.connect\(url\)\.lock\('x'\)"):
        made.Lock("x")


def test_a_decorator_without_its_parentheses_is_refused_where_it_stands(client: Any) -> None:
    def work() -> None:
        """Never runs."""

    with pytest.raises(ConfigurationError, match=r"write @client\.locked\("):
        client.locked(work)
    with pytest.raises(ConfigurationError, match=r"write @client\.once\("):
        client.once(work)


def test_a_callback_that_is_no_function_is_refused_before_the_loss(client: Any) -> None:
    with pytest.raises(ConfigurationError, match="on_lost must be a function"):
        client.lock("x").hold(on_lost="x")


def test_a_name_is_made_from_none_only_where_that_is_the_default(client: leasehold.Client) -> None:
    @client.locked("order:{order}:{part}")
    def ship(order: int | None, part: str | None = None) -> tuple[str, ...]:
        return tuple(held.name for held in client.held())

    assert ship(7) == ("order:7:None",)
    with pytest.raises(ConfigurationError, match="order is None in this call"):
        ship(None)
