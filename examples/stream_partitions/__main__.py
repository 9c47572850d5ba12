"""One consumer per partition instead of a lock per event, and what a paused consumer does to it.

    python -m examples.stream_partitions                                # on local:, without a server
    python -m examples.stream_partitions postgresql://localhost/test    # events in this database too (example_*)
    python -m examples.stream_partitions redis://localhost              # any other store with semaphores

Events of twelve orders are spread over four partitions, all events of one order in the same one, where they have an
order. `client.partitions` gives each partition one consumer at a time, so no lock is taken for an event. A consumer
keeps its position together with what it did, in one transaction.

Anna is stopped (SIGSTOP) after she has read an event and before she has written what follows from it, for longer
than her lease. Ben takes over her partitions. Then Anna is woken up, does not know that she slept, and applies her
event once more, unless the guard refuses her.
"""

from __future__ import annotations

import os
import signal
from contextlib import closing
from typing import Any

import leasehold
from examples.stage import Stage, execute, play, transaction
from leasehold.sql import guard

PARTITIONS, ORDERS, EVENTS = 4, 12, 5  # five events of each order
TTL = 2


def consume(stage: Stage, name: str, *, guarded: bool, pause: bool) -> None:
    """Be a member, and apply the events of whatever partitions are ours, until all events have been applied."""
    events = "guarded" if guarded else "plain"
    with (
        closing(stage.database()) as database,
        stage.connect(label=name) as client,
        client.partitions(events, PARTITIONS, ttl=TTL) as share,
    ):
        while left_to_do(database):
            for partition in share.owned():
                try:
                    pause = consume_one(stage, database, partition, guarded=guarded, pause=pause)
                except leasehold.StaleFence as refusal:
                    stage.say(f"{name} is REFUSED: fence {refusal.fence} is older than {refusal.highest}")
                except leasehold.LeaseLost:
                    stage.say(f"{name} learns that partition {partition.index} is lost")
                if partition.leaving:
                    partition.release()
            share.wait_change(0.02)


def consume_one(stage: Stage, database: Any, partition: leasehold.Partition, *, guarded: bool, pause: bool) -> bool:
    """Apply the next event of a partition; whether the pause is still to come."""
    partition.check()
    with transaction(database):
        if guarded:
            guard(database, partition.lease)  # before the first read: no earlier owner can write from here on
        event = next_event(database, partition.index)
    if event is None:
        return pause
    if pause:
        stage.say(f"Anna reads event {event} of partition {partition.index}, and is stopped")
        os.kill(os.getpid(), signal.SIGSTOP)
    with transaction(database):  # the effect and the position, both or neither
        if guarded:
            guard(database, partition.lease)
        execute(database, "INSERT INTO example_effect VALUES (?, ?)", partition.index, event)
        execute(database, "UPDATE example_position SET event = ? WHERE part = ?", event, partition.index)
    return False


def next_event(database: Any, index: int) -> int | None:
    """The first event after the position of a partition."""
    statement = "SELECT min(e.id) FROM example_event e JOIN example_position p ON p.part = e.part AND e.id > p.event"
    (event,) = execute(database, f"{statement} WHERE p.part = ?", index).fetchone()
    return None if event is None else int(event)


def left_to_do(database: Any) -> bool:
    """Whether some event has not been applied."""
    with transaction(database):
        return any(next_event(database, index) is not None for index in range(PARTITIONS))


# --- the story


def anna(stage: Stage, guarded: bool) -> None:  # noqa: FBT001 - a part has plain arguments
    """She is paused in the middle."""
    consume(stage, "Anna", guarded=guarded, pause=True)


def ben(stage: Stage, guarded: bool) -> None:  # noqa: FBT001
    """He takes over."""
    consume(stage, "Ben", guarded=guarded, pause=False)


def produce(stage: Stage) -> None:
    """All events, none of them applied."""
    with closing(stage.database()) as database, transaction(database):
        for table, columns in (
            ("example_event", "id INTEGER PRIMARY KEY, part INTEGER, about INTEGER"),
            ("example_position", "part INTEGER PRIMARY KEY, event INTEGER"),
            ("example_effect", "part INTEGER, event INTEGER"),
        ):
            execute(database, f"DROP TABLE IF EXISTS {table}")
            execute(database, f"CREATE TABLE {table} ({columns})")
        for index in range(PARTITIONS):
            execute(database, "INSERT INTO example_position VALUES (?, 0)", index)
        for number in range(ORDERS * EVENTS):
            order = number % ORDERS
            index = leasehold.partition_of(f"order:{order}", PARTITIONS)
            execute(database, "INSERT INTO example_event VALUES (?, ?, ?)", number + 1, index, order)


def tell(stage: Stage, *, guarded: bool) -> int:
    """How many effects the events had."""
    produce(stage)
    paused = stage.start(anna, guarded)
    paused.wait_until_stopped()
    stage.start(ben, guarded).wait()
    stage.say("Ben has applied all events; Anna wakes up")
    paused.send_signal(signal.SIGCONT)
    paused.wait()
    with closing(stage.database()) as database:
        (count,) = execute(database, "SELECT count(*) FROM example_effect").fetchone()
    return int(count)


def story(stage: Stage) -> int:
    """Twice, the second time with the guard."""
    wanted, counts = ORDERS * EVENTS, []
    for label, guarded in (("without the guard", False), ("with the guard", True)):
        counts.append(tell(stage, guarded=guarded))
        stage.result(label, counts[-1], wanted, f"{counts[-1]} effects of {wanted} events")
    return stage.verdict(broken=counts[0] > wanted, cured=counts[1] == wanted)


if __name__ == "__main__":
    raise SystemExit(play(story, __doc__))
