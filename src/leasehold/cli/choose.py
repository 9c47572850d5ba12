"""`choose`: one page on whether to lock at all, and on which store. Only text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.cli import exit_codes
from leasehold.cli.output import print_lines

if TYPE_CHECKING:
    from argparse import Namespace

    from leasehold.cli.output import Console

__all__ = ["PAGE", "choose"]

PAGE = """\
FIRST: DO YOU NEED A LOCK?

  A lock is the wrong tool when the database can decide by itself:
    take the last ticket     UPDATE ... SET n = n - 1 WHERE id = ? AND n >= 1, and look at the row count
    create a thing once      a unique index and INSERT ... ON CONFLICT DO NOTHING
    edit without overwriting a version column and UPDATE ... WHERE version = ?
    charge a card once       an idempotency key that the payment service checks
    one worker per order     one consumer per partition of the queue
    a job per night          the slot (its date) as a key, not "no other runs just now"
  A lock is right when the work is outside one transaction: a long job, several systems, a cache
  that 500 processes would rebuild at once, one leader of many.

  A lock here is a lease. Its holder can be paused beyond it and come back as a late writer. If doing
  it twice costs money or data, the resource must check the fence (LEASEHOLD_FENCE, lease.fence).
  If it can check nothing (a third-party API, a file), pass an idempotency key on, check the lease
  right before the side effect, and expect a rest of risk.
  A holder that crashed half-way leaves its work half done: look at `abandoned` before you go on.

THEN: WHICH STORE? Take the first line that fits.

  your case                                  store                        who can lose it
  one host, or just starting                 local:  sqlite:////path      the host's disk
  it protects rows of one SQL database       postgresql://  mysql://      that database; lock and rows
                                             (the same database)          live and die together
  wake-up in ms matters, and a rare double   redis://  (and the fence)    a failover that loses the
  run is cheap                                                            last writes; clock steps
  twice means money or data is lost          etcd://  zk://  or           a majority of the servers
                                             postgresql://, and the fence
  several Redis, no other server             redlock://h1,h2,h3,h4,h5     clocks that jump; no queue
  tests                                      memory://                    the process

  store         freed after a crash    fair queue   woken within      clock that must not step
  SQLite        ttl                    yes          ms                none (boot time)
  Redis         ttl                    yes          ms                the server's
  Redlock       ttl                    no           up to 0.5 s       most of the servers'
  PostgreSQL    ttl, or session end    yes          ms                the server's
  MySQL         ttl, or session end    yes          ms                the server's
  etcd          session end            yes          ms                none
  ZooKeeper     session end            yes          ms                none
  NATS          ttl                    yes          ms                the servers'

  Traps: SQLite on a network file system (two hosts may both win); Redis replicas without
  min-replicas-to-write; PostgreSQL behind a transaction pooler (no push, sessions are shared);
  MySQL with several primaries; a ttl shorter than your longest pause.

  Changing later is changing the URL. `leasehold doctor URL` examines a store; `leasehold demo` shows
  a late writer and what stops it."""


def choose(arguments: Namespace, console: Console) -> int:  # noqa: ARG001 - every verb has this shape
    """Print the page."""
    print_lines([PAGE])
    return exit_codes.OK
