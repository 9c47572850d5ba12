"""A process is paused for longer than its lease, wakes up, and writes over the work of the next holder.

    python -m examples.late_writer                              # on local:, without a server
    python -m examples.late_writer postgresql://localhost/test  # the account in this database too, in example_account
    python -m examples.late_writer redis://localhost            # any other store: the account in a file of SQLite

An account holds 100. Anna takes out 30 and Ben takes out 50, each under the lock of the account, so 20 must be
left. But Anna is stopped (SIGSTOP) between her read and her write, as by a garbage collection or a frozen virtual
machine. Ben gets the lock, with a higher fence, and takes out his 50. Then Anna is woken up, and does not know that
she slept. No lock can stop her write. The guard does: it keeps the highest fence beside the data, and hers is
lower.
"""

from __future__ import annotations

import os
import signal
from contextlib import closing
from typing import Any

import leasehold
from examples.stage import Stage, execute, play, transaction
from leasehold.sql import guard

BALANCE, ANNA, BEN = 100, 30, 50


def take_out(stage: Stage, name: str, amount: int, *, guarded: bool, pause: bool) -> None:
    """Read the balance, think, write what is left; again from the start if the guard refuses."""
    with stage.connect(label=name) as client, closing(stage.database()) as database:
        lock = client.lock(f"account {'guarded' if guarded else 'plain'}", ttl=2)
        while True:
            try:
                with lock.hold() as lease:
                    stage.say(f"{name} has the lock, with fence {lease.fence}")
                    balance = read(database, lease, guarded=guarded)
                    if pause:
                        pause = False
                        stage.say(f"{name} reads {balance} and is stopped")
                        os.kill(os.getpid(), signal.SIGSTOP)
                    write(database, lease, balance - amount, guarded=guarded)
                    stage.say(f"{name} writes {balance - amount}")
            except leasehold.StaleFence as refusal:
                stage.say(f"{name} is REFUSED: fence {refusal.fence} is older than {refusal.highest}; she begins again")
            except leasehold.LeaseLost:
                stage.say(f"{name} learns only now that the lease was lost: too late")
                return
            else:
                return


def read(database: Any, lease: leasehold.Lease, *, guarded: bool) -> int:
    """The balance, in a transaction of its own."""
    with transaction(database):
        if guarded:
            guard(database, lease)  # before the first read: from here on no earlier holder can write
        (balance,) = execute(database, "SELECT balance FROM example_account").fetchone()
        return int(balance)


def write(database: Any, lease: leasehold.Lease, balance: int, *, guarded: bool) -> None:
    """The new balance."""
    with transaction(database):
        if guarded:
            guard(database, lease)
        execute(database, "UPDATE example_account SET balance = ?", balance)


# --- the story


def anna(stage: Stage, guarded: bool) -> None:  # noqa: FBT001 - a part has plain arguments
    """She is paused in the middle."""
    take_out(stage, "Anna", ANNA, guarded=guarded, pause=True)


def ben(stage: Stage, guarded: bool) -> None:  # noqa: FBT001
    """He comes while she sleeps."""
    take_out(stage, "Ben", BEN, guarded=guarded, pause=False)


def tell(stage: Stage, *, guarded: bool) -> int:
    """The balance that is left."""
    with closing(stage.database()) as database, transaction(database):
        execute(database, "DROP TABLE IF EXISTS example_account")
        execute(database, "CREATE TABLE example_account (balance INTEGER NOT NULL)")
        execute(database, "INSERT INTO example_account VALUES (?)", BALANCE)
    first = stage.start(anna, guarded)
    first.wait_until_stopped()
    stage.start(ben, guarded).wait()
    stage.say("Anna wakes up")
    first.send_signal(signal.SIGCONT)
    first.wait()
    with closing(stage.database()) as database:
        (balance,) = execute(database, "SELECT balance FROM example_account").fetchone()
    return int(balance)


def story(stage: Stage) -> int:
    """Twice, the second time with the guard."""
    left = BALANCE - ANNA - BEN
    plain = tell(stage, guarded=False)
    stage.result("the lock alone", plain, left, f"{plain} of {BALANCE} are left after {ANNA} and {BEN} were taken out")
    guarded = tell(stage, guarded=True)
    stage.result("lock and guard", guarded, left, f"{guarded} of {BALANCE} are left, as it must be")
    return stage.verdict(broken=plain != left, cured=guarded == left)


if __name__ == "__main__":
    raise SystemExit(play(story, __doc__))
