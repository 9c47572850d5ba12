"""The guard means the same over every kind of connection and both databases: who passes and who is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold.errors import ConfigurationError, StaleFence
from leasehold.sql import guard
from tests.sql.desks import EVERY_DESK, prepared_desk
from tests.waiting import two_in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.sql.desks import Desk

HOSTILE = [
    "a'b",
    'a"b',
    "a;DROP TABLE account",
    "a\\",
    "a\\'b",
    "%s %(fence)s :fence ? $1",
    "a\nb",
    "é\u2028😀",
    "--",
    "{}",
]


@pytest.fixture(params=EVERY_DESK)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    with prepared_desk(
        request,
        tmp_path,
        "CREATE TABLE account (n INTEGER)",
        "INSERT INTO account VALUES (0)",
    ) as desk:
        yield desk


def as_text(value: str | bytes) -> str:
    """MySQL keeps names as bytes, which no collation takes for each other."""
    return value.decode() if isinstance(value, bytes) else value


def total(desk: Desk) -> int:
    with desk.begin() as tx:
        ((n,),) = desk.run(tx, "SELECT n FROM account")
    return int(n)


def add_one(desk: Desk, lease: leasehold.Lease | int, resource: str | None = None) -> None:
    """The way a program is meant to do it: guard, read, write."""
    with desk.begin() as tx:
        guard(tx, lease, resource=resource)
        ((n,),) = desk.run(tx, "SELECT n FROM account")
        desk.run(tx, f"UPDATE account SET n = {n + 1}")


def test_late_writer_is_refused_and_its_write_is_not_there(desk: Desk, client: leasehold.Client) -> None:
    stale, current = two_in_turn(client.lock("account"))
    add_one(desk, current)
    with pytest.raises(StaleFence) as caught:
        add_one(desk, stale)
    assert (caught.value.fence, caught.value.highest, caught.value.name) == (stale.fence, current.fence, "account")
    add_one(desk, current)
    assert total(desk) == 2


def test_equal_fence_of_another_grant_is_refused(desk: Desk, client: leasehold.Client) -> None:
    mine = client.lock("account").acquire()
    add_one(desk, mine)
    with leasehold.connect("memory://") as elsewhere:  # a store that counts from one as well
        other = elsewhere.lock("account").acquire()
        assert other.fence == mine.fence
        with pytest.raises(StaleFence):
            add_one(desk, other)
        other.release()
    mine.release()


def test_fence_is_not_remembered_when_the_transaction_is_rolled_back(desk: Desk, client: leasehold.Client) -> None:
    first, second = two_in_turn(client.lock("account"))
    add_one(desk, first)
    with pytest.raises(KeyError), desk.begin() as tx:
        guard(tx, second)
        raise KeyError
    add_one(desk, first)  # nothing of the second holder was ever written
    assert total(desk) == 2


def test_readers_pass_together_and_a_writer_older_than_a_reader_is_refused(
    desk: Desk, client: leasehold.Client
) -> None:
    lock = client.rwlock("account")
    old_writer = lock.write.acquire()
    add_one(desk, old_writer)
    old_writer.release()
    readers = [lock.read.acquire() for _ in range(2)]
    for reader in (*reversed(readers), readers[1]):
        with desk.begin() as tx:
            guard(tx, reader)
            assert desk.run(tx, "SELECT n FROM account") == [(1,)]
    with pytest.raises(StaleFence) as caught:
        add_one(desk, old_writer)
    assert caught.value.highest == readers[1].fence
    for reader in readers:
        reader.release()
    with lock.write.hold() as writer:
        add_one(desk, writer)
    with lock.read.hold() as newest, desk.begin() as tx:
        guard(tx, newest)
    with pytest.raises(StaleFence) as caught, desk.begin() as tx:
        guard(tx, readers[0])
    assert caught.value.highest == writer.fence, "readers are not late because of each other"
    assert total(desk) == 2


def test_lease_of_a_semaphore_is_refused(desk: Desk, client: leasehold.Client) -> None:
    with client.semaphore("account", 2).hold() as lease, pytest.raises(ConfigurationError, match="semaphore"):
        add_one(desk, lease)


def test_resource_belongs_to_one_lock_of_one_namespace(desk: Desk, client: leasehold.Client) -> None:
    with (
        leasehold.connect("memory://", namespace="other") as stranger,
        client.lock("a").hold() as mine,
        client.lock("b").hold() as other_name,
        stranger.lock("a").hold() as other_namespace,
    ):
        add_one(desk, mine, resource="table account")
        for lease in (other_name, other_namespace):
            with pytest.raises(ConfigurationError, match="only within one lock"):
                add_one(desk, lease, resource="table account")
        add_one(desk, other_name)
        add_one(desk, other_namespace)
    assert total(desk) == 3


def test_number_of_a_fence_counts_like_the_lease(desk: Desk, client: leasehold.Client) -> None:
    stale, current = two_in_turn(client.lock("account"))
    for token in (current, current.fence, current):
        add_one(desk, token, resource="account")
    with pytest.raises(StaleFence) as caught:
        add_one(desk, stale.fence, resource="account")
    assert caught.value.name == "account", "the row knows the lock that the number does not"


def test_guard_by_number_does_not_free_the_resource_from_its_lock(desk: Desk, client: leasehold.Client) -> None:
    with client.lock("a").hold() as first, client.lock("b").hold() as second:
        add_one(desk, first, resource="table account")
        add_one(desk, first.fence, resource="table account")
        with pytest.raises(ConfigurationError, match="only within one lock"):
            add_one(desk, second, resource="table account")
    assert total(desk) == 2


def test_guard_by_number_does_not_open_the_resource_to_another_grant_with_that_number(
    desk: Desk, client: leasehold.Client
) -> None:
    with client.lock("account").hold() as mine, leasehold.connect("memory://") as elsewhere:
        add_one(desk, mine)
        add_one(desk, mine.fence, resource="leasehold:account")
        with elsewhere.lock("account").hold() as other:
            assert other.fence == mine.fence
            with pytest.raises(StaleFence):
                add_one(desk, other)
    assert total(desk) == 2


def test_several_resources_are_guarded_in_one_transaction(desk: Desk, client: leasehold.Client) -> None:
    stale, current = two_in_turn(client.lock("second"))
    with client.lock("first").hold() as lease:
        with desk.begin() as tx:
            guard(tx, lease)
            guard(tx, current)
            guard(tx, lease)
            desk.run(tx, "UPDATE account SET n = 5")
        with pytest.raises(StaleFence), desk.begin() as tx:
            guard(tx, lease)
            guard(tx, stale)
            desk.run(tx, "UPDATE account SET n = 6")
    assert total(desk) == 5


def test_guard_may_be_called_again_by_a_helper_of_the_same_transaction(desk: Desk, client: leasehold.Client) -> None:
    with client.lock("account").hold() as lease, desk.begin() as tx:
        guard(tx, lease)
        ((n,),) = desk.run(tx, "SELECT n FROM account")
        guard(tx, lease)
        desk.run(tx, f"UPDATE account SET n = {n + 1}")
    assert total(desk) == 1


def test_names_are_only_ever_values(desk: Desk, client: leasehold.Client) -> None:
    for name in HOSTILE:
        stale, current = two_in_turn(client.lock(name))
        add_one(desk, current)
        add_one(desk, current.fence, resource=name)
        with pytest.raises(StaleFence):
            add_one(desk, stale)
    assert total(desk) == 2 * len(HOSTILE)
    with desk.begin() as tx:
        kept = {as_text(name) for (name,) in desk.run(tx, "SELECT resource FROM leasehold_guard")}
    assert kept == {*HOSTILE, *(f"leasehold:{name}" for name in HOSTILE)}


def test_owner_is_not_stored_at_the_resource(desk: Desk, client: leasehold.Client) -> None:
    with client.lock("account").hold() as lease:
        add_one(desk, lease)
        owner = lease._twin._tenure.grant.claim.owner
    with desk.begin() as tx:
        (row,) = desk.run(tx, "SELECT * FROM leasehold_guard")
    assert owner not in str(row)
    assert len(as_text(row[3])) == 32
