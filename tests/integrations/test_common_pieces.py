"""What all frameworks share: the answers to errors, the names of options, and decorators that come before a client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import errors
from leasehold.integrations._deferred import locked_by
from leasehold.integrations._options import WEB_TIMEOUT, ClientOptions, read_options
from leasehold.integrations._refusals import ANSWERED, answer_to
from leasehold.testing.manual import ManualStore

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "cart:7 of host-9"


@pytest.mark.parametrize(
    ("error", "status", "title", "after"),
    [
        (errors.Paused(SECRET), 423, "Paused", "30"),
        (errors.Paused(SECRET, retry_after=61.2), 423, "Paused", "62"),
        (errors.AcquireTimeout(SECRET), 409, "Busy", "1"),
        (errors.AcquireTimeout(SECRET, retry_after=2.0), 409, "Busy", "2"),
        (errors.LeaseLost(SECRET), 503, "Lock lost", None),
        (errors.StaleFence(SECRET), 412, "Too late", None),
        (errors.InFlight(SECRET, retry_after=3), 409, "Request in flight", "3"),
        (errors.KeyReused(SECRET), 422, "Idempotency key reused", None),
        (errors.RowBusy(SECRET), 409, "Busy", "1"),
        (errors.RetryTransaction(SECRET), 503, "Try again", "1"),
        (errors.VersionConflict(SECRET), 409, "Conflict", None),
        (errors.AlreadyRun(SECRET), 409, "Conflict", None),
        (errors.BackendUnavailable(SECRET), 503, "Locks not available", "1"),
        (errors.ClientClosed(SECRET), 503, "Shutting down", "1"),
        (errors.OutcomeUnknown(SECRET), 503, "Outcome unknown", None),
        (errors.PreconditionFailed(SECRET, etag='"5"'), 412, "Precondition", None),
        (errors.PreconditionRequired(SECRET), 428, "Precondition", None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_what_a_caller_is_answered_and_what_it_is_not_told(
    error: Exception, status: int, title: str, after: str | None
) -> None:
    answer = answer_to(error)
    assert answer is not None
    headers = {name.decode(): value.decode() for name, value in answer.headers}
    facts = json.loads(answer.body)
    assert (answer.status, facts["status"], facts["title"]) == (status, status, title)
    assert headers["content-type"] == "application/problem+json"
    assert headers["content-length"] == str(len(answer.body))
    assert headers.get("retry-after") == after
    assert headers.get("etag") == getattr(error, "etag", None)
    assert SECRET not in answer.body.decode()
    assert isinstance(error, ANSWERED)


@pytest.mark.parametrize(
    "error",
    [
        errors.FenceAhead("the store has lost its state"),
        errors.BackendRejected("no rights"),
        errors.ConfigurationError("a mistake"),
        ValueError("of the program"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_mistake_is_no_answer_to_a_caller(error: Exception) -> None:
    assert answer_to(error) is None


def test_options_have_the_names_of_connect_in_capitals() -> None:
    found = {"URL": "redis://db", "NAMESPACE": "shop", "TTL": "1m", "TIMEOUT": 2, "LABEL": "web", "SLOW_WAIT": 3}
    url, options = read_options(found, "here")
    assert url == "redis://db"
    assert options == {"namespace": "shop", "ttl": "1m", "timeout": 2, "label": "web", "slow_wait": 3}
    assert read_options({}, "here") == (None, {})
    nothing = {"TIMEOUT": None, "SLOW_WAIT": None, "LABEL": None}  # said, and not left out: they are no defaults
    assert read_options({"URL": None, **nothing}, "here") == (None, {name.lower(): None for name in nothing})
    assert WEB_TIMEOUT == 5.0
    known = {"namespace", "ttl", "timeout", "label", "slow_wait", "slow_wait_level"}
    assert set(ClientOptions.__optional_keys__) == known
    with pytest.raises(errors.ConfigurationError, match=r"here has 'TLL'.*it takes LABEL, NAMESPACE, .*TTL, URL"):
        read_options({"URL": "x", "TLL": 1, "ZZZ": 2}, "here")


def noting(made: list[Any], locked: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*args: Any, **options: Any) -> Any:
        made.append(args)
        return locked(*args, **options)

    return noted


def test_a_function_is_decorated_once_for_each_client_and_with_its_options() -> None:
    store = ManualStore()
    clients = [store.connect(namespace="one"), store.connect(namespace="two")]
    found = [clients[0]]
    seen: list[Any] = []
    made: list[Any] = []
    for client in clients:
        patched: Any = client
        patched.locked = noting(made, client.locked)

    @locked_by(lambda: found[0], "cart:{cart}", timeout=0, ttl=7, on_busy=lambda busy: "busy")
    def pay(cart: int, lease: leasehold.Lease = leasehold.CURRENT) -> str:
        """Take the money."""
        seen.append((lease.name, lease.ttl))
        return "paid"

    assert (pay.__name__, pay.__doc__) == ("pay", "Take the money.")
    with clients[0].lock("cart:7").hold():
        assert pay(7) == "busy"
        found[0] = clients[1]
        assert pay(cart=7) == "paid"
        assert pay(8) == "paid"
    assert seen == [("cart:7", 7), ("cart:8", 7)]
    assert len(made) == 2
    with pytest.raises(errors.ConfigurationError, match="cart"):
        locked_by(store.connect, "cart:{cart}")(lambda basket: None)
    store.close()
