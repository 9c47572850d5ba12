"""How long a session may be believed without an answer: arithmetic over instants of the caller's clock.

The ensemble ends a session that its leader has not heard of for the session timeout T. A server answers pings and
reads by itself, also while it is cut off from the leader, so only what passes the leader counts here: writes, and
`sync`. Even such an answer does not move the leader's own deadline: a follower reports which sessions it heard of only
with the leader's next ping. What is sure is this: the last report that reached the leader counted something that we
sent not longer than T/4 before, as long as we send something that often. So the leader waits until at least T after
that, and the session is believed for two thirds of T after the send of the last answer. What is left over, a twelfth of
T, is more than the half tick between two reports as soon as T is six ticks long.

When nothing was sent for longer than T/4 (the process was paused), the belief counts from what was sent before.
"""

from __future__ import annotations

import math

__all__ = ["Belief", "session_timeout"]

BELIEVED = 2 / 3
PROBE_EVERY = 1 / 4


def session_timeout(ttl: float) -> float:
    """The session timeout to ask for, so that a grant can be believed for its whole ttl; in whole milliseconds."""
    return math.ceil(round(ttl / BELIEVED * 1000, 6)) / 1000


class Belief:
    """Until when the session is believed to live. Written by the thread that reads answers, read by everybody."""

    __slots__ = ("timeout", "touched", "until")

    def __init__(self, timeout: float, opened: float) -> None:
        self.timeout = timeout
        self.touched = opened  # the latest send that the leader has surely counted, or will with the next report
        self.until = opened

    @property
    def ttl(self) -> float:
        """How long a grant is believed after the send of what confirmed it."""
        return round(self.timeout * BELIEVED, 6)

    def next_probe(self) -> float:
        """When something has to be sent at the latest."""
        return self.touched + self.timeout * PROBE_EVERY

    def answered(self, sent: float) -> None:
        """The leader has answered what was sent at this instant."""
        self.until = max(self.until, min(sent, self.next_probe()) + self.ttl)
        self.touched = max(self.touched, sent)

    def reconnected(self, since: float) -> None:
        """The leader took the session over to another connection; that was asked for after `since`."""
        self.touched = max(self.touched, since)
