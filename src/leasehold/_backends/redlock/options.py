"""The options of a Redlock URL: those of the store, TLS, and those that are passed on to redis-py's connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.options import PASSED_ON, PASSED_ON_TLS, TLS
from leasehold._backends.redis.options import RENAMED as RENAMED_IN_REDIS
from leasehold.kit.options import TLS_OPTIONS, Option, duration, read_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leasehold.kit.options import Values

__all__ = ["OPTIONS", "RENAMED", "STORE", "Options"]

MAX_TTL = duration(
    "max_ttl",
    30.0,
    "the longest ttl that any client may use, the same for all clients; a node that may have lost its data has no "
    "vote for so long, and 4 s more",
    least=0.001,
    most=86_400.0,
)
ANSWER_TIMEOUT = duration(
    "answer_timeout", 0.05, "how long one round waits for the answers of the nodes", least=0.001, most=10.0
)
STORE: tuple[Option[Any], ...] = (MAX_TTL, ANSWER_TIMEOUT)
OPTIONS = (*STORE, TLS, *TLS_OPTIONS, *PASSED_ON, *PASSED_ON_TLS)
RENAMED = {**RENAMED_IN_REDIS, "node_timeout": "answer_timeout"}


@dataclass(frozen=True, slots=True)
class Options:
    """How the store behaves; the meaning of each is in `STORE`."""

    max_ttl: float = 30.0
    answer_timeout: float = 0.05

    @classmethod
    def of(cls, values: Values) -> Options:
        """From the values of a URL."""
        return cls(max_ttl=values[MAX_TTL], answer_timeout=values[ANSWER_TIMEOUT])

    @classmethod
    def read(cls, given: Mapping[str, str], owner: str) -> Options:
        """From options that go with clients of the user's own, which have their own TLS and credentials."""
        return cls.of(read_options(given, STORE, owner, RENAMED))
