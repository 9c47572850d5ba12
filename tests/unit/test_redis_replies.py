"""What a reply of the Redis scripts shows of a name, and what the error of a connection means for a lock."""

from __future__ import annotations

import ssl

import pytest
import redis

from leasehold._backends.redis.errors import could_not_connect
from leasehold._backends.redis.inspect import read_state
from leasehold.errors import BackendRejected, BackendUnavailable
from leasehold.kit.holder import holder_to_json
from leasehold.kit.pauses import pause_to_json
from leasehold.values import Holder, Mode


def test_name_that_has_only_waiters_is_used_as_the_first_of_them_wants() -> None:
    ana = holder_to_json(Holder("db-3", 7)).encode()
    for letter, mode in ((b"s", Mode.SHARED), (b"p", Mode.PERMIT), (b"x", Mode.EXCLUSIVE)):
        state = read_state("ns:x", [b"3", [], [letter, ana, b"x", b"not ours"]])
        assert state is not None
        assert (state.mode, state.capacity, state.holdings) == (mode, 3, ())
        assert [holder.host for holder in state.waiting] == ["db-3", "another program"]


def test_pause_is_shown_with_the_time_it_has_left_and_has_lasted() -> None:
    by = pause_to_json(Holder("db-3", 7, "ana", "moving")).encode()
    state = read_state("ns:x", [b"0", [b"", b"", b"0", b"2500000", b"9000", b"", b"0", by], []])
    assert state is not None
    assert state.paused is not None
    assert (state.paused.expires_in, state.paused.paused_for) == (9.0, 2.5)


def _behind(cause: Exception, *, is_context: bool) -> Exception:
    error = redis.exceptions.ConnectionError("cannot connect")
    if is_context:
        error.__context__ = cause
    else:
        error.__cause__ = cause
    return error


@pytest.mark.parametrize("is_context", [False, True])
@pytest.mark.parametrize(
    ("cause", "kind", "words"),
    [
        (ssl.SSLError("bad certificate"), BackendRejected, "TLS failed"),
        (ssl.SSLEOFError("it hung up"), BackendUnavailable, "cannot be reached"),
        (redis.exceptions.ResponseError("NOPROTO sorry"), BackendRejected, "refused the connection"),
        (redis.exceptions.AuthenticationError("Authentication required."), BackendRejected, "it wants a user name"),
        (OSError("no route"), BackendUnavailable, "cannot be reached"),
    ],
)
def test_connection_that_failed_is_judged_by_the_first_cause(
    cause: Exception, kind: type[Exception], words: str, is_context: bool
) -> None:
    error = could_not_connect(_behind(cause, is_context=is_context), "redis://x")
    assert type(error) is kind
    assert words in str(error)


@pytest.mark.parametrize(
    ("reply", "kind"), [("LOADING wait", BackendUnavailable), ("ERR DB index is out of range", BackendRejected)]
)
def test_greeting_that_is_refused_for_now_is_not_refused_for_good(reply: str, kind: type[Exception]) -> None:
    assert type(could_not_connect(redis.exceptions.ResponseError(reply), "redis://x")) is kind
