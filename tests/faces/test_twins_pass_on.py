"""The blocking face passes on each call as it is: every argument to its twin, and the twin's answer back."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import leasehold
from leasehold import ConfigurationError
from leasehold import _blocking as blocking
from leasehold._face.client import AsyncClient
from leasehold.testing import ManualStore
from tests.faces.test_parity import TWINS, members

# Their bodies do more than pass on; each has tests of its own.
MORE = {
    ("Client", "election"),
    ("Client", "locked"),
    ("Cache", "cached"),
    ("Cache", "get"),
    ("Cache", "refresh"),
    ("Election", "run"),
    ("Idempotency", "once_per"),
    ("LeaseSet", "leases"),
    ("Lock", "acquire"),
    ("LockSet", "acquire"),
    ("Once", "run"),
    ("Share", "owned"),
}
# Not a twin: it has a body of its own, on another connection.
OTHERS = {"TransactionAttempt"}


class Answer:
    """What the twin returns: nobody else has it."""


class Recorder:
    """In the place of a twin: notes its one call, and answers as the original would, at once or to an await."""

    def __init__(self, original: type) -> None:
        self._original = original
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answer = Answer()

    def __getattr__(self, name: str) -> Any:
        member = inspect.getattr_static(self._original, name)
        if isinstance(member, property):
            self.calls.append((name, {}))
            return self.answer

        def call(*args: Any, **kwargs: Any) -> Any:
            given = inspect.signature(member).bind(None, *args, **kwargs).arguments
            self.calls.append((name, dict(list(given.items())[1:])))
            return self._later() if inspect.iscoroutinefunction(member) else self.answer

        return call

    async def _later(self) -> Answer:
        return self.answer


def passed_on() -> list[tuple[type, type, str]]:
    return [
        (original, twin, name)
        for original, twin in TWINS
        if twin.__name__ not in OTHERS
        for name in members(twin)
        if name in members(original) and (twin.__name__, name) not in MORE
    ]


def arguments(function: Any) -> tuple[list[Any], dict[str, Any]]:
    """A value for each parameter that is found nowhere else."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        match parameter.kind:
            case parameter.VAR_KEYWORD:
                named["ttl" if function.__name__ != "hold" else "backoff"] = Answer()
            case parameter.KEYWORD_ONLY:
                named[parameter.name] = Answer()
            case parameter.VAR_POSITIONAL:
                positional += [Answer(), Answer()]
            case _:
                positional.append(Answer())
    return positional, named


@pytest.mark.parametrize(("original", "twin", "name"), passed_on(), ids=lambda value: getattr(value, "__name__", value))
def test_a_call_reaches_the_twin_with_every_argument_and_its_answer_comes_back(
    original: type, twin: type, name: str
) -> None:
    recorder = Recorder(original)
    shell: Any = object.__new__(twin)
    shell._twin = recorder
    member = inspect.getattr_static(twin, name)
    if isinstance(member, property):
        result, expected, has_answer = getattr(shell, name), {}, True
    else:
        positional, named = arguments(member)
        result = getattr(shell, name)(*positional, **named)
        bound = inspect.signature(inspect.getattr_static(original, name)).bind(None, *positional, **named)
        expected = dict(list(bound.arguments.items())[1:])
        has_answer = inspect.signature(member).return_annotation not in ("None", "NoReturn")
    assert (name, expected) in recorder.calls
    if has_answer:
        assert result is recorder.answer or getattr(result, "_twin", None) is recorder.answer


def test_a_hold_without_a_word_on_waiting_takes_the_short_way_with_the_same_arguments() -> None:
    for original, twin in TWINS:
        if twin in (blocking.Lock, blocking.LockSet):
            recorder = Recorder(original)
            shell: Any = object.__new__(twin)
            shell._twin = recorder
            timeout, on_lost = Answer(), Answer()
            shell.hold(timeout, on_lost=on_lost)
            assert recorder.calls == [("hold", {"timeout": timeout, "on_lost": on_lost})]


@pytest.mark.parametrize("kind", [blocking.Lease, blocking.LeaseSet, blocking.Hold], ids=lambda kind: kind.__name__)
def test_a_block_is_left_with_its_error(kind: type) -> None:
    (original,) = [one for one, twin in TWINS if twin is kind]
    recorder = Recorder(original)
    shell: Any = object.__new__(kind)
    shell._twin, shell._wrap = recorder, lambda lease: lease
    entered = shell.__enter__()
    assert entered in (shell, recorder.answer)
    error = ValueError()
    shell.__exit__(ValueError, error, None)
    (_, first), (_, last) = recorder.calls
    assert first == {}
    assert last == {"kind": ValueError, "error": error, "trace": None}


OPTIONS: dict[str, Any] = {
    "namespace": "shop",
    "ttl": 7.0,
    "timeout": 3.0,
    "label": "web",
    "slow_wait": 9.0,
    "slow_wait_level": "INFO",
}


@pytest.mark.parametrize("connect", [leasehold.connect, leasehold.connect_async], ids=lambda one: one.__name__)
def test_every_option_of_connect_reaches_the_client(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []
    plain = AsyncClient.__init__

    def spied(self: AsyncClient, *args: Any, **options: Any) -> None:
        given.append(options)
        plain(self, *args, **options)

    monkeypatch.setattr(AsyncClient, "__init__", spied)
    connect("memory://", **OPTIONS)
    assert given == [OPTIONS]


async def a_coroutine_function() -> None: ...


async def an_async_generator() -> Any:
    yield


@pytest.mark.parametrize("function", [a_coroutine_function, an_async_generator], ids=lambda one: one.__name__)
@pytest.mark.parametrize(
    "decorate",
    [
        lambda client, function: client.locked("x")(function),
        lambda client, function: client.once("x", every="1d")(function),
        lambda client, function: client.idempotency("x").once_per("{key}")(function),
        lambda client, function: client.cache("x", ttl="1m").cached("{key}")(function),
        lambda client, function: client.election("x").run(function),
    ],
    ids=["locked", "once", "once_per", "cached", "election"],
)
def test_a_blocking_client_decorates_no_async_function(decorate: Any, function: Any) -> None:
    """It would hold the lock while a coroutine is made, and not while it runs."""
    with ManualStore().connect() as client, pytest.raises(ConfigurationError, match="async"):
        decorate(client, function)
