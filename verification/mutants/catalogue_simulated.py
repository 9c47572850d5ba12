"""Bugs of the protocols over several servers; the simulation of their own store hunts those that name no tests."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["SIMULATED_MUTANTS"]

_REDLOCK = "_backends/redlock/"
_ETCD = "_backends/etcd/"
_ZOOKEEPER = "_backends/zookeeper/"
_MYSQL = "_backends/mysql/"
_NODES = "tests/stores/redlock/test_redlock_nodes.py::"

SIMULATED_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "B30-forgets-and-votes",
        "a node that was restarted empty votes at once, and two majorities share no node that remembers",
        _REDLOCK + "scripts/marker.lua",
        "    return whole, nil, run_id\n",
        "    return 0, nil, run_id\n",
        tests=(_NODES + "test_rival_cannot_use_a_node_that_forgot_the_holders_vote",),
    ),
    Mutant(
        "B23-minority-extends",
        "a renewal that a minority of the nodes confirmed counts",
        _REDLOCK + "renew.py",
        "        if codes.count(EXTENDED) >= self._needed:\n",
        "        if codes.count(EXTENDED) >= 1:\n",
    ),
    Mutant(
        "B23-never-repaired",
        "nodes that lost a lock never get it back, and its majority wears away",
        _REDLOCK + "backend.py",
        "                    for node in renewals.to_repair(place):\n",
        "                    for node in renewals.to_repair(place)[:0]:\n",
        tests=(_NODES + "test_flush_of_one_node_does_not_cost_the_lease_and_the_node_gets_it_back",),
    ),
    Mutant(
        "B43-stale-leader-believed",
        "a keep-alive counts although a member answered it that is not the leader any more",
        _ETCD + "sessions.py",
        "        if (keep_alive.header.member, keep_alive.header.term) != (header.member, header.term):\n"
        "            return False\n",
        "",
    ),
    Mutant(
        "B34-lost-is-ignored",
        "a session that the ensemble has ended is taken for one whose connection is lost",
        _ZOOKEEPER + "session.py",
        "        elif state == KazooState.LOST:\n            self.mark_over()\n",
        "",
    ),
    Mutant(
        "B34-unreported-after-a-pause",
        "two answers right behind a pause prove a whole ttl, although the leader may not know of them yet",
        _ZOOKEEPER + "validity.py",
        "        reported = sent - self.timeout * REPORTED_AFTER\n",
        "        reported = sent\n",
        tests=(
            "tests/stores/zookeeper/test_zookeeper_pieces.py::test_an_answer_right_behind_a_pause_proves_no_more_than_the_first_one",
        ),
    ),
    Mutant(
        "B36-forgotten-before-it-is-created",
        "a claim whose time ends while its parent is created is forgotten, and its node blocks the lock for ever",
        _ZOOKEEPER + "session_worker.py",
        "node.state is ClaimState.GONE and node.fence is not None and node.expires <= now:",
        "node.state is ClaimState.GONE and node.expires <= now:",
        tests=(
            "tests/stores/zookeeper/test_zookeeper_sessions.py::test_a_claim_whose_time_ends_while_its_parent_is_created_is_given_up_and_not_just_forgotten",
        ),
    ),
    Mutant(
        "B36-abandoned-waiter",
        "the node of a waiter that gives up is not deleted, and those behind it wait as long as its session lives",
        _ZOOKEEPER + "session.py",
        "        self.unwanted.setdefault(node, self._now())\n",
        "",
    ),
    Mutant(
        "B37-session-that-is-over",
        "after the loss of its session a client uses the same one again, for ever",
        _ZOOKEEPER + "pool.py",
        "            if session is None or session.is_over() or self._is_closed:\n",
        "            if session is None or self._is_closed:\n",
    ),
    Mutant(
        "B38-watches-lost-in-silence",
        "a waiter does not know that its watches were lost with the connection, and waits for ever",
        _ZOOKEEPER + "claim_node.py",
        '        self.notifications.append((Notification.WATCHES_LOST, ""))\n',
        "",
    ),
    Mutant(
        "B56-decides-after-a-standstill",
        "a process that stood still writes what it decided on an old state: after the store was emptied, a lower fence",
        "kit/documents.py",
        "            is_old = runtime.now() - loaded > PATIENCE\n",
        "            is_old = False\n",
        ("tests/unit/test_kit_documents.py",),
    ),
    Mutant(
        "B65-vanished-holder-for-ever",
        "the document of a name whose last holder vanished is never cleaned away",
        "kit/documents.py",
        "            if not is_over and name.rows.changed:  # a holder",
        "            if False:  # a holder",
    ),
    Mutant(
        "B5-ttl-of-zero",
        "a ttl of zero is accepted, and means whatever the store makes of it",
        "_durations.py",
        "    if not MIN_TTL <= number <= LONGEST:\n",
        "    if not 0 <= number <= LONGEST:\n",
        tests=("tests/unit/test_durations.py", "tests/unit/test_lock_spec.py"),
    ),
    Mutant(
        "mysql-change-of-before-is-written",
        "a change is written although another client was faster: a grant of that one is lost, and two may hold",
        _MYSQL + "rows.py",
        'WHERE name = %b AND version = %d" % (',
        'WHERE name = %b AND version >= 0 * %d" % (',
    ),
    Mutant(
        "mysql-name-in-use-is-granted",
        "the one statement of the common case takes a name from its holder",
        _MYSQL + "statements.py",
        'b"owner = IF(shape = 0 AND fence < %d, VALUES(owner), owner), "',
        'b"owner = IF(fence < %d, VALUES(owner), owner), "',
    ),
    Mutant(
        "mysql-hands-over-without-owning",
        "a release that was sent twice hands over what the next holder has",
        _MYSQL + "queue.py",
        'number = @leasehold_next AND ROW_COUNT() = 1;"',
        'number = @leasehold_next;"',
    ),
    Mutant(
        "mysql-removed-claims-stay",
        "a claim that ended is not deleted with the change that ends it",
        _MYSQL + "rows.py",
        "        claims = [*self._removed(rows), *self._added(rows), *self._updated(rows)]\n",
        "        claims = [*self._added(rows), *self._updated(rows)]\n",
    ),
)
