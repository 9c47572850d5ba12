"""Two instances of a service remind the same customers at the same second, and each customer gets two mails.

    python -m examples.reminder_email                       # on local:, without a server
    python -m examples.reminder_email redis://localhost     # or on any other store

Look whether the mail was sent, send it, note that it was sent: the other instance looks in between. Under a lock
for each order nobody does, if one rule is kept: *look after you have the lock*, for what was seen before it may be
old.

A mail cannot be called back and a mail server checks no fence, so `check` is the last line before it is sent: it
raises unless the lease is good for as long as that takes. It makes a second mail rare; only the server could make
it impossible, if it knew a key for each mail.
"""

from __future__ import annotations

import time

from examples.stage import Stage, play

ORDERS = range(1, 13)
INSTANCES = 2


def send(stage: Stage, order: int) -> None:
    """The mail server needs a moment."""
    time.sleep(0.05)
    stage.ledger("mails").write(order)


def was_sent(stage: Stage, order: int) -> bool:
    """What the service's own records say."""
    return str(order) in stage.ledger("mails").read()


def remind(stage: Stage) -> None:
    """One instance, which does look."""
    for order in ORDERS:
        if not was_sent(stage, order):
            send(stage, order)


def remind_under_locks(stage: Stage) -> None:
    """One instance, which looks under a lock of the order."""
    with stage.connect() as client:
        for order in ORDERS:
            with client.lock(f"reminder:{order}").hold(timeout=30) as lease:
                if not was_sent(stage, order):
                    lease.check(need=5)  # LeaseLost unless 5 more seconds are ours
                    send(stage, order)


def story(stage: Stage) -> int:
    """Both instances begin at the same moment."""
    counts = []
    for label, way in (("without leasehold", remind), ("a lock per order", remind_under_locks)):
        stage.together(way, [()] * INSTANCES)
        counts.append(len(stage.ledger("mails").take()))
        stage.result(label, counts[-1], len(ORDERS), f"{counts[-1]} mails to {len(ORDERS)} customers")
    return stage.verdict(broken=counts[0] > len(ORDERS), cured=counts[1] == len(ORDERS))


if __name__ == "__main__":
    raise SystemExit(play(story, __doc__))
