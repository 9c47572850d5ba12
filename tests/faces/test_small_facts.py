"""Small facts that a client finds out: of its store, of this process, and of functions that it is given."""

from __future__ import annotations

import os
import pwd
import sys
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import AcquireTimeout, BackendRejected
from leasehold._face import this_process
from leasehold._face.lock_spec import takes_the_call
from tests.unit.test_core_time import Script, fails

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leasehold import Client


def test_whether_a_store_is_private_and_whether_it_exists(tmp_path: Path) -> None:
    with leasehold.connect("memory://") as client:
        assert (client.is_private, client.exists()) == (True, True)
    with leasehold.connect(f"sqlite:///{tmp_path}/locks.db") as client:
        assert (client.is_private, client.exists()) == (False, False)
        client.lock("x").acquire().release()
        assert client.exists()
    client = leasehold.connect("redis://127.0.0.1:1")  # a server, which is not asked
    assert (client.is_private, client.exists()) == (False, True)
    client.close()


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/usr/bin/worker", "worker"),
        ("/srv/app/__main__.py", "app"),
        ("worker.py", "worker.py"),
        ("", None),
        ("-", None),
        ("-c", None),
        ("-m", None),
        ("/srv/line\nbreak", None),
        ("/srv/" + "x" * 300, "x" * 256),
    ],
)
def test_what_a_process_is_called(program: str, name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [program, "--secret"])
    assert this_process._program_name.__wrapped__() == name


def test_who_a_process_runs_as(monkeypatch: pytest.MonkeyPatch) -> None:
    find = this_process._user_name.__wrapped__
    assert find() == pwd.getpwuid(os.getuid()).pw_name

    def nobody(_: int) -> Any:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert find() == f"uid {os.getuid()}"


@pytest.mark.parametrize(
    ("function", "takes_it"),
    [
        (lambda: None, False),
        (lambda error: None, False),
        (lambda error, call: None, True),
        (lambda error, call=None: None, False),
        (lambda error, *, call: None, False),
        (lambda error, *calls: None, False),
        (max, False),
    ],
)
def test_who_wants_the_call_itself_has_two_parameters_for_it(function: Callable[..., Any], takes_it: bool) -> None:
    assert takes_the_call(function) is takes_it


@pytest.mark.parametrize("failing", ["a", "b", "c"])
@pytest.mark.parametrize("call", [lambda locks: locks.try_acquire(), lambda locks: locks.acquire(0)])
def test_when_one_of_several_locks_fails_its_error_is_raised_and_the_others_are_given_back(
    client: Client, call: Callable[[Any], Any], failing: str
) -> None:
    Script(
        client,
        "try_acquire",
        lambda claim, until, plain: fails(BackendRejected("no rights")) if claim.key.endswith(failing) else plain(),
    )
    with pytest.raises(BackendRejected) as raised:
        call(client.lock_all(["c", "a", "b"]))
    assert raised.value.name == failing
    assert client.locks() == []


@pytest.mark.parametrize("busy", ["a", "b", "c"])
def test_when_one_of_several_locks_is_busy_the_others_are_given_back(client: Client, other: Client, busy: str) -> None:
    with other.lock(busy).hold():
        assert client.lock_all(["c", "a", "b"]).try_acquire() is None
        assert [state.name for state in client.locks()] == [busy]
        with pytest.raises(AcquireTimeout) as late:
            client.lock_all(["c", "a", "b"]).acquire(0)
        assert late.value.name == busy
        assert [state.name for state in client.locks()] == [busy]
        assert client.held() == ()
