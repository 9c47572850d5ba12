"""What a viewer with the role `write` may order: one way for forms and for the JSON interface.

An order passes the role, the token and its fields, is written into the audit, carried out through the same public
calls as the command line's, and written down again with its outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leasehold._shown import printable
from leasehold.errors import BackendError, ConfigurationError, LeaseholdError
from leasehold.web.protection import viewer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from leasehold.web.board import Board
    from leasehold.web.source import Source

__all__ = ["ACTIONS", "Action", "Outcome", "perform"]

PATIENCE = 15.0
LONGEST_NAME = 200  # characters of a viewer's name that the store keeps with an order

Order = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an order; `status` is that of HTTP."""

    status: int
    done: bool
    message: str


@dataclass(frozen=True, slots=True)
class Action:
    """One kind of order. `fields` have a sentence each; those in `optional` may be missing."""

    name: str
    summary: str
    fields: Mapping[str, str]
    run: Callable[[Any, Order, str], bool]  # of the source, or of the database of the queues
    done: str
    nothing: str
    page: str  # where the viewer is sent afterwards
    optional: frozenset[str] = frozenset()


async def perform(board: Board, request: Request, action: Action, given: Mapping[str, Any], token: str) -> Outcome:
    """Carry an order out, or say why not."""
    viewer = viewer_of(request)
    order = {field: given.get(field) for field in action.fields}
    facts = _facts(request, action, order)
    if not viewer.may_write:
        board.audit.write(**facts, outcome="refused", detail="read-only")
        return Outcome(
            403, done=False, message=f"{viewer.name} may look, and change nothing here: the role is read-only."
        )
    if not board.tokens.is_right(request, token):
        board.audit.write(**facts, outcome="refused", detail="no token of this browser")
        return Outcome(
            403, done=False, message="This page is too old, or was not opened in this browser. Reload it and try again."
        )
    wrong = _wrong_field(action, order)
    if wrong is not None:
        return Outcome(422, done=False, message=wrong)
    try:
        board.audit.write(**facts, outcome="ordered")
    except OSError as error:
        return Outcome(
            500, done=False, message=f"Nothing was done: the audit file cannot be written ({error.strerror})."
        )
    by = f"{viewer.name[:LONGEST_NAME]} (dashboard)"
    try:
        done = await _carry_out(board.source, action, order, by)
    except LeaseholdError as error:
        board.audit.write(**facts, outcome="failed", detail=str(error))
        return Outcome(_status(error), done=False, message=str(error))
    finally:
        board.source.forget_answers()
    board.audit.write(**facts, outcome="done" if done else "nothing to do")
    return Outcome(200, done=done, message=action.done if done else action.nothing)


async def _carry_out(source: Source, action: Action, order: Order, by: str) -> bool:
    if action.page == "queue":
        return await source.with_database(lambda database: action.run(database, order, by))
    return await source.ask(lambda: action.run(source, order, by), PATIENCE)


def _facts(request: Request, action: Action, order: Order) -> dict[str, Any]:
    target = order.get("name") or f"job {order.get('job')} of {order.get('queue')}"
    return {
        "viewer": viewer_of(request).name,
        "address": request.client.host if request.client else "unknown",
        "action": action.name,
        "target": str(target),
        "reason": str(order.get("reason") or ""),
        "fence": _whole(order.get("fence")),
    }


def _status(error: LeaseholdError) -> int:
    return 503 if isinstance(error, BackendError) else 422 if isinstance(error, ConfigurationError) else 409


def _wrong_field(action: Action, order: Order) -> str | None:
    """What is wrong with the fields, as a sentence."""
    for field, meaning in action.fields.items():
        value = order[field]
        if field not in action.optional and (value is None or not str(value).strip()):
            return f"Missing: {field}, {meaning}."
    for field in ("fence", "job"):
        if field in action.fields and _whole(order[field]) is None:
            return f"{field} must be a whole number."
    name = str(order.get("name", ""))
    if "confirm" in action.fields and str(order["confirm"]).strip() not in (name.strip(), printable(name).strip()):
        return "The name that was typed is another one; nothing was done."
    return None


def _whole(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _break(source: Source, order: Order, by: str) -> bool:
    fence = _whole(order["fence"]) or 0
    return source.client.break_lock(
        str(order["name"]), fence=fence, reason=str(order["reason"]), by=by, now=bool(order["now"])
    )


def _pause(source: Source, order: Order, by: str) -> bool:
    duration = str(order["duration"] or "").strip() or None
    source.client.pause(str(order["name"]), reason=str(order["reason"]), by=by, duration=duration)
    return True


def _resume(source: Source, order: Order, by: str) -> bool:
    return source.client.resume(str(order["name"]), by=by)


def _forget(source: Source, order: Order, by: str) -> bool:
    return source.client.forget(str(order["name"]), slot=str(order["slot"]), reason=str(order["reason"]), by=by)


def _retry(database: Any, order: Order, _: str) -> bool:
    from leasehold.sql import Queue  # noqa: PLC0415 - only for users of queues

    return Queue(str(order["queue"])).retry_dead(database, _whole(order["job"])) > 0


def _delete(database: Any, order: Order, _: str) -> bool:
    from leasehold.sql import Queue  # noqa: PLC0415

    return Queue(str(order["queue"])).purge(database, _whole(order["job"]), dead=True) > 0


_NAME = "the name of the lock"
_WHY = "why; it is kept and shown"

ACTIONS = {
    action.name: action
    for action in (
        Action(
            "break",
            "End the grant with this fence. Its holder may still be running.",
            {"name": _NAME, "fence": "the fence of the grant", "confirm": "the name once more, typed",
             "reason": _WHY, "now": "1: let the next holder in before the ttl of the broken lease is over"},
            _break,
            "Broken. The holder learns of it with its next renewal, and may be running until then.",
            "Nothing was broken: the lock is not held with this fence any more.",
            "lock",
            frozenset({"now"}),
        ),
        Action(
            "pause",
            "Grant the name no more from now on; its holder keeps it.",
            {"name": _NAME, "reason": _WHY, "duration": "for how long, such as 2h; without it until resumed"},
            _pause,
            "Paused: it is not granted now.",
            "It was not paused.",
            "lock",
            frozenset({"duration"}),
        ),
        Action(
            "resume",
            "End the pause of a name.",
            {"name": _NAME},
            _resume,
            "Resumed: the next waiter gets it.",
            "It was not paused.",
            "lock",
        ),
        Action(
            "forget",
            "Drop the record of a slot of a job, so that the slot can run again.",
            {"name": "the job", "slot": "the slot", "reason": _WHY},
            _forget,
            "Forgotten: the slot can run again.",
            "There is no run of this slot to forget.",
            "lock",
        ),
        Action(
            "retry",
            "Make a dead job of a queue ready again.",
            {"queue": "the queue", "job": "the number of the job"},
            _retry,
            "The job is ready again.",
            "There is no such dead job any more.",
            "queue",
        ),
        Action(
            "delete",
            "Remove a dead job of a queue.",
            {"queue": "the queue", "job": "the number of the job", "reason": _WHY},
            _delete,
            "The job was removed.",
            "There is no such dead job any more.",
            "queue",
        ),
    )
}  # fmt: skip
