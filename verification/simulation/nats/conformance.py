"""The simulated bucket against a real nats-server: the requests that the store makes, drawn at random."""

from __future__ import annotations

import json
import math
import random
from typing import TYPE_CHECKING, Any

from leasehold._backends.nats.blocking_wire import BlockingWire
from leasehold._backends.nats.documents import API, DELETED, EXPECTED, bucket_config
from leasehold._backends.nats.options import Options
from leasehold._backends.nats.wire import Request
from leasehold._runtimes.threads import ThreadRuntime, run
from verification.lab.nats import NatsServer
from verification.simulation.nats.server import SimNats
from verification.simulation.world import World

if TYPE_CHECKING:
    from leasehold._backends.nats.wire import Frame

__all__ = ["Twins", "against", "real_server"]

BUCKET = "conformance"
STREAM = f"KV_{BUCKET}"
SUBJECTS = [f"$KV.{BUCKET}.{number}" for number in range(6)]
SKIPPED = ("ts", "created", "type", "cluster", "limit", "offset")


def real_server() -> NatsServer:
    """One of its own."""
    return NatsServer("conformance")


class Twins:
    """A real server, a simulated one, and the numbers of messages that were seen."""

    def __init__(self, server: NatsServer, seed: int) -> None:
        self._random = random.Random(seed)
        options = Options((("127.0.0.1", server.port),), server.url, BUCKET)
        self._wire = BlockingWire(options, ThreadRuntime())
        self._twin = SimNats(World(0))
        config = bucket_config(STREAM, f"$KV.{BUCKET}.", f"leasehold.{BUCKET}.", 1)
        self._create = Request(f"{API}.CREATE.{STREAM}", json.dumps(config).encode())
        self._ask_real(self._create)
        self._twin.answer(self._create)
        self._twin._last = config["first_seq"] - 1
        self._seen = [0]

    def one(self) -> tuple[Any, Any, Any]:
        """See `Comparison`."""
        request = self._draw()
        real, twin = self._ask_real(request), _plain(request, self._twin.answer(request))
        if isinstance(real, dict) and "seq" in real:
            self._seen = [*self._seen[-5:], real["seq"]]
        return request, real, twin

    def close(self) -> None:
        """See `Comparison`."""
        run(self._wire.close())

    def _ask_real(self, request: Request) -> Any:
        (frame,) = run(self._wire.request([request], math.inf))
        return _plain(request, frame)

    def _draw(self) -> Request:
        draw = self._random
        chance, subject = draw.random(), draw.choice(SUBJECTS)
        if chance < 0.55:
            present = self._twin.messages.get(subject)
            number = 0 if present is None else present.number
            expected = number if draw.random() < 0.75 else draw.choice(self._seen)
            is_deletion = draw.random() < 0.2
            body = b"" if is_deletion else b"%d" % draw.randrange(100)
            return Request(subject, body, f"{EXPECTED}: {expected}\r\n{DELETED if is_deletion else ''}")
        if chance < 0.8:
            return Request(f"{API}.MSG.GET.{STREAM}", json.dumps({"last_by_subj": subject}).encode())
        if chance < 0.88:
            body = json.dumps({"seq": draw.choice(self._seen), "no_erase": True}).encode()
            return Request(f"{API}.MSG.DELETE.{STREAM}", body)
        if chance < 0.9:
            return Request(f"{API}.INFO.KV_another")
        filters = {"subjects_filter": f"$KV.{BUCKET}.>", "offset": 0}
        return Request(f"{API}.INFO.{STREAM}", json.dumps(filters).encode())


def against(server: NatsServer, seed: int) -> Twins:
    """The comparison with this server."""
    return Twins(server, seed)


def _plain(request: Request, frame: Frame) -> Any:
    """What the store looks at: of errors the number, of the stream its subjects, of a message all but its time."""
    if frame.status:
        return frame.status
    answer = json.loads(frame.body)
    if "error" in answer:  # why a message cannot be removed is all the same to the store
        return "refused" if ".MSG.DELETE." in request.subject else answer["error"]["err_code"]
    if ".INFO." in request.subject or ".CREATE." in request.subject:
        return sorted((answer["state"].get("subjects") or {}).items()), "ts" in answer
    if "message" in answer:
        stored = answer["message"]
        return stored["seq"], stored.get("data", ""), "hdrs" in stored and "KV-Operation" in _text(stored["hdrs"])
    return {name: value for name, value in answer.items() if name in ("seq", "success", "stream")}


def _text(headers: str) -> str:
    import base64  # noqa: PLC0415 - here only

    return base64.b64decode(headers).decode()
