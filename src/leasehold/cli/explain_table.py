"""What each error means for its reader, and what to do: for `leasehold explain` and `docs/reference/errors.md`.

Only text. A test demands an entry for every error of `leasehold.errors`.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["EXPLANATIONS", "Explanation"]


class Explanation(NamedTuple):
    """When an error is raised, and what to do, one step per line; `page` has more, below docs/."""

    when: str
    do: tuple[str, ...]
    page: str = ""


EXPLANATIONS = {
    "LeaseholdError": Explanation(
        "The root of all errors of leasehold. `name` is the lock and `backend` the store, where they are known.",
        ("Catch it only at the edge of a program, to log or to answer a request; catch the classes below elsewhere.",),
    ),
    "AcquireTimeout": Explanation(
        "From `acquire`, `hold` and `leasehold run` when the wait is over and another holder has the lock. Also a "
        "TimeoutError. `holder` is the one that has it, `waited` how long this call waited. `retry_after`: "
        "the seconds until the grant in the way ends, unless it is renewed, or released before. It is None on etcd and "
        "ZooKeeper, whose answers do not say it, on Redlock while no holder has a majority, and for a call behind "
        "others of its own client before the store was asked. `try_acquire` gives None instead of the error.",
        (
            "Answer `busy` (409 or 423 with Retry-After), or try again later; do not work without the lock.",
            "If it happens often, look at who holds it and for how long: leasehold info NAME, leasehold watch.",
            (
                "If the holder is this process, an outer function has the lock already: pass its lease on, or take "
                "reentrant=True."
            ),
        ),
        "how-to/wait-for-a-busy-lock.md",
    ),
    "Paused": Explanation(
        "An operator has paused the name, and the call did not wait, or waited in vain. `pause` has why, by whom and "
        "for how long.",
        (
            "Do nothing, or answer 503 with Retry-After: it is meant so.",
            "When the reason is gone: leasehold resume NAME.",
        ),
        "how-to/operate-jobs.md",
    ),
    "LeaseLost": Explanation(
        "From `check`, `renew` and the end of a block: the lease is over, and another holder may have the lock. "
        "`reason` is how it ended: expired (the process was paused), unconfirmed (the store did not answer in time), "
        "taken (the store no longer had the grant), session ended, broken (by an operator), max_hold, forked, closed, "
        "given back. `completed` says that the block had run to its end: the work is done, but perhaps not under the "
        "lock.",
        (
            "Stop: write nothing more under this lease, and do not repeat what was written.",
            "Acquire again, and look at the state of the work first; a guarded resource has refused what came late.",
            "If it happens often, make the ttl longer than the pauses of the process and of the store.",
        ),
        "explanation/how-it-fails.md",
    ),
    "StaleFence": Explanation(
        "From a guard: the resource has seen a higher fence, so another holder came later. `fence` is this one, "
        "`highest` the one that was seen.",
        ("Stop, and do not repeat the write: it was prevented, which is what the guard is for.", "Acquire again."),
        "explanation/fencing.md",
    ),
    "FenceAhead": Explanation(
        "From a guard: the lease is held, and yet the resource has seen a far higher fence. The store was restored "
        "from a backup, or the URL names another kind of store than before.",
        (
            "Store restored: run the command in the message; it raises the fences of this name.",
            "URL changed: leasehold fence move --all --from OLD_URL --to NEW_URL.",
            "Neither: look for a program that passed a wrong number to the guard.",
        ),
        "how-to/change-the-store.md",
    ),
    "Conflict": Explanation(
        "The root of what another holder, writer or attempt was first at.",
        ("Catch it where `another was faster` has one answer, such as 409.",),
    ),
    "ModeConflict": Explanation(
        "The name is in use as another kind of lock: a mutex or read/write lock here, a semaphore (or one with another "
        "number of permits) there.",
        ("Give the two their own names, or the same kind and number everywhere.",),
        "how-to/name-locks.md",
    ),
    "AlreadyRun": Explanation(
        "From `once` with on_conflict='raise': the slot has been run. `skipped` has by which process and when.",
        ("Nothing: it is done.", "To repeat a bad run: leasehold once NAME ... --again --reason TEXT."),
        "how-to/run-a-job-once.md",
    ),
    "AlreadyRunning": Explanation(
        "From `once` with on_conflict='raise', and from `forget`: the job is being run now. `skipped` has by which "
        "process.",
        ("Come back later, or use on_conflict='standby', which waits and takes over if the runner vanishes.",),
        "how-to/run-a-job-once.md",
    ),
    "InFlight": Explanation(
        "The first attempt with this idempotency key is still running.",
        ("Answer 409 with Retry-After, and let the caller ask again after `retry_after`, with the same key.",),
        "how-to/idempotency-keys.md",
    ),
    "KeyReused": Explanation(
        "This idempotency key came before with another payload; nothing was run.",
        ("Answer 422. The caller has a mistake: one key is for one request, and a new request needs a new key.",),
        "how-to/idempotency-keys.md",
    ),
    "AttemptExpired": Explanation(
        "An earlier attempt with this idempotency key vanished in the middle: its work may be done or not.",
        (
            "Find out at the resource whether it was done, then complete the key or run it again (on_expired).",
            "Keep key and work in one transaction, and it cannot happen: leasehold.sql.IdempotencyKeys.",
        ),
        "how-to/idempotency-keys.md",
    ),
    "ResultNotKept": Explanation(
        "The work of this idempotency key is done, but its result was too large to be stored, or no JSON value.",
        ("Do not repeat the work: read its outcome where it was written.", "Return a smaller result, such as an id."),
        "how-to/idempotency-keys.md",
    ),
    "OutOfStock": Explanation(
        "Less of `item` is `available` than was `wanted`; nothing was taken.",
        ("Tell the customer, or reserve less.",),
        "how-to/sell-the-last-ticket.md",
    ),
    "ReservationRefused": Explanation(
        "There is no such reservation, or it is over; `state` says which.",
        ("Reserve again.",),
        "how-to/sell-the-last-ticket.md",
    ),
    "ReservationExpired": Explanation(
        "The time of the reservation is over, and what it held was given back.",
        ("Reserve again, and give the payment back if there is nothing left.",),
        "how-to/sell-the-last-ticket.md",
    ),
    "RetryTransaction": Explanation(
        "The database could not bring two transactions into an order (serialization failure, deadlock). The fence was "
        "not refused.",
        ("Roll back, and run the whole transaction again: retry_on_conflict does.",),
        "how-to/write-without-a-lock.md",
    ),
    "VersionConflict": Explanation(
        "The row does not have the version that the writer has seen; nothing was written. `current` is the row as it "
        "is now.",
        ("Read again, decide again, write again: retry_on_conflict does. Or show both versions to the user.",),
        "how-to/write-without-a-lock.md",
    ),
    "RowBusy": Explanation(
        "Another transaction has the row locked, and had it for as long as this one would wait.",
        ("Roll back and come back later, or answer 423.", "Look for a transaction that stays open too long."),
        "how-to/lock-rows.md",
    ),
    "UniqueConflict": Explanation(
        "`insert_once` wrote nothing: another unique constraint than that of its key forbids the new row.",
        ("Look at `constraint` and `columns`: the value belongs to another row.",),
        "how-to/lock-rows.md",
    ),
    "PreconditionError": Explanation(
        "The root of what an HTTP request asks for in If-Match or If-None-Match; `status` is what to answer.",
        ("Answer with `status`, and with `etag` if there is one.",),
        "how-to/write-without-a-lock.md",
    ),
    "PreconditionFailed": Explanation(
        "The resource is not what the caller has seen.",
        ("Answer 412, and let the caller read again.",),
        "how-to/write-without-a-lock.md",
    ),
    "PreconditionRequired": Explanation(
        "The caller did not say what it has seen.",
        ("Answer 428, and let the caller send If-Match.",),
        "how-to/write-without-a-lock.md",
    ),
    "PreconditionMalformed": Explanation(
        "The header is no list of entity tags.",
        ("Answer 400: to ignore it would be to write unconditionally.",),
        "how-to/write-without-a-lock.md",
    ),
    "BackendError": Explanation(
        "The root of what the store did not carry out.",
        ("Catch it where any trouble of the store has one answer, such as 503.",),
    ),
    "BackendUnavailable": Explanation(
        "The store could not be reached until the timeout was over, or was not ready to vote; nothing was changed. "
        "Also a ConnectionError. A call without a timeout gives up after 10 s if the store was never reached; once it "
        "has answered, such a call goes on trying.",
        (
            "Try again; nothing has happened.",
            "leasehold doctor URL says what is wrong. Look at host, port, firewall, TLS, and whether it runs.",
        ),
    ),
    "OutcomeUnknown": Explanation(
        "The request was sent, and no answer came, also not to asking again, if there was time for that: it may have "
        "been applied. What was asked for is withdrawn in the background as soon as the store answers, and does not "
        "outlive its ttl.",
        (
            "Treat the lock as not held, and try again.",
            "After an unanswered write of your own, read before you repeat it.",
        ),
        "adr/0005-unknown-outcome.md",
    ),
    "BackendRejected": Explanation(
        "The store answered and refused: password, rights, version, schema, or a key of another program.",
        ("Do not try again: the message says what to change.", "leasehold doctor URL looks for more of the kind."),
    ),
    "ClientClosed": Explanation(
        "The client was closed, before this call or while it waited. A RuntimeError and no BackendError, so that no "
        "loop tries it again.",
        ("Make a new client, or close it later: one client lives as long as the program.",),
    ),
    "UnsupportedCapability": Explanation(
        "The store never promised this: semaphores on Redlock, `once` on ZooKeeper.",
        ("Take a store that does, or another way: leasehold choose.",),
        "reference/capabilities.md",
    ),
    "ConfigurationError": Explanation(
        "A ttl, name, option or URL that cannot be used; raised before any I/O. Also a ValueError.",
        ("Correct what the message names; it never goes away by itself.",),
        "reference/options.md",
    ),
}
