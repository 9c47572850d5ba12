"""A card is charged twice, because the caller sent its request again.

    python -m examples.payment                          # on local:, without a server
    python -m examples.payment redis://localhost        # or on any other store with records

A caller that gets no answer sends its payment again, and another process of the service receives it. Each looks
whether the order has been paid, finds that it has not, and charges the card: between the look and the charge there
is time for the others to look as well.

With an idempotency key the first attempt does the work, and its result is stored; every other attempt with the same
key waits for that result and gets it. `service.py` and `pay.py` are the same as an HTTP service with several
processes.
"""

from __future__ import annotations

import time

from examples.stage import Stage, play

ORDERS = range(1, 11)
PROCESSES = 4


def charge(stage: Stage, order: int) -> dict[str, int]:
    """The bank needs a moment, and what it has done cannot be undone."""
    time.sleep(0.05)
    stage.ledger("charges").write(order)
    return {"order": order, "cents": 4200}


def serve_with_care(stage: Stage) -> None:
    """One process of the service: it does look before it charges."""
    for order in ORDERS:
        if str(order) not in stage.ledger("charges").read():
            charge(stage, order)


def serve_with_keys(stage: Stage) -> None:
    """The same service with idempotency keys."""
    with stage.connect() as client:
        payments = client.idempotency("payments", wait="30s")
        for order in ORDERS:
            with payments.attempt(f"order-{order}", fingerprint={"cents": 4200}) as attempt:
                if not attempt.replayed:
                    attempt.complete(charge(stage, order))
                assert attempt.result == {"order": order, "cents": 4200}  # each caller gets the same answer


def story(stage: Stage) -> int:
    """Each of the ten payments reaches all four processes."""
    stage.together(serve_with_care, [()] * PROCESSES)
    careless = len(stage.ledger("charges").take())
    stage.result("without leasehold", careless, len(ORDERS), f"{careless} charges for {len(ORDERS)} orders")

    stage.together(serve_with_keys, [()] * PROCESSES)
    charged = len(stage.ledger("charges").take())
    stage.result("idempotency keys", charged, len(ORDERS), f"{charged} charges for {len(ORDERS)} orders")
    return stage.verdict(broken=careless > len(ORDERS), cured=charged == len(ORDERS))


if __name__ == "__main__":
    raise SystemExit(play(story, __doc__))
