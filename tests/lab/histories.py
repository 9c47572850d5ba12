"""Histories for the checkers, written by hand: one word per event, one client per number."""

from __future__ import annotations

from verification.lab.history import Event, Kind

__all__ = ["TTL", "grant", "history", "release"]

TTL = 1.0


def history(*parts: Event | list[Event]) -> list[Event]:
    """All of them, in the order of time."""
    events: list[Event] = []
    for part in parts:
        events.extend([part] if isinstance(part, Event) else part)
    return sorted(events, key=lambda event: event.t)


def grant(client: int, asked: float, granted: float, *, fence: int | None, until: float, call: int = 1) -> list[Event]:
    """A call that returned a grant, believed in until an instant."""
    return [
        Event(asked, client, Kind.ACQUIRE, call),
        Event(granted, client, Kind.GRANTED, call, fence=fence, until=until),
    ]


def release(client: int, begun: float, answered: float, *, freed: bool = True, call: int = 1) -> list[Event]:
    """A call that gave it back."""
    return [
        Event(begun, client, Kind.RELEASE, call),
        Event(answered, client, Kind.RELEASED, call, detail="yes" if freed else "no"),
    ]
