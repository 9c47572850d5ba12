"""Many commands for one server of Redis are sent in parts: what is known of each part, when a later one fails."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from leasehold._backends.redis.asyncio_wire import PART, AsyncioRequest
from leasehold.errors import BackendUnavailable, OutcomeUnknown


@pytest.mark.parametrize("error", [BackendUnavailable("away"), OutcomeUnknown("no answer")])
@pytest.mark.parametrize(
    ("commands", "failing", "known"),
    [
        (1, None, 1),
        (PART, None, PART),
        (PART + 1, None, PART + 1),
        (2 * PART + 1, 1, PART),
        (2 * PART + 1, 2, 2 * PART),
        (3 * PART, 1, PART),
        (PART + 1, 0, None),
        (1, 0, None),
    ],
)
def test_what_the_earlier_parts_were_answered_stays_known_when_a_later_one_fails(
    commands: int, failing: int | None, known: int | None, error: Exception
) -> None:
    sent: list[int] = []

    class Wire:
        async def ask_part(self, _: object, payload: bytes, count: int, *__: object) -> list[int]:
            assert len(payload) == count <= PART
            sent.append(count)
            if len(sent) - 1 == failing:
                raise error
            return list(range(count))

    wire: Any = Wire()
    node: Any = None
    request = AsyncioRequest(wire, node, [b"x"] * commands, 1.0, math.inf)
    if known is None:
        with pytest.raises(type(error)):
            asyncio.run(request.perform())
        return
    replies = asyncio.run(request.perform())
    assert len(replies) == commands, "an answer for each command"
    assert [reply is error for reply in replies] == [False] * known + [True] * (commands - known)
