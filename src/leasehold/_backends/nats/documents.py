"""The documents of the locks in a key-value bucket of JetStream, which is a stream with a subject for each key.

A document is the last message of its subject, and its version is the number of that message in the stream. A swap is a
message that the stream accepts only while that number is still the last one of the subject. Reads go to the leader of
the stream (`STREAM.MSG.GET`), never to a replica that may be behind (`DIRECT.GET`); together with the document, in the
same round trip, comes the leader's clock.

A deletion is a message like any other, with a mark in its headers; after that its message itself is removed.
"""

from __future__ import annotations

import base64
import json
import math
import re
import time
from calendar import timegm
from typing import TYPE_CHECKING, Any

from leasehold._backends.nats import errors
from leasehold._backends.nats.wire import Request, as_object
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leasehold._backends.nats.options import Options
    from leasehold._backends.nats.wire import Frame, Wire

__all__ = ["NatsDocuments", "instant"]

API = "$JS.API.STREAM"
DELETED = "KV-Operation: DEL\r\n"
ROOM_FOR_HEADERS = 256
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_ESCAPED = re.compile(rb"=([0-9A-F]{2})")
_UNSAFE = re.compile(rb"[^A-Za-z0-9_/-]")


class NatsDocuments:
    """One bucket; it is made by the first request that finds it missing."""

    def __init__(self, options: Options, wire: Wire) -> None:
        self._options = options
        self._label = options.label
        self._wire = wire
        self.stream = f"KV_{options.bucket}"
        self._subjects = f"$KV.{options.bucket}."
        self._announced = f"leasehold.{options.bucket}."  # where the bucket republishes its changes
        self._config: Any = None  # of the bucket, as it was checked last

    # --- the port of the kit

    async def load(self, key: str, until: float, /) -> tuple[bytes | None, int]:
        value, version, _ = await self.load_with_time(key, until)
        return value, version

    async def load_with_time(self, key: str, until: float, /) -> tuple[bytes | None, int, float]:
        last = json.dumps({"last_by_subj": self._subject(key)}).encode()
        requests = [Request(f"{API}.MSG.GET.{self.stream}", last), Request(f"{API}.INFO.{self.stream}")]
        message, info = await self._read(requests, until)
        if _missing(message) or _missing(info):
            await self._make_bucket(until)
            message, info = await self._read(requests, until)
        now = self._checked(info)
        if message.get("error", {}).get("err_code") == errors.NO_MESSAGE:
            return None, 0, now
        self._refuse_errors(message)
        stored = message["message"]
        is_deleted = b"KV-Operation" in base64.b64decode(stored.get("hdrs", ""))
        return None if is_deleted else base64.b64decode(stored.get("data", "")), int(stored["seq"]), now

    async def swap(self, key: str, value: bytes | None, seen: int, until: float, /) -> bool:
        mark = DELETED if value is None else ""
        request = Request(self._subject(key), value or b"", f"{EXPECTED}: {seen}\r\n{mark}")
        if len(request.body) + ROOM_FOR_HEADERS > self._wire.info.get("max_payload", math.inf):
            raise BackendRejected(
                f"{self._label}: a lock has more holders and waiters than fit into one message of NATS "
                f"({len(request.body)} bytes); raise max_payload of the servers, or let fewer wait",
                backend=self._label,
            )
        (frame,) = await self._wire.request([request], until)
        if frame.status:
            raise BackendUnavailable(
                f"{self._label}: nothing stores bucket {self._options.bucket!r} at the moment: it was deleted, or its "
                "servers have no leader; try again",
                backend=self._label,
            )
        answer = as_object(frame.body)
        if answer.get("error", {}).get("err_code") in errors.CONFLICTS:
            return False
        self._refuse_errors(answer)
        if "seq" not in answer:
            raise errors.lost(self._label, "the answer to a change cannot be read")
        if value is None:
            await self._remove(int(answer["seq"]), until)
        return True

    async def keys(self, prefix: str, /) -> Sequence[str]:
        subjects: dict[str, int] = {}
        while True:
            info = await self.info({"subjects_filter": f"{self._subjects}>", "offset": len(subjects)})
            page = info.get("state", {}).get("subjects") or {}
            subjects |= page
            if not page or len(subjects) >= info.get("total", 0):
                break
        keys = (_key(subject.removeprefix(self._subjects)) for subject in subjects)
        return [key for key in keys if key is not None and key.startswith(prefix)]

    async def now(self) -> float:
        return self._checked(await self.info({}))

    async def watch(self, key: str, changed: Callable[[], None], /) -> Callable[[], None]:
        return await self._wire.watch(self._announced + _token(key), changed)

    async def close(self) -> None:
        await self._wire.close()

    # --- the bucket

    async def info(self, filters: dict[str, Any]) -> dict[str, Any]:
        """What JetStream knows about the bucket; empty where there is none."""
        (info,) = await self._read([Request(f"{API}.INFO.{self.stream}", json.dumps(filters).encode())], math.inf)
        if _missing(info):
            return {}
        self._refuse_errors(info)
        return info

    async def _make_bucket(self, until: float) -> None:
        """Make it. Two clients may do so at once: the same again is no error, and what it became is checked."""
        body = json.dumps(bucket_config(self.stream, self._subjects, self._announced, self._options.replicas))
        (answer,) = await self._read([Request(f"{API}.CREATE.{self.stream}", body.encode())], until)
        if answer.get("error", {}).get("err_code") != errors.TAKEN_NAME:
            self._refuse_errors(answer)

    def _checked(self, info: dict[str, Any]) -> float:
        """The leader's clock; refuses a bucket in which locks would vanish."""
        self._refuse_errors(info)
        if "ts" not in info:
            if not info:
                raise BackendUnavailable(f"{self._label}: the bucket was just deleted; try again", backend=self._label)
            raise BackendRejected(
                f"{self._label} is too old: it gives no time; use nats-server 2.10 or newer", backend=self._label
            )
        config = info.get("config")
        if config != self._config:
            why = self.unfit(config or {})
            if why is not None:
                raise BackendRejected(
                    f"{self._label}: bucket {self._options.bucket!r} is not fit for locks: {why}; name another one "
                    "with ?bucket= and let leasehold make it",
                    backend=self._label,
                )
            self._config = config
        return instant(info["ts"])

    def unfit(self, config: dict[str, Any]) -> str | None:
        """Why a bucket that was made by other means cannot keep locks; None if it can."""
        if config.get("max_age"):
            return "its messages expire (max_age), and locks with them"
        if config.get("discard") != "new":
            return "it discards old messages when it is full (discard), and locks with them"
        if config.get("max_msgs_per_subject") != 1:
            return (
                "it keeps a history (max_msgs_per_subject must be 1), and a deletion would bring back an old document"
            )
        announced = (f"{self._subjects}>", f"{self._announced}>")
        republish = config.get("republish") or {}
        if (republish.get("src"), republish.get("dest")) != announced:
            return f"it does not announce changes (republish {announced[0]} to {announced[1]})"
        return None

    async def _remove(self, number: int, until: float) -> None:
        """Remove the mark of a deletion. It stays if the bucket denies that, or the answer gets lost."""
        body = json.dumps({"seq": number, "no_erase": True}).encode()
        try:
            await self._wire.request([Request(f"{API}.MSG.DELETE.{self.stream}", body)], until)
        except BackendError:
            return

    # --- requests

    async def _read(self, requests: Sequence[Request], until: float) -> list[dict[str, Any]]:
        """Answers of the API to requests that may be repeated: one without an answer did no harm."""
        try:
            frames = await self._wire.request(requests, until)
        except OutcomeUnknown as error:
            raise BackendUnavailable(
                f"{self._label} did not answer: the connection broke, or the bucket has no leader; nothing was "
                "changed, try again",
                backend=self._label,
            ) from error
        return [self._api_answer(frame) for frame in frames]

    def _api_answer(self, frame: Frame) -> dict[str, Any]:
        if frame.status and not self._wire.info.get("jetstream"):
            raise errors.not_enabled(self._label)
        if frame.status:
            raise BackendUnavailable(f"{self._label}: JetStream does not answer; try again", backend=self._label)
        return as_object(frame.body)

    def _refuse_errors(self, answer: dict[str, Any]) -> None:
        if "error" in answer:
            raise errors.from_api(answer["error"], self._label)

    def _subject(self, key: str) -> str:
        return self._subjects + _token(key)


def bucket_config(stream: str, subjects: str, announced: str, replicas: int) -> dict[str, Any]:
    """A key-value bucket without history.

    The numbers of its messages begin at the present microsecond. So a bucket that is deleted and made anew never uses a
    number again, and no client can take a document of the new one for the one that it has read from the old.
    """
    return {
        "name": stream,
        "subjects": [f"{subjects}>"],
        "max_msgs_per_subject": 1,
        "discard": "new",
        "storage": "file",
        "num_replicas": replicas,
        "first_seq": int(time.time() * 1e6),
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "republish": {"src": f"{subjects}>", "dest": f"{announced}>", "headers_only": True},
    }


def instant(text: str) -> float:
    """Seconds since 1970, from `2026-11-16T10:57:27.522304409Z`; always UTC."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{fraction or 0}")


def _missing(answer: dict[str, Any]) -> bool:
    return bool(answer.get("error", {}).get("err_code") == errors.NO_STREAM)


def _token(key: str) -> str:
    """A key as NATS allows it, readable where that is possible: `lock:report` is `lock=3Areport`."""
    return _UNSAFE.sub(lambda found: b"=%02X" % found[0][0], key.encode("utf-8", "surrogatepass")).decode("ascii")


def _key(token: str) -> str | None:
    """The opposite; None for a key that is not ours."""
    try:
        raw = _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), token.encode("ascii"))
        key = raw.decode("utf-8", "surrogatepass")
    except ValueError:
        return None
    return key if _token(key) == token else None
