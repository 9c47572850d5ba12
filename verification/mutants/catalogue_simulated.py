"""Bugs of the protocols over several servers; the simulation of their own store hunts those that name no tests."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["SIMULATED_MUTANTS"]

_REDLOCK = "_backends/redlock/"
_ETCD = "_backends/etcd/"
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
)
