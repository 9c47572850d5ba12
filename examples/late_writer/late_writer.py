"""A paused holder writes late: damaged without the guard, intact with it. Real processes, really stopped.

    python examples/late_writer/late_writer.py                                  # SQLite, needs no server
    python examples/late_writer/late_writer.py postgresql://localhost/test      # a table late_writer_account there

An account holds 100. Anna takes out 30 and Ben takes out 50, each under the lock of the account, so 20 must be left.
But Anna is stopped (SIGSTOP) between her read and her write, for longer than her lease. Ben gets the lock, with a
higher fence, and takes out his 50. Then Anna is woken up, and does not know that she slept.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from typing import Any

import leasehold
from leasehold.sql import guard

TTL = 1.0


def open_database(url: str) -> Any:
    """A connection of psycopg or of sqlite3; what follows is the same for both."""
    if url.startswith("postgresql:"):
        import psycopg  # noqa: PLC0415 - not needed for SQLite

        return psycopg.connect(url)
    return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)


# --- the two who take money out


def take_out(amount: int, locks: str, url: str, *, guarded: bool, pause: bool) -> None:
    """Read the balance, think, write what is left; again from the start if the guard refuses."""
    client = leasehold.connect(locks)
    with client, client.release_on_signals(), closing(open_database(url)) as database:
        lock = client.lock("account", ttl=TTL)
        while True:
            try:
                with lock.hold() as lease:
                    print(f"has the lock, fence {lease.fence}")
                    balance = read(database, lease, guarded=guarded)
                    if pause:
                        print(f"reads {balance} and is stopped")
                        os.kill(os.getpid(), signal.SIGSTOP)
                        pause = False
                    write(database, lease, balance - amount, guarded=guarded)
                    print(f"writes {balance - amount}")
            except leasehold.StaleFence as refusal:
                print(f"is REFUSED: fence {refusal.fence} is stale, {refusal.highest} was here; begins again")
            except leasehold.LeaseLost:
                print("learns only now that the lease was lost: too late")
                return
            else:
                return


def read(database: Any, lease: leasehold.Lease, *, guarded: bool) -> int:
    """The balance, in a transaction of its own."""
    with database if isinstance(database, sqlite3.Connection) else database.transaction():
        if guarded:
            guard(database, lease)  # raise the fence before the first read
        (balance,) = database.execute("SELECT balance FROM late_writer_account").fetchone()
        return int(balance)


def write(database: Any, lease: leasehold.Lease, balance: int, *, guarded: bool) -> None:
    """The new balance."""
    with database if isinstance(database, sqlite3.Connection) else database.transaction():
        if guarded:
            guard(database, lease)
        database.execute(f"UPDATE late_writer_account SET balance = {balance:d}")


# --- the story


def tell(folder: str, url: str, *, guarded: bool) -> int:
    """Run Anna and Ben; the balance that is left."""
    print(f"\n{'WITH' if guarded else 'WITHOUT'} THE GUARD")
    with closing(open_database(url)) as database:
        database.execute("DROP TABLE IF EXISTS late_writer_account")
        database.execute("CREATE TABLE late_writer_account (balance INTEGER NOT NULL)")
        database.execute("INSERT INTO late_writer_account VALUES (100)")
        database.commit()
    locks = f"sqlite:///{folder}/locks-{guarded}.db"
    words = [locks, url, "guarded" if guarded else "plain"]
    anna = start("30", *words, "pause")
    os.waitpid(anna.pid, os.WUNTRACED)  # she has stopped herself
    ben = start("50", *words, "go")
    ben_says, _ = ben.communicate()
    anna.send_signal(signal.SIGCONT)
    anna_says, _ = anna.communicate()
    first, second, *late = anna_says.splitlines()
    for name, lines in (("Anna", [first, second]), ("Ben", ben_says.splitlines()), ("Anna", ["wakes up", *late])):
        for line in lines:
            print(f"  {name:<5} {line}")
    with closing(open_database(url)) as database:
        (balance,) = database.execute("SELECT balance FROM late_writer_account").fetchone()
    print(f"  left: {balance}, {'as it must be' if balance == 20 else 'DAMAGED: it must be 20'}")
    return int(balance)


def start(*words: str) -> subprocess.Popen[str]:
    """A process of its own, which can be stopped as a whole."""
    return subprocess.Popen([sys.executable, "-u", __file__, "take", *words], stdout=subprocess.PIPE, text=True)


def main(words: list[str]) -> int:
    """Tell it twice; 0 if it went as told."""
    if words[:1] == ["take"]:
        _, amount, locks, url, how, pause = words
        take_out(int(amount), locks, url, guarded=how == "guarded", pause=pause == "pause")
        return 0
    with tempfile.TemporaryDirectory(prefix="leasehold-late-writer-") as folder:
        url = words[0] if words else f"sqlite:///{folder}/bank.db"
        plain, guarded = tell(folder, url, guarded=False), tell(folder, url, guarded=True)
    return 0 if (plain, guarded) == (70, 20) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
