"""A busy queue on PostgreSQL: a release hands over in few statements, and where that does not fit, the rules decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from leasehold._backends.postgres.statements import array
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold._urls import find_store
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, Mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.lab.postgres import PostgresServer

KEY = "leasehold:job"


def claim(mode: Mode = Mode.EXCLUSIVE, min_hold: float = 0.0) -> Claim:
    return Claim(KEY, ThreadRuntime().owner(), 60.0, mode, 1, min_hold, Holder("host", 1))


@pytest.fixture
def backend(database: str) -> Iterator[Any]:
    opened = find_store(database).open_backend(ThreadRuntime())
    yield opened
    run(opened.close())


def test_release_hands_over_in_order_with_rising_fences(backend: Any) -> None:
    async def story() -> None:
        held = await backend.try_acquire(claim())
        places = [await backend.join(claim()) for _ in range(3)]
        for number, place in enumerate(places):
            assert await backend.release(held) is True
            assert not [place for place in places[number + 1 :] if isinstance(await backend.turn(place), Grant)]
            granted = await backend.turn(place)
            assert isinstance(granted, Grant)
            assert granted.fence > held.fence
            held = granted
        assert await backend.release(held) is True
        assert await backend.inspect(KEY) is None

    run(story())


def test_release_that_is_sent_twice_frees_nothing_of_the_next_holder(backend: Any) -> None:
    async def story() -> None:
        held = await backend.try_acquire(claim())
        places = [await backend.join(claim()) for _ in range(2)]
        assert await backend.release(held) is True
        assert await backend.release(held) is False
        assert isinstance(await backend.turn(places[0]), Grant)
        assert isinstance(await backend.turn(places[1]), Place)

    run(story())


def test_release_of_another_grant_of_the_same_claim_hands_nothing_over(backend: Any) -> None:
    async def story() -> None:
        held = await backend.try_acquire(claim())
        place = await backend.join(claim())
        assert await backend.release(Grant(held.claim, held.fence - 1, held.ttl)) is False
        assert isinstance(await backend.turn(place), Place)

    run(story())


def test_release_at_a_paused_name_hands_nothing_over(backend: Any) -> None:
    async def story() -> None:
        held = await backend.try_acquire(claim())
        place = await backend.join(claim())
        await backend.pause(KEY, Holder("operator", 1), 60.0)
        assert await backend.release(held) is True
        waiting = await backend.turn(place)
        assert isinstance(waiting, Place)
        assert waiting.paused is not None
        assert await backend.resume(KEY) is True
        assert isinstance(await backend.turn(waiting), Grant)

    run(story())


def test_release_with_readers_in_line_lets_all_of_them_in(backend: Any) -> None:
    async def story() -> None:
        held = await backend.try_acquire(claim())
        places = [await backend.join(claim(Mode.SHARED)) for _ in range(2)]
        assert await backend.release(held) is True
        assert [type(await backend.turn(place)) for place in places] == [Grant, Grant]

    run(story())


def test_reader_that_leaves_hands_nothing_over_while_another_one_reads(backend: Any) -> None:
    async def story() -> None:
        readers = [await backend.try_acquire(claim(Mode.SHARED)) for _ in range(2)]
        place = await backend.join(claim())
        assert await backend.release(readers[0]) is True
        assert isinstance(await backend.turn(place), Place)
        assert await backend.release(readers[1]) is True
        assert isinstance(await backend.turn(place), Grant)

    run(story())


def test_min_hold_is_kept_while_others_wait(backend: Any) -> None:
    async def story() -> None:
        held = await backend.try_acquire(claim(min_hold=60.0))
        place = await backend.join(claim())
        assert await backend.release(held) is True
        assert isinstance(await backend.turn(place), Place)

    run(story())


def test_a_place_is_committed_without_a_wait_for_the_disk_and_a_grant_is_not(
    postgres: PostgresServer, database: str
) -> None:
    name = database.rpartition("/")[2].partition("?")[0]
    backend: Any = find_store(database).open_backend(ThreadRuntime())

    async def stand() -> tuple[Any, list[Any]]:
        return await backend.try_acquire(claim()), [await backend.join(claim()) for _ in range(2)]

    held, _ = run(stand())
    acquire = "SELECT verdict FROM leasehold.acquire_5(%s, %s, 60, 'exclusive', 1, 0, '{}', 0, true, NULL, false, 0)"
    release = "SELECT leasehold.release_5(%s, %s, %s)"
    with postgres.connect(name) as connection:

        def level_after(expected: str, *statements: tuple[str, tuple[object, ...]]) -> str:
            with connection.transaction(force_rollback=True):
                for text, values in statements:
                    cursor = connection.execute(text.encode(), values)
                assert cursor.fetchone() == (expected,)
                return str((connection.execute("SHOW synchronous_commit").fetchone() or ("",))[0])

        joins = acquire, (KEY.encode(), claim().owner)
        assert level_after("placed", joins) == "off"
        assert level_after("freed", (release, (KEY.encode(), held.claim.owner, held.fence))) == "on"
        over = ("UPDATE leasehold.claim SET expires = '-infinity' WHERE state = 1", ())
        look = ("UPDATE leasehold.lock SET look = '-infinity'", ())
        assert level_after("placed", over, look, joins) == "on", "the name went to the first waiter in this transaction"
    run(backend.close())


@pytest.mark.parametrize("together", [False, True])
def test_a_waiter_that_a_release_has_missed_has_the_lock_at_its_next_look(
    backend: Any, database: str, together: bool
) -> None:
    async def story() -> None:
        held = await backend.try_acquire(claim())
        place = await backend.join(claim())
        with psycopg.connect(database, autocommit=True) as table:  # as a release that saw only the past would leave it
            table.execute("DELETE FROM leasehold.claim WHERE owner = %s", (held.claim.owner,))
        if together:
            keys, owners = array((KEY.encode(),), binary=True), array((place.claim.owner.encode(),))
            reply = await backend._execute(backend._sql.turns, (keys, owners, None))
            assert reply.get_value(0, 1) == b"granted"
        granted = await backend.turn(place)
        assert isinstance(granted, Grant)
        assert granted.fence > held.fence

    run(story())


def test_release_that_sees_only_the_past_is_refused_after_another_claim_has_joined(backend: Any, database: str) -> None:
    """Behind a pooler whose server has the isolation `repeatable read`; the release is repeated then."""

    async def story() -> None:
        held = await backend.try_acquire(claim())
        await backend.join(claim())  # all of it is in the table of claims now
        waiter = claim()
        behind_a_pooler = "-c default_transaction_isolation=repeatable\\ read"
        with (
            psycopg.connect(database, options=behind_a_pooler) as releasing,
            psycopg.connect(database, options=behind_a_pooler) as joining,
        ):
            releasing.execute("SELECT 1")  # from here on it sees the past
            joining.execute(
                "SELECT leasehold.acquire_5(%s, %s, 60, 'exclusive', 1, 0, '{}', 0, true, NULL, false, 0)",
                (KEY.encode(), waiter.owner),
            )
            joining.commit()
            release = "SELECT leasehold.release_5(%s, %s, %s)"
            with pytest.raises(psycopg.errors.SerializationFailure):
                releasing.execute(release, (KEY.encode(), held.claim.owner, held.fence))

    run(story())
