"""What a client of a lock file remembers of names and connections between its calls, and what it lets go of."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import leasehold
from leasehold._backends.sqlite import connection, ledger, schema
from leasehold._backends.sqlite.connection import transaction
from leasehold._backends.sqlite.options import Location
from leasehold._runtimes.threads import run
from leasehold.errors import BackendRejected, BackendUnavailable
from leasehold.values import Claim, Grant, Holder, Mode
from tests.stores.sqlite.sqlite_support import FakeHost, Verbs, claim, granted, placed, refused
from tests.waiting import LIMIT

if TYPE_CHECKING:
    from pathlib import Path


def shared(number: int) -> Claim:
    return claim(f"ns:{number}", mode=Mode.SHARED)


def test_a_client_remembers_no_more_than_a_thousand_names_in_use_and_forgets_those_that_are_not(
    store: Verbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ledger.MOST_UNFOLDED == 1024
    monkeypatch.setattr(ledger, "MOST_UNFOLDED", 3)
    grants = [granted(store.try_acquire(shared(number))) for number in range(5)]
    known = store.backend._ledger._unfolded
    assert known == {"ns:0", "ns:1", "ns:2"}
    for grant in grants:
        assert store.release(grant) is True
    assert known == set()
    granted(store.try_acquire(shared(9)))
    assert known == {"ns:9"}


def test_a_name_that_another_client_made_plain_again_is_served_by_the_rules(tmp_path: Path, host: FakeHost) -> None:
    """This client still takes it for one in use by several."""
    one, other = Verbs(tmp_path / "locks.db", host), Verbs(tmp_path / "locks.db", host)
    first = granted(one.try_acquire(claim(mode=Mode.SHARED)))
    other.release(first)
    held = granted(other.try_acquire(claim()))
    refused(one.try_acquire(claim()))
    assert isinstance(one.renew(held)[0], Grant)
    assert one.release(held) is True
    assert granted(one.try_acquire(claim())).fence > held.fence
    one.close()
    other.close()


def test_a_claim_that_asks_for_spare_fences_has_them(store: Verbs) -> None:
    wanted = replace_spare(claim(), 5)
    grant = granted(store.try_acquire(wanted))
    assert grant.spare == 5
    later = Grant(grant.claim, grant.fence + 2, grant.ttl)
    assert granted(store.renew(later)[0]).fence == grant.fence + 2
    assert store.release(later) is True
    assert granted(store.try_acquire(claim())).fence > grant.fence + 5


def replace_spare(wanted: Claim, spare: int) -> Claim:
    return Claim(
        wanted.key, wanted.owner, wanted.ttl, wanted.mode, wanted.capacity, wanted.min_hold, wanted.holder, spare
    )


def test_each_lock_shows_its_own_holder_also_when_one_client_has_several(store: Verbs) -> None:
    holders = [Holder("a", 1, "first", "why"), Holder("b", 2, None, None, "ana"), Holder("c", 3)]
    for number, holder in enumerate([*holders, *holders]):
        wanted = claim(f"ns:{number}")
        granted(store.try_acquire(Claim(wanted.key, wanted.owner, 30.0, Mode.EXCLUSIVE, 1, 0.0, holder)))
    states = store.list("ns:")
    assert [state.holdings[0].holder for state in states] == [*holders, *holders]


def test_a_waiter_asks_often_where_nobody_can_call_it_and_rarely_where_they_can(store: Verbs) -> None:
    granted(store.join(claim(ttl=100)))
    called = placed(store.join(claim()))
    assert called.recheck == 1.0
    store.backend._notifications.close()
    store.backend._notifications._unusable = True
    alone = placed(store.join(claim()))
    assert alone.recheck == ledger.RECHECK_WITHOUT_LISTENER == 0.2
    assert placed(store.turn(called)).recheck == 0.2


def test_a_waiter_is_told_who_holds_how_many_are_ahead_and_when_the_grant_in_its_way_ends(
    store: Verbs, host: FakeHost
) -> None:
    held = granted(store.join(claim(ttl=100)))
    first = placed(store.join(claim()))
    host.pass_time(1.5)
    place = placed(store.join(claim()))
    assert (first.ahead, first.holder, first.retry_after) == (0, held.claim.holder, 100.0)
    assert (place.ahead, place.holder, place.retry_after) == (1, held.claim.holder, 98.5)
    host.pass_time(0.5)
    again = placed(store.turn(place))
    assert (again.ahead, again.holder, again.retry_after) == (1, held.claim.holder, 98.0)


def test_a_waiter_at_a_paused_name_is_told_of_the_pause(store: Verbs) -> None:
    run(store.backend.pause("ns:name", Holder("ops", 1, "ana", "moving"), 60.0))
    place = placed(store.join(claim()))
    assert place.paused is not None
    assert (place.paused.reason, place.paused.expires_in) == ("moving", 60.0)


def test_a_pause_that_replaced_another_ends_with_one_order(store: Verbs) -> None:
    for who in ("ana", "ben"):
        run(store.backend.pause("ns:name", Holder("ops", 1, who), 60.0))
    assert store.rows("claim") == 1
    assert run(store.backend.resume("ns:name")) is True
    granted(store.try_acquire(claim()))


def test_a_renewal_keeps_what_the_grant_said_of_the_holder_before(store: Verbs, host: FakeHost) -> None:
    granted(store.try_acquire(claim(ttl=1)))
    host.pass_time(2)
    grant = granted(store.try_acquire(claim()))
    assert grant.abandoned is True
    assert granted(store.renew(grant)[0]).abandoned is True


def test_a_file_exists_with_its_first_grant(tmp_path: Path) -> None:
    store = Verbs(tmp_path / "locks.db")
    assert store.backend.exists() is False
    assert store.inspect() is None
    assert store.backend.exists() is False
    granted(store.try_acquire(claim()))
    assert store.backend.exists() is True
    assert store.backend.is_private is False
    store.close()


# --- the connection


def test_a_lock_that_is_used_in_the_middle_of_another_call_of_its_thread_is_refused(store: Verbs) -> None:
    """As by a signal handler: it would end the transaction of the call that it interrupts."""
    granted(store.try_acquire(claim("ns:other")))

    def interrupted(connection: sqlite3.Connection) -> int:
        def work() -> int:
            connection.execute("UPDATE lock SET ttl = 77")
            with pytest.raises(BackendUnavailable, match="signal handler"):
                store.try_acquire(claim())
            return 5

        return transaction(connection, work)

    assert store.backend._file.perform(interrupted) == 5
    granted(store.try_acquire(claim()))
    (ttl,) = store.backend._file.perform(
        lambda connection: connection.execute("SELECT ttl FROM lock WHERE key = 'ns:other'").fetchone()
    )
    assert ttl == 77, "the change of the call that was interrupted is there"


@pytest.mark.parametrize(
    ("code", "is_kept"),
    [
        (sqlite3.SQLITE_BUSY, True),
        (sqlite3.SQLITE_FULL, True),
        (sqlite3.SQLITE_IOERR, False),
        (sqlite3.SQLITE_CORRUPT, False),
    ],
)
def test_a_connection_that_failed_is_thrown_away_and_a_busy_one_is_kept(store: Verbs, code: int, is_kept: bool) -> None:
    granted(store.try_acquire(claim()))
    file = store.backend._file
    before = file._connection

    def fail(_: sqlite3.Connection) -> None:
        error = sqlite3.OperationalError("why")
        error.sqlite_errorcode = code
        raise error

    with pytest.raises(leasehold.BackendError):
        file.perform(fail)
    assert (file._connection is before) is is_kept
    refused(store.try_acquire(claim()))


def test_a_change_that_fails_is_undone(store: Verbs) -> None:
    granted(store.try_acquire(claim()))

    def change(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM lock")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.backend._file.perform(lambda connection: transaction(connection, change, connection))
    assert store.rows("lock") == 1


def test_a_fork_finds_nothing_open_and_calls_wait_until_it_is_over(store: Verbs) -> None:
    granted(store.try_acquire(claim()))
    file = store.backend._file
    answers: list[object] = []
    calling = threading.Thread(target=lambda: answers.append(store.try_acquire(claim())))
    file.before_fork()
    assert file._connection is None
    calling.start()
    calling.join(0.05)
    assert answers == []
    file.after_fork_in_parent()
    calling.join(LIMIT)
    refused(answers[0])


def test_a_child_that_was_forked_behind_pythons_back_leaves_the_connection_to_its_parent(store: Verbs) -> None:
    """To close it would give up the locks that the parent has on the file."""
    granted(store.try_acquire(claim()))
    file = store.backend._file
    open_one = file._connection
    assert open_one is not None
    file._mutex.acquire()  # by a thread that the child does not have
    try:
        mutex = file._mutex
        file.after_fork_in_child()
        assert file._mutex is not mutex
        assert open_one.execute("SELECT 1").fetchone() == (1,), "it is still open"
        assert open_one in connection._LEFT_TO_THE_PARENT
        refused(store.try_acquire(claim()))
        assert file._connection not in (None, open_one)
    finally:
        mutex.release()
        connection._LEFT_TO_THE_PARENT.remove(open_one)
        open_one.close()


# --- making a file


def test_a_journal_that_another_program_changed_is_changed_back(tmp_path: Path) -> None:
    store = Verbs(tmp_path / "l.db")
    granted(store.try_acquire(claim()))
    store.close()
    with closing(sqlite3.connect(tmp_path / "l.db", isolation_level=None)) as other:
        assert other.execute("PRAGMA journal_mode=delete").fetchone() == ("delete",)
    store = Verbs(tmp_path / "l.db")
    refused(store.try_acquire(claim()))
    (mode,) = store.backend._file.perform(lambda opened: opened.execute("PRAGMA journal_mode").fetchone())
    assert mode == "wal"
    store.close()


def location() -> Location:
    return Location("/nowhere/locks.db", private=False, label="the store")


def test_a_file_system_that_cannot_share_memory_is_refused() -> None:
    """A database in memory has no log either."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        with pytest.raises(BackendRejected, match="use a local disk") as refusal:
            schema.set_up(connection, location(), FakeHost(), "normal")
        assert refusal.value.backend == "the store"
        assert not connection.in_transaction


def test_a_refused_file_is_left_without_a_transaction() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE customers (name)")
        with pytest.raises(BackendRejected, match="of another program"):
            schema.set_up(connection, location(), FakeHost(), "normal")
        assert not connection.in_transaction


@pytest.mark.parametrize(("pragma", "number"), [("application_id", 7), ("user_version", 3)])
def test_an_empty_database_that_another_program_has_marked_is_its_own(pragma: str, number: int) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA {pragma}={number}")
        with pytest.raises(BackendRejected, match="of another program"):
            schema.set_up(connection, location(), FakeHost(), "normal")


@pytest.mark.parametrize(("synchronous", "pages"), [("off", 4000), ("normal", 4000), ("full", 1000)])
def test_the_log_is_short_where_each_request_waits_for_the_disk(tmp_path: Path, synchronous: str, pages: int) -> None:
    with closing(sqlite3.connect(tmp_path / "l.db", isolation_level=None)) as connection:
        schema.set_up(connection, location(), FakeHost(), synchronous)
        assert connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (pages,)
        assert connection.execute("PRAGMA page_size").fetchone() == (1024,)


def test_a_queue_of_an_unnamed_boot_is_given_away_by_its_holder_in_the_future(tmp_path: Path) -> None:
    store = Verbs(tmp_path / "locks.db", FakeHost(boot="", now=50_000))
    granted(store.join(claim()))
    placed(store.join(claim()))
    store.close()
    same = Verbs(tmp_path / "locks.db", FakeHost(boot="", now=50_001))
    refused(same.try_acquire(claim()))
    same.close()
    rebooted = Verbs(tmp_path / "locks.db", FakeHost(boot="", now=5))
    granted(rebooted.try_acquire(claim()))
    rebooted.close()


# --- from the URL


def test_words_of_the_url_may_be_written_in_capitals_and_the_floor_of_the_fences_counts(tmp_path: Path) -> None:
    with leasehold.connect(f"sqlite:///{tmp_path}/l.db?synchronous=FULL&fence_floor=2000000000000000") as client:
        with client.lock("x").hold() as lease:
            assert lease.fence == 2_000_000_000_000_001
        findings = {finding.check: finding.found for finding in client.examine()}
        assert findings["journal"] == "wal, synchronous=full"


def test_without_a_word_in_the_url_a_commit_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    with leasehold.connect(f"sqlite:///{tmp_path}/l.db") as client:
        client.lock("x").acquire().release()
        findings = {finding.check: finding.found for finding in client.examine()}
        assert findings["journal"] == "wal, synchronous=normal"
