"""How long a grant may be trusted, and when to renew it: arithmetic over instants of one clock.

The holder's clock and the store's clock may drift apart, so the holder stops a margin before the store does. Validity
counts from *before* the request was sent: the store cannot have started its own count earlier than that.
"""

from __future__ import annotations

from leasehold.spi import DRIFT

__all__ = ["believed_until", "hedge_after", "is_near", "margin", "renewal_due", "retry_due"]

DRIFT_FIXED = 0.005
RENEWALS_PER_TTL = 3
SOON = 0.1
SHORTEST_RETRY = 0.02
RETRIES_PER_TTL = 15  # while renewals fail or vanish: enough tries that a few lost packets do not cost the lease


def margin(ttl: float) -> float:
    """The part of a ttl that is given up to clock drift."""
    return ttl - believed_until(0.0, ttl)


def believed_until(since: float, ttl: float) -> float:
    """The instant from which the holder must not trust its grant any more."""
    return since + ttl - (ttl * DRIFT + DRIFT_FIXED)


def is_near(asked: float, given: float) -> bool:
    """Whether the ttl of a grant is that of its claim, within the margin for drift and rounding."""
    return abs(given - asked) <= margin(asked)


def renewal_due(since: float, granted: float, wanted: float) -> float:
    """When to renew a grant: after a third of its ttl, or soon if the store granted less than was wanted.

    Soon and not at once: a lock that is handed from one to the next is mostly released before that, and a renewal of
    every grant would be one more write to a name that all want to write to.
    """
    usual = since + granted / RENEWALS_PER_TTL
    return min(usual, since + SOON) if granted < wanted else usual


def retry_due(now: float, ttl: float) -> float:
    """When to try again after a renewal that failed."""
    return now + _between_tries(ttl)


def hedge_after(ttl: float, usual: float) -> float:
    """After how long without an answer to send another renewal beside the one that is under way.

    As often as failed ones are tried again; but a store that is only slow, and usually answers after so long, gets
    twice that time, up to a third of the ttl: its answers are of use, and more requests would make it slower.
    """
    return max(_between_tries(ttl), min(2 * usual, ttl / RENEWALS_PER_TTL))


def _between_tries(ttl: float) -> float:
    return max(SHORTEST_RETRY, ttl / RETRIES_PER_TTL)
