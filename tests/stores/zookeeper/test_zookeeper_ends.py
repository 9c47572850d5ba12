"""How claims, grants and clients of ZooKeeper end: withdrawn, broken, released, closed; and what they leave behind."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import pytest

from leasehold import LossReason
from leasehold._backends.zookeeper.claim_node import ClaimState
from leasehold._backends.zookeeper.keys import node_id
from leasehold._runtimes.threads import run
from leasehold.errors import ClientClosed
from leasehold.spi import Place
from leasehold.values import Grant, Loss, Mode, Refusal
from tests.stores.zookeeper.zookeeper_support import (
    LIMIT,
    OWN_LIMIT,
    OneWayProxy,
    claim,
    claims_in,
    opened,
    shut,
    woken,
)
from verification.lab.process import wait_until

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from verification.lab.zookeeper import ZooKeeperServer


def test_a_withdrawal_without_doubt_leaves_no_node_and_no_mark(zookeeper_server: ZooKeeperServer, eye: Any) -> None:
    backend = opened(zookeeper_server.url("/withdrawn"))
    holder = run(backend.join(claim()))
    waiter = claim()
    assert isinstance(run(backend.join(waiter)), Place)
    run(backend.withdraw(waiter, doubt=False))
    assert len(list(claims_in(eye, "/withdrawn"))) == 1
    assert waiter.owner not in backend._registry.withdrawn
    assert waiter.owner not in backend._registry.nodes
    run(backend.withdraw(holder.claim, doubt=False))
    assert list(claims_in(eye, "/withdrawn")) == []
    assert isinstance(run(backend.join(waiter)), Grant), "no request of it can be late, so it is not refused"
    run(backend.withdraw(waiter))
    assert isinstance(run(backend.join(waiter)), Refusal)
    shut(backend)


def test_a_node_that_an_older_session_made_for_the_same_claim_is_not_adopted(
    zookeeper_server: ZooKeeperServer, eye: Any
) -> None:
    """It vanishes with that session: a grant on it would be another's, too."""
    backend = opened(zookeeper_server.url("/adopted"))
    run(backend.release(run(backend.join(claim()))))
    again = claim()
    node = run(backend._acquirer._enter(again, math.inf))
    # The parent is a container, which ZooKeeper removes whenever it is empty: made with the node, not before it.
    older = eye.create(f"{node.parent}/{node.prefix}", node.data(0), ephemeral=True, sequence=True, makepath=True)
    node.state = ClaimState.DOUBT  # the answer to its own creation was lost
    assert run(backend._acquirer._adopt(node, math.inf)) is False
    answer = run(backend.join(again))
    wait_until(lambda: eye.exists(older) is None, "its own old node is deleted", LIMIT)
    grant = run(backend.turn(answer)) if isinstance(answer, Place) else answer
    assert isinstance(grant, Grant)
    assert run(backend.release(grant)) is True
    shut(backend)


@pytest.mark.parametrize("at_once", [False, True], ids=["kept for its ttl", "at once"])
@pytest.mark.parametrize("renewed", [False, True], ids=["before a renewal", "after a renewal"])
def test_the_release_of_a_broken_grant_answers_the_break_and_frees_the_lock(
    zookeeper_server: ZooKeeperServer, *, at_once: bool, renewed: bool
) -> None:
    url = zookeeper_server.url(f"/broken-{at_once}-{renewed}")
    backend, operator = opened(url), opened(url)
    held, other = run(backend.join(claim())), claim()
    assert run(operator.break_("ns:x", held.fence, "stuck", now=at_once)) is True
    expected = Loss(LossReason.BROKEN, "stuck")
    if renewed:
        assert run(backend.renew([held])) == [expected]
        assert run(backend.renew([held])) == [expected], "a repeated renewal gives another answer"
    place = run(operator.join(other))
    assert isinstance(place, Grant if at_once else Place)
    assert run(backend.release(held)) == expected
    if isinstance(place, Place):
        run(woken(place))
        place = run(operator.turn(place))
    assert isinstance(place, Grant), "the lock is kept although its holder has gone"
    assert place.fence > held.fence
    assert run(operator.release(place)) is True
    assert run(backend.release(held)) is False
    shut(backend, operator)


@pytest.mark.parametrize("at_once", [False, True], ids=["kept for its ttl", "at once"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_of_several_that_hold_together_each_can_be_broken(
    zookeeper_server: ZooKeeperServer, place: int, *, at_once: bool
) -> None:
    backend = opened(zookeeper_server.url(f"/one-of-three-{place}-{at_once}"))
    held = [run(backend.join(claim(mode=Mode.SHARED))) for _ in range(3)]
    assert run(backend.break_("ns:x", held[place].fence, "stuck", now=at_once)) is True
    answers = run(backend.renew(held))
    assert answers[place] == Loss(LossReason.BROKEN, "stuck")
    assert [number for number, answer in enumerate(answers) if isinstance(answer, Loss)] == [place]
    assert [run(backend.release(grant)) for grant in held].count(True) == 2
    shut(backend)


def test_the_reason_of_a_break_outlives_the_operators_client(zookeeper_server: ZooKeeperServer) -> None:
    """A command breaks and ends; the holder renews later."""
    url = zookeeper_server.url("/note")
    backend, operator = opened(url), opened(url)
    held = run(backend.join(claim()))
    assert run(operator.break_("ns:x", held.fence, "stuck", now=True)) is True
    run(operator.close())
    assert run(backend.renew([held])) == [Loss(LossReason.BROKEN, "stuck")]
    shut(backend, operator)


def test_the_note_for_another_holder_of_the_same_name_is_not_ours(
    zookeeper_server: ZooKeeperServer, eye: KazooClient
) -> None:
    backend = opened(zookeeper_server.url("/readers"))
    broken, deleted = (run(backend.join(claim(mode=Mode.SHARED))) for _ in range(2))
    mine = next(path for path in claims_in(eye, "/readers") if node_id(deleted.claim.owner) in path)
    assert run(backend.break_("ns:x", broken.fence, "stuck", now=True)) is True
    eye.delete(mine)
    assert run(backend.renew([broken, deleted])) == [
        Loss(LossReason.BROKEN, "stuck"),
        Loss(LossReason.TAKEN, "its ZooKeeper node is gone"),
    ]
    shut(backend)


def test_a_grant_whose_node_was_deleted_without_a_note_is_not_ours_any_more(
    zookeeper_server: ZooKeeperServer, eye: KazooClient
) -> None:
    backend = opened(zookeeper_server.url("/taken"))
    held = run(backend.join(claim()))
    for path in claims_in(eye, "/taken"):
        eye.delete(path)
    assert run(backend.release(held)) is False
    shut(backend)


@pytest.mark.parametrize("holds", [False, True], ids=["holding nothing", "holding another lock"])
def test_calls_that_wait_when_the_client_is_closed_end_at_once(
    zookeeper_server: ZooKeeperServer, proxy: OneWayProxy, eye: KazooClient, *, holds: bool
) -> None:
    """One waits for an answer that does not arrive; one waits in the queue, and looks again when it is woken."""
    root = f"/closing-{holds}"
    backend, other = opened(proxy.url(root)), opened(zookeeper_server.url(root))
    busy = run(other.join(claim("ns:busy")))
    place = run(backend.join(claim("ns:busy")))
    if holds:
        assert isinstance(run(backend.join(claim("ns:mine"))), Grant)
    proxy.black_hole()
    ended: list[BaseException] = []

    def acquire() -> None:
        try:
            run(backend.try_acquire(claim("ns:free")))
        except BaseException as error:
            ended.append(error)

    acquiring = threading.Thread(target=acquire)
    acquiring.start()
    wait_until(lambda: len(backend._calls._waits) == 1, "the call does not wait", LIMIT)
    closing = threading.Thread(target=lambda: run(backend.close()))
    closing.start()
    acquiring.join(OWN_LIMIT)
    assert [type(error) for error in ended] == [ClientClosed]
    run(woken(place))
    with pytest.raises(ClientClosed):
        run(backend.turn(place))
    closing.join(LIMIT)
    for call in (backend.join(claim()), backend.inspect("ns:x"), backend.renew([]), backend.release(busy)):
        with pytest.raises(ClientClosed, match="this client is closed; make a new one"):
            run(call)
    proxy.heal()
    shut(backend, other)


def test_a_claim_that_waits_when_its_client_is_closed_leaves_no_node(
    zookeeper_server: ZooKeeperServer, eye: KazooClient
) -> None:
    """Also while another grant of the client keeps the session open until its ttl is over."""
    backend, other = opened(zookeeper_server.url("/waits")), opened(zookeeper_server.url("/waits"))
    busy = run(other.join(claim("ns:busy")))
    assert isinstance(run(backend.join(claim("ns:mine"))), Grant)
    assert isinstance(run(backend.join(claim("ns:busy"))), Place)
    run(backend.close())
    wait_until(
        lambda: len(list(claims_in(eye, "/waits"))) == 2, "a waiter of a closed client stays in the queue", LIMIT
    )
    assert run(other.release(busy)) is True
    shut(backend, other)
