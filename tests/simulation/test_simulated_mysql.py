"""Listeners of the simulated MySQL server: one has the user lock, others wait for it, and a wake-up ends the wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from verification.simulation.mysql.server import DEADLOCK, INTERRUPTED, SimMysql
from verification.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.mysql.packets import Answer
    from verification.simulation.mysql.server import Session

SLEEP, WAIT = b"SLEEP(2)", b"GET_LOCK('leasehold listeners', 2)"


class Desk:
    """A server, and what its sessions were answered."""

    def __init__(self) -> None:
        self.world = World(0)
        self.server = SimMysql(self.world)
        self.heard: list[tuple[int, object]] = []

    def connect(self) -> Session:
        return self.server.connect(lambda: None)

    def listen(self, session: Session, what: bytes) -> None:
        self.server.execute(
            session, b"SELECT /* leasehold listener ab%d */ %b" % (session.number, what), self._on(session)
        )

    def ask(self, session: Session, text: bytes) -> None:
        self.server.execute(session, text, self._on(session))

    def _on(self, session: Session) -> Callable[[Answer], None]:
        def hear(answer: Answer) -> None:
            what = answer.results[-1].rows if answer.error is None else answer.error.code
            self.heard.append((session.number, what))

        return hear


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_one_listener_has_the_user_lock_and_it_goes_on_to_the_next_when_its_session_ends(desk: Desk) -> None:
    one, two, three = desk.connect(), desk.connect(), desk.connect()
    for session in (one, two, three):
        desk.listen(session, WAIT)
    assert desk.heard == [(1, [(b"1",)])]
    desk.server.end_session(one.number)
    assert desk.heard[1:] == [(2, [(b"1",)])]
    desk.server.end_session(three.number)
    desk.server.end_session(two.number)
    assert len(desk.heard) == 2, "who is gone hears nothing"


def test_a_listener_that_comes_after_the_end_of_its_session_waits_for_nothing(desk: Desk) -> None:
    one, late = desk.connect(), desk.connect()
    desk.listen(one, WAIT)
    desk.server.end_session(late.number)
    desk.listen(late, WAIT)
    desk.server.end_session(one.number)
    assert desk.heard == [(1, [(b"1",)])]


def test_a_listener_is_woken_by_its_number_and_its_token(desk: Desk) -> None:
    sleeper, other = desk.connect(), desk.connect()
    desk.listen(sleeper, SLEEP)
    find = (
        b"SET @l = (SELECT ID FROM information_schema.PROCESSLIST WHERE ID = 1 "
        b"AND INFO LIKE 'SELECT /* leasehold listener %b */%%'); KILL QUERY @l"
    )
    desk.ask(other, find % b"zz1")
    assert desk.heard == [(2, 1064)]
    desk.ask(other, find % b"ab1")
    assert desk.heard[1:] == [(1, INTERRUPTED), (2, [])]


def test_a_transaction_that_is_rolled_back_for_a_deadlock_has_done_nothing(desk: Desk) -> None:
    one = desk.connect()
    desk.server.deadlocks = 1
    write = b"INSERT INTO leasehold_record (name, value, fence, expires) VALUES (x'61', x'62', 1, 2) "
    write += b"ON DUPLICATE KEY UPDATE value = VALUES(value)"
    desk.ask(one, b"BEGIN;%b;COMMIT" % write)
    assert desk.heard == [(1, DEADLOCK)]
    desk.ask(one, b"SELECT COUNT(*) FROM leasehold_record")
    assert desk.heard[1:] == [(1, [(b"0",)])]
    desk.ask(one, b"BEGIN;%b;COMMIT" % write)
    desk.ask(one, b"SELECT value FROM leasehold_record WHERE name = x'61'")
    assert desk.heard[-1] == (1, [(b"b",)])
