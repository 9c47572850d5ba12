"""The rules of one node, asked one by one, and what several clients make of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

import leasehold
from leasehold._backends.redlock.calls import LOCK, Call, Calls
from leasehold._backends.redlock.scripts import script
from leasehold._core.quorum import WINDOW
from leasehold.values import Claim, Grant, Holder, Mode
from tests.stores.redlock.redlock_support import connected, drop_lock, has_lock, held_on, lock_key, tell
from tests.stores.support import opened
from verification.lab.redlock import RedlockNodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.testing import contract
    from verification.lab.redis import RedisServer

CALLS = Calls(60, 1)


@pytest.fixture
def node() -> Iterator[RedisServer]:
    with RedlockNodes(1, max_ttl=60) as nodes:
        yield nodes.servers[0]


@pytest.fixture
def nodes() -> Iterator[RedlockNodes]:
    with RedlockNodes(5, max_ttl=60, answer_timeout=0.5) as started:
        yield started


def claim_of(letter: str) -> Claim:
    return Claim("leasehold:name", letter * 32, 30.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))


def code(server: RedisServer, call: Call) -> int:
    """The first number of a node's answer."""
    line = next(word for word in tell(server, call.whole).split(b"\r\n") if word.startswith((b":", b"-")))
    assert line.startswith(b":"), line
    return int(line[1:])


def clock(server: RedisServer) -> int:
    seconds, microseconds = server.ask("TIME")
    return int(seconds) * 1_000_000 + int(microseconds)


@pytest.mark.parametrize(("seconds", "answer"), [(-60, 3), (-0.5, 1), (0.5, 1), (60, 3)])
def test_node_votes_only_for_numbers_within_the_window_of_its_clock(
    node: RedisServer, seconds: float, answer: int
) -> None:
    assert abs(seconds) < WINDOW / 2 or abs(seconds) > 10 * WINDOW
    assert code(node, CALLS.vote(claim_of("a"), clock(node) + int(seconds * 1e6))) == answer


def test_broken_grant_is_not_voted_for_again(node: RedisServer) -> None:
    claim, number = claim_of("a"), clock(node)
    assert code(node, CALLS.vote(claim, number)) == 1
    assert code(node, CALLS.vote(claim, number)) == 1, "the same claim is one grant"
    assert code(node, CALLS.break_(claim.key, number, "stuck", now=False)) == 1
    assert code(node, CALLS.vote(claim, clock(node))) == 0


@pytest.mark.parametrize("mark", [True, False])
def test_number_of_a_withdrawn_claim_is_used_up_on_the_node_that_had_it(node: RedisServer, mark: bool) -> None:
    claim, number = claim_of("a"), clock(node)
    assert code(node, CALLS.vote(claim, number)) == 1
    assert code(node, CALLS.withdraw(claim, 0.0, mark=mark)) == 1
    assert code(node, CALLS.repair(Grant(claim, number, 30.0))) == 0, "it was under way"
    assert has_lock(node) is None
    assert code(node, CALLS.vote(claim_of("b"), number)) == 2, "a number is never given twice"


def test_release_that_finds_nothing_bars_a_vote_and_a_repair_that_arrive_later(node: RedisServer) -> None:
    claim, number = claim_of("a"), clock(node)
    grant = Grant(claim, number, 30.0)
    assert code(node, CALLS.release(claim, number, 0.0)) == 0
    assert code(node, CALLS.vote(claim, number)) == 2, "it was under way, and would lock the node without a holder"
    assert code(node, CALLS.repair(grant)) == 0
    assert has_lock(node) is None
    assert code(node, CALLS.vote(claim_of("b"), clock(node))) == 1


def test_withdrawal_does_not_touch_the_lock_of_another(node: RedisServer) -> None:
    number = clock(node)
    assert code(node, CALLS.vote(claim_of("a"), number)) == 1
    assert code(node, CALLS.withdraw(claim_of("b"), 0.0)) == 1
    assert has_lock(node) == number


def test_all_pages_of_a_list_are_read(nodes: RedlockNodes) -> None:
    fill = (
        "for i = 1, 3000 do redis.call('HSET', ARGV[1] .. i, 'o', 'f', 'f', '1', 'e', ARGV[2], 's', '1', 'd', '', "
        "'c', '1') end"
    )
    for server in nodes.servers:
        server.ask("EVAL", fill, "0", f"{LOCK}leasehold:many-", str(clock(server) // 1000 + 600_000))
    with leasehold.connect(nodes.url()) as client:
        assert len({state.name for state in client.locks("many-")}) == 3000


def test_client_that_learned_of_a_raised_fence_teaches_nodes_that_do_not_know_it(
    driver: contract.Driver, nodes: RedlockNodes
) -> None:
    """Two nodes know it, two have lost it, one is down: only together are they a majority."""

    async def body() -> None:
        raised = int(time.time() * 1e6) + 10**12
        async with opened(driver, nodes.url(answer_timeout=10)) as operator:
            await connected(driver, operator)
            await operator.raise_fence("name", raised, reason="test")
        for server in nodes.servers[1:3]:
            server.ask("DEL", lock_key("name"))
        nodes.servers[0].kill()
        async with opened(driver, nodes.url(answer_timeout=10)) as client:
            lease = await client.lock("name").acquire(timeout=30)
            assert lease.fence > raised
            assert await lease.release()

    driver.run(body())


def test_clean_up_reaches_a_node_that_forgot_its_script(driver: contract.Driver, nodes: RedlockNodes) -> None:
    async def body() -> None:
        patient = nodes.url(answer_timeout=10)
        async with opened(driver, patient, ttl=60) as rival, opened(driver, patient, ttl=60) as client:
            await connected(driver, client)
            held = await rival.lock("name").acquire(timeout=30)
            await until_held_by_all(driver, nodes, held)
            first = nodes.servers[0]
            drop_lock(first)
            first.forget_scripts()
            first.ask("SCRIPT", "LOAD", script("vote").text)
            assert await client.lock("name").try_acquire() is None
            end = time.monotonic() + 30
            while has_lock(first) is not None or not int(first.ask("HGET", lock_key("name"), "c") or 0) > held.fence:
                assert time.monotonic() < end, "its vote was not taken back"
                # A number is an instant by its client's estimate: one below the rival's gets no vote, a later one does.
                assert await client.lock("name").try_acquire() is None
                other = await client.lock("other").acquire(timeout=30)  # a thread reads late answers with its next use
                await other.release()
            assert await held.release()

    driver.run(body())


async def until_held_by_all(driver: contract.Driver, nodes: RedlockNodes, lease: Any) -> None:
    end = time.monotonic() + 30
    while held_on(nodes) < 5:
        assert time.monotonic() < end, "some node never got it"
        await lease.renew()
        await driver.breathe()
