"""Whether the simulated server does what real ones do: the same random calls of the shipped scripts on both.

    python -m verification.simulation.redis.conformance --operations 100000
    python -m verification.simulation.redis.conformance --operations 100000 --server valkey

The real server says at which microsecond it ran each script; the simulated one runs it at that very time. So replies
must be equal to the last digit, fences and times included. Only this is allowed for: a real server looks at its clock
several times while a script runs, so a time that is left may differ by two milliseconds; and within three milliseconds
of the end of something, or when the server was interrupted within the script, nobody can say on which side of the end
it was: there the two are not compared, and the name is given up.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.scripts import script
from verification.lab.redis import RedisServer, valkey_program
from verification.lab.resp import ErrorReply
from verification.simulation.redis.calls import Call, Calls
from verification.simulation.redis.database import CommandError
from verification.simulation.redis.server import SimRedis
from verification.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TOLD", "Report", "Twin", "compare"]

UNSURE_MS = 3  # so near to the end of something it is not compared
LOOKS_MS = 2  # what two looks at the clock of a server that is not interrupted can differ by
STATE_EVERY = 25  # operations

# The shipped text inside a function, with an ear at TIME: the server tells at which time the script believed to be.
TOLD = b"""
local server, began, seen = redis, redis.call('TIME'), nil
local redis = {pcall = server.pcall}
redis.call = function(name, ...)
  local reply = server.call(name, ...)
  if name == 'TIME' then seen = reply end
  return reply
end
local reply = (function()
%b
end)()
local ended = server.call('TIME')
seen = seen or ended
local took = (ended[1] - began[1]) * 1000000 + ended[2] - began[2]
return {seen[1], seen[2], took, reply}
"""


@dataclass(slots=True)
class Report:
    """What came out."""

    operations: int = 0
    compared: int = 0
    messages: int = 0
    unsure: int = 0
    differences: list[str] = field(default_factory=list)


class _Ear:
    """A connection of the simulated server that hears messages."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def hear(self, message: list[Any]) -> None:
        self.heard.append(message[2])

    def hang_up(self, *, in_silence: bool) -> None:
        """It never happens here."""


class Twin(SimRedis):
    """The simulated server, at the time that the real one says."""

    def __init__(self) -> None:
        self.at_us = 0
        super().__init__(World(0))
        self.ear = _Ear()

    @property
    def now_us(self) -> int:
        return self.at_us


class _Comparison:
    """One real server, one simulated one, one stream of calls."""

    def __init__(self, server: RedisServer, seed: int) -> None:
        self.report = Report()
        self._random = random.Random(seed)
        self._calls = Calls(self._random)
        self._real = server.connect()
        self._listener = server.connect()
        self._listener.ask("SUBSCRIBE", "alive")
        self._twin = Twin()
        self._twin.execute(self._twin.ear, 1, [b"SUBSCRIBE", b"alive"])
        self._digests: dict[str, bytes] = {}
        self._interrupted = False
        self._was_unsure = False  # since the messages were compared last

    def close(self) -> None:
        self._real.close()
        self._listener.close()

    def run(self, operations: int) -> None:
        for number in range(operations):
            if self._random.random() < 0.06:
                time.sleep(self._random.random() * 0.03)
            self._one(self._calls.draw())
            if number % STATE_EVERY == 0:
                self._compare_state()
                self._compare_messages()
        self._compare_messages()

    def _one(self, call: Call) -> None:
        self.report.operations += 1
        self._avoid_ends(call)
        moments = self._ends(call.keys)
        real = self._ask_real(call)
        twin = self._ask_twin(call)
        self._calls.learn(call, real)
        if self._interrupted or self._is_unsure(moments):
            self.report.unsure += 1
            self._was_unsure = True
            self._calls.give_up(call)
            return
        self.report.compared += 1
        if not _same(call.script, real, twin):
            self._differ(call, f"{call.arguments}: {real} but {twin}")

    def _differ(self, call: Call, what: str) -> None:
        self.report.differences.append(f"{self.report.operations}: {call.script} {call.keys[0]!r} {what}")
        self._calls.give_up(call)

    # --- both servers

    def _ask_real(self, call: Call) -> Any:
        digest = self._digests.get(call.script)
        if digest is None:
            digest = self._digests[call.script] = self._real.ask("SCRIPT", "LOAD", TOLD % script(call.script).text)
        try:
            answer = self._real.ask("EVALSHA", digest, len(call.keys), *call.keys, *call.arguments)
        except ErrorReply as error:
            seconds, micros = self._real.ask("TIME")
            answer = [seconds, micros, 0, CommandError(str(error))]
        self._twin.at_us = int(answer[0]) * 1_000_000 + int(answer[1])
        self._interrupted = answer[2] > 1000
        return answer[3] if len(answer) > 3 else None

    def _time(self) -> int:
        """Milliseconds on the real server's clock, and from now on on the other's."""
        seconds, micros = self._real.ask("TIME")
        self._twin.at_us = int(seconds) * 1_000_000 + int(micros)
        return self._twin.at_us // 1000

    def _ask_twin(self, call: Call) -> Any:
        words = [b"EVAL", script(call.script).text, b"%d" % len(call.keys), *call.keys, *call.arguments]
        return self._twin.execute(self._twin.ear, 1, words)

    # --- times at which something ends

    def _ends(self, keys: Sequence[bytes]) -> list[int]:
        """The milliseconds at which something under these keys ends, as the simulated server has it."""
        database = self._twin.database
        moments = [end for key in keys if (end := database.ends(key)) is not None]
        if len(keys) > 1:
            scores = database.run([b"ZRANGE", keys[4], b"0", b"-1", b"WITHSCORES"])[1::2]
            owners = database.run([b"ZRANGE", keys[2], b"0", b"-1"])
            places = [database.run([b"HGET", keys[3], owner + b":e"]) for owner in owners]
            windows = [database.run([b"HGET", keys[3], owner + b":w"]) for owner in owners]
            moments += [int(moment) for moment in [*scores, *places] if moment is not None]
            moments += [int(end) - int(window) for end, window in zip(places, windows, strict=True) if end and window]
            since, min_hold = database.run([b"HMGET", keys[1], b"t", b"m"])
            if since is not None:
                moments.append(int(since) // 1000 + int(min_hold))
        return moments

    def _avoid_ends(self, call: Call) -> None:
        """Wait until nothing is about to end."""
        for _ in range(20):
            now = time.time() * 1000
            near = [moment for moment in self._ends(call.keys) if -UNSURE_MS - 1 < moment - now < UNSURE_MS + 2]
            if not near:
                return
            time.sleep((max(near) - now + UNSURE_MS + 1.5) / 1000)

    def _is_unsure(self, moments: Sequence[int]) -> bool:
        now = self._twin.at_us // 1000
        return any(abs(moment - now) <= UNSURE_MS for moment in moments)

    # --- beside the replies

    def _compare_state(self) -> None:
        """All keys of one name, as they are."""
        call = self._calls.draw()
        self._avoid_ends(call)
        moments = self._ends(call.keys)
        began = self._time()
        states = [_state_of(key, self._real.ask) for key in call.keys]
        ended = self._time()
        if any(began - UNSURE_MS <= moment <= ended + UNSURE_MS for moment in moments):
            self.report.unsure += 1
            return
        for key, real in zip(call.keys, states, strict=True):
            twin = _state_of(key, self._twin_ask)
            if real != twin:
                self._differ(call, f"{key!r}: {real} but {twin}")

    def _twin_ask(self, *words: bytes) -> Any:
        reply = self._twin.execute(self._twin.ear, 1, list(words))
        if isinstance(reply, CommandError):
            raise ErrorReply(str(reply))
        return reply

    def _compare_messages(self) -> None:
        self._listener.send("PING")
        heard: list[bytes] = []
        while (message := self._listener.receive())[0] != b"pong":
            heard.append(message[2])
        expected, self._twin.ear.heard = self._twin.ear.heard, []
        self.report.messages += len(heard)
        if heard != expected and not self._was_unsure:
            self.report.differences.append(f"{self.report.operations}: messages {heard} but {expected}")
        self._was_unsure = False


def _state_of(key: bytes, ask: Any) -> Any:
    """Its value, whatever it is; how long it lives is compared where scripts tell it."""
    for question in ((b"GET", key), (b"HGETALL", key), (b"ZRANGE", key, b"0", b"-1", b"WITHSCORES")):
        try:
            answer = ask(*question)
        except ErrorReply:
            continue
        return sorted(zip(answer[::2], answer[1::2], strict=True)) if question[0] == b"HGETALL" else answer
    return None


def _same(name: str, real: Any, twin: Any) -> bool:
    if isinstance(real, CommandError) and isinstance(twin, CommandError):
        return str(real).split()[0] == str(twin).split()[0]
    if name == "acquire" and isinstance(real, list) and isinstance(twin, list) and real[0] in (0, 2):
        return _but_one(real, twin, 2 if real[0] == 0 else 3)
    if name == "inspect":
        holders = zip(real[1][4::8], twin[1][4::8], strict=False)
        near = all(abs(int(one) - int(other)) <= LOOKS_MS for one, other in holders)
        return near and _without_left(real) == _without_left(twin)
    return bool(real == twin)


def _but_one(real: list[Any], twin: list[Any], place: int) -> bool:
    """Equal, but for the time left."""
    if len(real) != len(twin) or abs(real[place] - twin[place]) > LOOKS_MS:
        return False
    return [*real[:place], *real[place + 1 :]] == [*twin[:place], *twin[place + 1 :]]


def _without_left(reply: Any) -> Any:
    kind, holders, waiters = reply
    return kind, [part for place, part in enumerate(holders) if place % 8 != 4], waiters


def compare(server: RedisServer, operations: int, seed: int) -> Report:
    """Run so many calls on both."""
    server.flush()
    comparison = _Comparison(server, seed)
    try:
        comparison.run(operations)
    finally:
        comparison.close()
    return comparison.report


def main(arguments: list[str] | None = None) -> int:
    """0: no difference."""
    parser = argparse.ArgumentParser(prog="python -m verification.simulation.redis.conformance", description=__doc__)
    parser.add_argument("--operations", type=int, default=10_000)
    parser.add_argument("--server", choices=("redis", "valkey"), default="redis")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    program = valkey_program() if options.server == "valkey" else None
    with RedisServer("conformance", program=program) as server:
        assert isinstance(server, RedisServer)
        report = compare(server, options.operations, options.seed)
    for difference in report.differences[:20]:
        print(difference)
    print(
        f"{report.operations} operations on {options.server}, {report.compared} compared, {report.messages} messages, "
        f"{report.unsure} too near to an end to tell, {len(report.differences)} differences"
    )
    return 1 if report.differences else 0


if __name__ == "__main__":
    sys.exit(main())
