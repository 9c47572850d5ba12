"""A client that cannot listen for a while asks instead, and listens again later."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import leasehold
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.values import Claim, Holder, Mode
from tests.stores.support import eventually

if TYPE_CHECKING:
    import pytest

    from verification.lab.postgres import PostgresServer


def test_listener_that_was_ended_is_replaced_while_somebody_still_waits(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under constant contention somebody always waits; it asked again and again for ever after."""
    monkeypatch.setattr("leasehold._backends.postgres.notifications.LISTEN_AGAIN", 1.0)
    name = database.rpartition("/")[2]
    listening = f"FROM pg_stat_activity WHERE datname = '{name}' AND query LIKE 'LISTEN%'"
    with leasehold.connect(database, ttl=20) as holder, leasehold.connect(database, ttl=20) as client:
        lease = holder.lock("job").acquire()
        thread = threading.Thread(target=lambda: client.lock("job").acquire(timeout=60).release())
        thread.start()
        eventually(lambda: len(postgres.run(f"SELECT pid {listening}")) == 1, "nobody listens")
        ((pid,),) = postgres.run(f"SELECT pid {listening}")
        postgres.run(f"SELECT pg_terminate_backend({pid})")
        eventually(
            lambda: [found for (found,) in postgres.run(f"SELECT pid {listening}") if found != pid],
            "nobody listens again",
            20,
        )
        with suppress(leasehold.OutcomeUnknown):  # on a busy machine it goes on in the background
            lease.release()
        thread.join()


def test_waiter_that_joins_while_the_listener_gets_ready_says_where_it_is_called(database: str) -> None:
    """All who wait are woken when there is a bell. One whose request was under way then does not wait yet."""
    runtime = ThreadRuntime()
    backend: Any = find_store(database).open_backend(runtime)
    listener, execute = backend._listener, backend._execute

    def claim(name: str = "x") -> Claim:
        return Claim(f"ns:{name}", runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))

    held = run(backend.join(claim()))
    other = listener.expect(claim("y"))

    async def slowly(*question: Any) -> Any:
        answer = await execute(*question)
        listener.ensure()
        eventually(other.signal.is_set, "nobody listens")
        return answer

    backend._execute = slowly
    place = run(backend.join(claim()))
    backend._execute = execute
    assert place.signal.is_set(), "the store does not know where to call this one, and nobody told it to say so"
    place.signal.clear()
    place = run(backend.turn(place))
    run(backend.release(held))
    eventually(place.signal.is_set, "the release is not signalled")
    run(backend.close())


def test_listening_is_tried_again_after_a_while_and_not_more_often(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leasehold._backends.postgres.notifications.LISTEN_AGAIN", 0.3)
    monkeypatch.setattr("leasehold._backends.postgres.notifications.PROVE_AGAIN", 0.9)
    monkeypatch.setattr("leasehold._backends.postgres.notifications.PROOF", 0.0)  # so that no message comes in time
    runtime = ThreadRuntime()
    backend: Any = find_store(database).open_backend(runtime)
    listener, tries = backend._listener, []
    connect = listener._connect

    async def fail_twice() -> Any:
        tries.append(runtime.now())
        if len(tries) <= 2:
            raise leasehold.BackendUnavailable("no connection is free")
        return await connect()

    listener._connect = fail_twice
    claim = Claim("ns:x", runtime.owner(), 60.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
    waiter = listener.expect(claim)
    listener.ensure()
    eventually(lambda: len(tries) >= 4, "a listener that failed, or heard nothing, is not tried again", 20)
    first, second, third, fourth = tries[:4]
    assert min(second - first, third - second) >= 0.3
    assert fourth - third >= 0.9
    monkeypatch.setattr("leasehold._backends.postgres.notifications.PROOF", 20.0)
    eventually(lambda: listener.channel is not None, "a late message is not heard later either", 20)
    del waiter
    run(backend.close())
