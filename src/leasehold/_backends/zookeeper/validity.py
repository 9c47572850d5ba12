"""How long a session proves its grants without a further answer: arithmetic over instants of the caller's clock.

The ensemble ends a session that its leader has not seen for the session timeout T. A server answers pings and reads
alone, also while it is cut off from the leader, so only requests that pass the leader count here: writes, and `sync`.
Even their answers do not move the leader's own deadline: a follower reports the sessions that it has seen only with the
leader's next ping. As long as something is sent at least every T/4, the last report that reached the leader included a
request that was sent at most T/4 before. The leader therefore keeps the session until at least T after that, and a
grant is valid for two thirds of T after the send of the last answered request. The rest, a twelfth of T, is more than
the half tick between two reports as soon as T is six ticks long.

After a gap of more than T/4 between two sends (the process was paused), validity counts from the send before the gap,
until a request is answered that was sent T/12 after the first one behind it: that one may not be reported before.
"""

from __future__ import annotations

import math

__all__ = ["VALID_PART", "Validity", "session_timeout"]

VALID_PART = 2 / 3
PROBE_EVERY = 1 / 4
REPORTED_AFTER = 1 / 12  # of the timeout: as long as half a tick at least
COUNTED_FOR = 0.33  # of the timeout, and with the ttl less than all of it, by what clocks may differ


def session_timeout(ttl: float) -> float:
    """The session timeout to request, so that a grant is valid for its whole ttl; in whole milliseconds."""
    return math.ceil(round(ttl / VALID_PART * 1000, 6)) / 1000


class Validity:
    """Until when grants of one session are valid. Written by the thread that reads answers, read by every thread."""

    __slots__ = ("_counted", "_next", "timeout", "touched", "ttl", "until")

    def __init__(self, timeout: float, opened: float) -> None:
        self.touched = opened  # the latest send that was answered; the leader counts it with the next report
        self._counted = self._next = opened  # a send that the leader has counted, and the one that it counts next
        self.until = opened
        self.negotiated(timeout)

    def negotiated(self, timeout: float) -> None:
        """The server that the session is connected to grants this session timeout."""
        self.timeout = timeout
        self.ttl = round(timeout * VALID_PART, 6)  # how long a grant is valid after the send that confirmed it

    def next_probe(self) -> float:
        """When the next request that passes the leader has to be sent at the latest."""
        if self._counted + self.timeout * COUNTED_FOR < self.touched:  # after a gap, which only another answer closes
            return self.touched + self.timeout * REPORTED_AFTER
        return self.touched + self.timeout * PROBE_EVERY

    def answered(self, sent: float) -> None:
        """The leader has answered a request that was sent at this instant."""
        reported = sent - self.timeout * REPORTED_AFTER
        if self.touched <= reported:
            self._counted = self._next = self.touched
        elif self._next <= reported:
            self._counted, self._next = self._next, self.touched
        self.until = max(self.until, min(sent, self._counted + self.timeout * COUNTED_FOR) + self.ttl)
        self.touched = max(self.touched, sent)

    def reconnected(self, since: float) -> None:
        """The leader moved the session to another connection, on a request that was sent after `since`."""
        self.touched = max(self.touched, since)
        self._counted = self._next = self.touched
