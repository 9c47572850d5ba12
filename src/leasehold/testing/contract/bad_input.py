"""What cannot be right is refused before any I/O."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigurationError
from leasehold.testing.contract.expect import raises
from leasehold.testing.contract.registry import core_case
from leasehold.testing.faults import Faults

if TYPE_CHECKING:
    from leasehold.testing.contract.lab import Lab

BAD_DURATIONS: tuple[Any, ...] = (
    -1,
    -0.001,
    math.nan,
    math.inf,
    -math.inf,
    True,
    "",
    "abc",
    "-5",
    "1x",
    10**18,
    10**400,
    [],
)
BAD_TTLS: tuple[Any, ...] = (*BAD_DURATIONS, 0, 0.0004, timedelta(0), "0s")
BAD_NAMES: tuple[Any, ...] = ("", "n" * 513, "ä" * 257, "\ud800", None, 7, b"bytes", True)


@core_case()
async def bad_durations_are_refused_before_any_io(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults)
    for ttl in BAD_TTLS:
        _refused(lambda ttl=ttl: client.lock("x", ttl=ttl), ttl)
        _refused(lambda ttl=ttl: client.lock("x", max_hold=ttl), ttl)
        _refused(lambda ttl=ttl: lab.client(ttl=ttl), ttl)
    for duration in BAD_DURATIONS:
        _refused(lambda duration=duration: client.lock("x", min_hold=duration), duration)
        await raises(ConfigurationError, client.lock("x").acquire(timeout=duration))
    assert faults.calls == []


@core_case()
async def bad_names_are_refused_before_any_io(lab: Lab) -> None:
    faults = Faults()
    client = lab.client(faults)
    for name in BAD_NAMES:
        _refused(lambda name=name: client.lock(name), name)
        _refused(lambda name=name: client.lock_all(["a", name]), name)
        await raises(ConfigurationError, client.inspect(name))
        if name is not None:
            _refused(lambda name=name: lab.client(namespace=name), name)
    _refused(lambda: client.lock_all([]), "no names")
    _refused(lambda: client.lock_all("text"), "one text")
    assert faults.calls == []


@core_case()
async def bad_facts_and_flags_are_refused_before_any_io(lab: Lab) -> None:
    client = lab.client()
    for fact in ("x" * 257, "\ud800", 7, b"bytes"):
        _refused(lambda fact=fact: client.lock("x", reason=fact), fact)
        _refused(lambda fact=fact: lab.client(label=fact), fact)
    for flag in (None, 1, "yes"):
        _refused(lambda flag=flag: client.lock("x", renew=flag), flag)
        _refused(lambda flag=flag: client.lock("x", reentrant=flag), flag)
    _refused(lambda: client.lock("x", min_hold=10, max_hold=5), "min_hold above max_hold")


@core_case()
async def misplaced_words_of_other_libraries_are_explained(lab: Lab) -> None:
    client: Any = lab.client()
    for word, hint in (("timeout", "ttl"), ("blocking_timeout", "timeout"), ("expire", "ttl"), ("nonsense", "help")):
        try:
            client.lock("x", **{word: 1})
        except TypeError as error:
            assert hint in str(error)
        else:
            raise AssertionError(f"{word} was accepted")
    for misuse in (client.lock("x").__enter__, client.lock("x").release):
        try:
            misuse()
        except TypeError as error:
            assert "lease" in str(error)
        else:
            raise AssertionError("a lock that carries no state cannot be entered or released")
    await raises(TypeError, client.lock("x").__aenter__())


def _refused(make: Any, value: object) -> None:
    try:
        make()
    except ConfigurationError as error:
        assert str(error)
    else:
        raise AssertionError(f"{value!r} was accepted")
