"""What a client does at its end, what its objects look like, and that none of them travels to another process."""

from __future__ import annotations

import asyncio
import math
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold import AcquireTimeout, ClientClosed, ConfigurationError, LossReason
from leasehold._face.client import AsyncClient
from leasehold._face.this_process import this_process
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.testing import ManualStore

if TYPE_CHECKING:
    from leasehold import Client

NOW = 1_000.0


def released(client: Client) -> list[float]:
    """Until when each release of this client will have been sent."""
    untils: list[float] = []
    backend: Any = client._twin._open().backend
    plain = backend.release

    async def noted(grant: Any, until: float = math.inf, /) -> Any:
        untils.append(round(until - NOW, 6))
        return await plain(grant, until)

    backend.release = noted
    return untils


@pytest.mark.parametrize("label", ["", "billing", None])
def test_a_client_goes_by_the_label_that_it_was_given_and_an_empty_one_is_a_label(label: str | None) -> None:
    store = ManualStore()
    with store.connect(label=label) as client, client.lock("x").hold():
        state = client.inspect("x")
        assert state is not None
        shown = state.holdings[0].holder.label
        assert shown == (this_process(None, None).label if label is None else label)


@pytest.mark.parametrize(("options", "until"), [({}, 5.0), ({"timeout": 3}, 3.0), ({"timeout": "200ms"}, 0.2)])
def test_closing_with_release_gives_back_within_the_time_that_it_was_given(
    options: dict[str, Any], until: float
) -> None:
    store = ManualStore(autojump=None)
    client, other = store.connect(), store.connect()
    untils = released(client)
    lease = client.lock("x").acquire()
    client.close(release=True, **options)
    assert untils == [until]
    assert lease.loss is not None
    assert lease.loss.reason is LossReason.GIVEN_BACK
    other.lock("x").acquire(0).release()
    store.close()


def test_closing_without_release_leaves_the_lock_to_its_ttl() -> None:
    store = ManualStore(autojump=None)
    client, other = store.connect(), store.connect()
    untils = released(client)
    lease = client.lock("x").acquire()
    with pytest.warns(ResourceWarning, match="while it held 'x'"):
        client.close(timeout=0)
    assert untils == []
    assert lease.loss is not None
    assert lease.loss.reason is LossReason.CLOSED
    with pytest.raises(AcquireTimeout):
        other.lock("x").acquire(0)
    store.close()


def test_a_client_is_closed_at_the_end_of_its_block_in_both_faces() -> None:
    store = ManualStore(autojump=None)
    with store.connect() as client:
        client.lock("x").acquire().release()
    with pytest.raises(ClientClosed):
        client.lock("x").try_acquire()
    client.close()  # may be called twice

    async def main() -> None:
        async with store.connect_async() as client:
            await (await client.lock("x").acquire()).release()
        with pytest.raises(ClientClosed):
            await client.lock("x").try_acquire()
        await client.close()

    asyncio.run(main())


def test_what_an_object_looks_like_in_both_faces() -> None:
    store = ManualStore(autojump=None)
    with store.connect(namespace="shop") as client, client.lock_all(["b", "a"]).hold() as leases:
        lock, lease = client.lock("x", ttl=90), leases.leases["a"]
        blocking: list[Any] = [
            client, lock, client.rwlock("x"), client.rwlock("x").read, client.semaphore("x", 2),
            client.lock_all(["b", "a"]), leases, lease,
        ]  # fmt: skip
        shown = [
            "<Client namespace='shop'>", "<Lock 'x' exclusive ttl=90>", "<RWLock 'x'>", "<Lock 'x' shared ttl=30>",
            "<Lock 'x' permit ttl=30>", "<LockSet 'a', 'b'>", "<LeaseSet 'a', 'b'>",
            f"<Lease 'a' fence={lease.fence} held>",
        ]  # fmt: skip
        assert [repr(each) for each in blocking] == shown
        assert [repr(each._twin) for each in blocking] == [text.replace("<", "<Async", 1) for text in shown]
        for each in blocking:
            for face in (each, each._twin):
                with pytest.raises(TypeError, match=r"process|other one"):
                    pickle.dumps(face)
    assert repr(lease).endswith(" released>")


def test_a_lock_is_no_block_and_nothing_to_release() -> None:
    with ManualStore(autojump=None).connect() as client:
        lock: Any = client.lock("x")
        for face in (lock, lock._twin):
            with pytest.raises(TypeError, match=r"write `with lock\.hold\(\) as lease:`"), face:
                pass
            with pytest.raises(TypeError, match="call release"):
                face.release()

    async def main() -> None:
        with pytest.raises(TypeError, match="or `async with`"):
            async with lock._twin:
                pass

    asyncio.run(main())


def test_a_lock_tells_how_it_was_made() -> None:
    with ManualStore(autojump=None).connect(ttl=20) as client:
        lock = client.lock("x", group="jobs")
        assert (lock.name, lock.ttl, lock.group) == ("x", 20.0, "jobs")
        assert client.lock("x").group is None
        assert client.lock_all(["c", "a", "b", "a"]).names == ("a", "b", "c")
        pair = client.rwlock("x")
        with pair.read.hold(), pair.read.hold():
            assert pair.write.try_acquire() is None
        with pair.write.hold():
            assert pair.read.try_acquire() is None


@pytest.mark.parametrize("connect", [leasehold.connect, leasehold.connect_async])
@pytest.mark.parametrize("timeout", [None, 0, 7])
def test_timeout_of_a_client_is_kept_as_it_was_said_and_nothing_is_not_none(connect: Any, timeout: int | None) -> None:
    client = connect("memory://", timeout=timeout)
    twin = getattr(client, "_twin", client)
    assert twin._timeout == timeout
    assert (twin._timeout is None) == (timeout is None)


@pytest.mark.parametrize("on_busy", [7, False, "x"])
@pytest.mark.parametrize("of", [lambda client: client.lock("x"), lambda client: client.lock_all(["x", "y"])])
def test_what_cannot_be_called_for_a_busy_lock_is_refused_before_it_is_asked_for(of: Any, on_busy: Any) -> None:
    store = ManualStore(autojump=None)
    with store.connect() as client:
        with pytest.raises(ConfigurationError, match="on_busy must be a function"):
            of(client).acquire(0, on_busy=on_busy)
        assert "join" not in store.faults.calls
        assert "try_acquire" not in store.faults.calls


def test_what_a_busy_lock_gives_instead_may_be_anything() -> None:
    def gives(given: Any) -> Any:
        return lambda _: given

    store = ManualStore(autojump=None)
    with store.connect() as client, store.connect() as other, other.lock("x").hold():
        for given in (None, 0, "later", AcquireTimeout("x")):
            assert client.lock("x").acquire(0, on_busy=gives(given)) is given
            assert client.lock_all(["w", "x"]).acquire(0, on_busy=gives(given)) is given
        assert client.inspect("w") is None, "what was taken before is given back"
        with pytest.raises(ZeroDivisionError):
            client.lock("x").acquire(0, on_busy=lambda _: 1 / 0)


def test_a_block_of_several_locks_waits_as_it_was_told() -> None:
    store = ManualStore()
    heard: list[Any] = []
    with store.connect() as client, store.connect() as other, other.lock("x", ttl=3600).hold():
        how: Any = {"backoff": leasehold.Backoff(("1ms",), tries=2), "on_wait": lambda *facts: heard.append(facts)}
        with (
            pytest.raises(AcquireTimeout, match="and 2 tries"),
            client.lock_all(["w", "x"]).hold(60, on_lost=print, **how),
        ):
            pass
    assert heard


def test_one_who_is_alone_gets_a_lease_of_his_own_face_from_every_call() -> None:
    with ManualStore(autojump=None).connect() as client:
        ways: list[Any] = [
            lambda: client.lock("x").acquire(),
            lambda: client.lock("x").acquire(1, on_busy=lambda _: None),
            lambda: client.lock("x").try_acquire(),
        ]
        for way in ways:
            lease = way()
            assert type(lease) is leasehold.Lease
            lease.release()
        several: list[Any] = [
            lambda: client.lock_all(["x", "y"]).acquire(),
            lambda: client.lock_all(["x", "y"]).acquire(1, on_busy=lambda _: None),
            lambda: client.lock_all(["x", "y"]).try_acquire(),
        ]
        for way in several:
            leases = way()
            assert type(leases) is leasehold.LeaseSet
            assert type(leases.leases["x"]) is leasehold.Lease
            leases.release()


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({}, [math.inf]),
        ({"timeout": 3}, [math.inf]),
        ({"release": True}, [5.0]),
        ({"release": True, "timeout": 3}, [3.0]),
    ],
)
def test_what_is_left_after_the_releases_has_to_end_within_the_same_time(
    options: dict[str, Any], limits: list[float]
) -> None:
    store = ManualStore(autojump=None)
    client = store.connect()
    opened = client._twin._open()
    closed: list[float] = []
    plain = opened.keeper.close

    async def close(limit: float = math.inf) -> None:
        closed.append(limit - NOW)
        await plain(limit)

    opened.keeper.close = close  # type: ignore[method-assign]
    client.close(**options)
    assert closed == limits
    store.close()


@pytest.mark.parametrize(
    ("options", "limit"), [({}, 5.0), ({"timeout": 3}, 3.0), ({"timeout": "200ms", "release": True}, 0.2)]
)
def test_a_client_of_several_loops_waits_for_the_others_no_longer_than_it_was_told(
    options: dict[str, Any], limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    async def close_at_home(opened: list[Any], close: Any, deadline: float) -> None:
        limits.append(round(deadline - NOW, 6))
        for each in opened:
            await close(each)

    monkeypatch.setattr("leasehold._face.client.close_at_home", close_at_home)
    store = ManualStore(autojump=None)
    store.connect().close(**options)
    assert limits == [limit]
    store.close()


@pytest.mark.parametrize(
    ("given", "seconds"), [({}, 10.0), ({"connect_timeout": 3}, 3.0), ({"connect_timeout": "1m"}, 60.0)]
)
def test_a_call_without_end_tries_a_silent_store_for_as_long_as_its_client_was_told(
    given: dict[str, Any], seconds: float
) -> None:
    client = AsyncClient(find_store("memory:"), ThreadRuntime(), **given)
    assert client._open().connect_timeout == seconds
    run(client.close())


def test_a_forked_child_forgets_what_its_parent_has_parked_and_who_waits_there() -> None:
    store = ManualStore(autojump=None)
    client = store.connect()
    opened = client._twin._open()
    client.lock("x", linger=0.5).acquire().release()
    local = opened.local
    assert local is not None
    local.queues["leasehold:y"] = object()  # type: ignore[assignment]  # a call of another thread of the parent's
    assert list(opened.parked) == ["leasehold:x"]
    opened.bury()
    assert (opened.parked, local.queues) == ({}, {})
    store.close()


def test_a_lease_that_is_used_on_another_loop_is_named_with_its_store() -> None:
    store = ManualStore(autojump=None)
    opened = store.connect()._twin._open()
    opened.home = object()
    with pytest.raises(ConfigurationError, match="belongs to the event loop that it was acquired on") as refused:
        opened.require_home("x")
    assert (refused.value.name, refused.value.backend) == ("x", opened.backend.label)
    opened.home = None
    opened.require_home("x")
    store.close()


def test_what_is_parked_goes_back_within_the_time_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []

    async def end_parked(_: object, until: float = math.inf) -> None:
        limits.append(until)

    monkeypatch.setattr("leasehold._core.linger.end_parked", end_parked)
    store = ManualStore(autojump=None)
    opened = store.connect()._twin._open()
    opened.parked["leasehold:x"] = object()  # type: ignore[assignment]
    run(opened.close(NOW + 3))
    assert limits == [NOW + 3]
    store.close()
