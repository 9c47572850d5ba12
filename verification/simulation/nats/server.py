"""A NATS server with JetStream, as much of it as a bucket of documents needs: one stream, a message for each subject.

It knows what a server does with one request. It does not know how requests arrive (`wire` does) nor what they mean for
locks. Its faults are asked for by name: it is restarted, and may then have lost what it had not acknowledged yet; its
bucket is deleted; it stands still.
"""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leasehold._backends.nats.wire import Frame, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.simulation.world import World

__all__ = ["EPOCH", "SimNats", "Write"]

EPOCH = 1_600_000_000
API = "$JS.API.STREAM."
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
NO_MESSAGE, NO_STREAM, WRONG_SEQUENCE = 10037, 10059, 10071


@dataclass(slots=True)
class Message:
    """The last message of a subject."""

    number: int
    body: bytes
    headers: str


@dataclass(slots=True)
class Write:
    """One change, so that a restart can take it back."""

    subject: str
    before: Message | None
    is_acknowledged: bool = False


class SimNats:
    """One server, and at most one stream on it."""

    def __init__(self, world: World, *, rate: float = 1.0) -> None:
        self.world = world
        self.is_down = False
        self.stalled_until = 0.0
        self.life = 0  # requests of an earlier life get no answer
        self.messages: dict[str, Message] = {}
        self.config: dict[str, Any] | None = None
        self.on_change: Callable[[str], None] | None = None
        self.watches: dict[int, tuple[str, Callable[[], None]]] = {}
        self.writes: list[Write] = []
        self._rate = rate
        self._last = 0

    def now(self) -> float:
        """What its clock shows."""
        return EPOCH + self.world.now * self._rate

    # --- faults

    def restart(self, lost: int = 0) -> None:
        """The process is started again, without up to so many of the last writes, none of them acknowledged."""
        self.life += 1
        self.is_down = False
        self.watches.clear()
        while lost > 0 and self.writes and not self.writes[-1].is_acknowledged:
            lost -= 1
            write = self.writes.pop()
            self._put(write.subject, write.before)
        self.writes.clear()

    def delete_bucket(self) -> None:
        """Somebody deletes the stream with all its messages, and what is under way to it."""
        self.life += 1
        subjects = list(self.messages)
        self.messages.clear()
        self.writes.clear()
        self.config = None
        for subject in subjects:
            self._tell(subject)

    # --- requests

    def answer(self, request: Request) -> Frame:
        """One request."""
        if request.subject.startswith(API):
            verb, _, stream = request.subject.removeprefix(API).rpartition(".")
            body = json.loads(request.body) if request.body else {}
            return Frame("MSG", body=json.dumps(self._api(verb, stream, body)).encode())
        return self._publish(request)

    def _api(self, verb: str, stream: str, body: dict[str, Any]) -> dict[str, Any]:
        if verb == "CREATE":
            if self.config is None:
                self.config = body
                self._last = max(self._last, int(self.now() * 1e6) - 1)
            return self._info({})
        if self.config is None or self.config["name"] != stream:
            return _error(NO_STREAM, "stream not found", 404)
        if verb == "INFO":
            return self._info(body)
        if verb == "MSG.GET":
            message = self.messages.get(body["last_by_subj"])
            return _error(NO_MESSAGE, "no message found", 404) if message is None else _stored(message)
        if verb == "MSG.DELETE":
            for subject, message in list(self.messages.items()):
                if message.number == body["seq"]:
                    del self.messages[subject]
                    return {"success": True}
            return _error(10043, "message not found", 400)
        raise AssertionError(f"the simulated server does not know {verb}")

    def _info(self, filters: dict[str, Any]) -> dict[str, Any]:
        state: dict[str, Any] = {}
        if "subjects_filter" in filters:
            names = sorted(self.messages)[filters.get("offset", 0) :]
            state = {"subjects": dict.fromkeys(names, 1)}
        seconds = self.now()
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        return {
            "config": self.config,
            "state": state,
            "total": len(self.messages),
            "ts": f"{whole}.{round(seconds % 1 * 1e9) % 10**9:09d}Z",
        }

    def _publish(self, request: Request) -> Frame:
        if self.config is None:
            return Frame("MSG", status=503)
        headers = dict(line.split(": ", 1) for line in request.headers.split("\r\n") if line)
        present = self.messages.get(request.subject)
        if EXPECTED in headers and int(headers[EXPECTED]) != (0 if present is None else present.number):
            what = f"wrong last sequence: {0 if present is None else present.number}"
            return Frame("MSG", body=json.dumps(_error(WRONG_SEQUENCE, what, 400)).encode())
        self._last += 1
        marked = request.headers if "KV-Operation" in headers else ""
        self.writes.append(Write(request.subject, present))
        self._put(request.subject, Message(self._last, request.body, marked))
        return Frame("MSG", body=json.dumps({"stream": self.config["name"], "seq": self._last}).encode())

    def _put(self, subject: str, message: Message | None) -> None:
        if message is None:
            self.messages.pop(subject, None)
        else:
            self.messages[subject] = message
        self._tell(subject)

    def _tell(self, subject: str) -> None:
        for watched, changed in list(self.watches.values()):
            if watched == subject:
                changed()
        if self.on_change is not None:
            self.on_change(subject)


def _stored(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"seq": message.number, "data": base64.b64encode(message.body).decode()}
    if message.headers:
        fields["hdrs"] = base64.b64encode(f"NATS/1.0\r\n{message.headers}\r\n".encode()).decode()
    return {"message": fields}


def _error(number: int, text: str, code: int) -> dict[str, Any]:
    return {"error": {"code": code, "err_code": number, "description": text}}
