"""Random calls of the shipped scripts: a few names, a few owners each, short times, right and wrong fences.

It remembers what servers answered, so that later calls are about grants that exist, and says nothing about what an
answer should be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leasehold._backends.redis.keys import Names

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

__all__ = ["Call", "Calls"]

NAMES = 4
OWNERS = 5
PUSHES = ("", "galive", "galive", "galive", "gdead", "walive", "wdead")
STEPS = ("try", "join", "join", "turn", "turn")


@dataclass(frozen=True, slots=True)
class Call:
    """One script with its keys and arguments."""

    script: str
    keys: Sequence[bytes]
    arguments: Sequence[bytes]
    name: int
    owner: str = ""


class Calls:
    """Draws calls."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self._names = Names("conformance:", compat=False)
        self._versions = [0] * NAMES
        self._fences: dict[tuple[int, str], int] = {}
        self._latest: dict[int, str] = {}  # who was granted a name last
        self._kinds = [chance.choice(["lock", "lock", "permits"]) for _ in range(NAMES)]

    def draw(self) -> Call:
        """The next call."""
        chance = self._random.random()
        name = self._random.randrange(NAMES)
        owner = f"o{self._random.randrange(OWNERS)}"
        if chance > 0.45 and self._random.random() < 0.5:
            owner = self._latest.get(name, owner)
        for limit, make in (
            (0.45, self._acquire),
            (0.57, self._renew),
            (0.75, self._release),
            (0.81, self._withdraw),
            (0.86, self._break),
            (0.92, self._inspect),
            (0.935, self._raise_fence),
            (0.945, self._pause),
            (0.97, self._read),
        ):
            if chance < limit:
                return make(name, owner)
        return self._write(name, owner)

    def learn(self, call: Call, reply: Any) -> None:
        """Remember the fence of a grant."""
        if call.script == "acquire" and isinstance(reply, list) and reply[0] == 1:
            self._fences[call.name, call.owner] = reply[1]
            self._latest[call.name] = call.owner

    def give_up(self, call: Call) -> None:
        """Never use this name again; the next one in its place is new, and of any kind."""
        self._versions[call.name] += 1
        self._kinds[call.name] = self._random.choice(["lock", "lock", "permits"])
        for owner in [owner for name, owner in self._fences if name == call.name]:
            del self._fences[call.name, owner]

    # --- one function per script

    def _acquire(self, name: int, owner: str) -> Call:
        draw = self._random
        step = b"%d" % {"try": 0, "join": 1, "turn": 2}[draw.choice(STEPS)]
        kind = self._kinds[name] if draw.random() < 0.97 else draw.choice(["lock", "permits"])
        mode, permits = ("p", "2") if kind == "permits" else (draw.choice("xxss"), "0")
        arguments = (
            owner,
            self._time(),
            mode,
            permits,
            draw.choice(["0", "0", "0", self._time()]),
            f'["host",{owner[1:]},null,null]',
            draw.choice(["0", "0", str(1_600_000_000_000_000), str(2_500_000_000_000_000)]),
        )
        more: tuple[str, ...] = ()
        if step != b"0" or draw.random() < 0.2:
            more = (self._time(), draw.choice(PUSHES))
            if draw.random() < 0.3:
                more += (draw.choice(["first", "second"]), self._time(), self._time())
        return self._call("acquire", name, owner, step, *arguments, *more)

    def _renew(self, name: int, owner: str) -> Call:
        return self._call("renew", name, owner, owner, self._fence(name, owner), self._time())

    def _release(self, name: int, owner: str) -> Call:
        return self._call("release", name, owner, owner, self._fence(name, owner))

    def _withdraw(self, name: int, owner: str) -> Call:
        return self._call("withdraw", name, owner, owner, self._random.choice(["0", self._time()]))

    def _break(self, name: int, owner: str) -> Call:
        return self._call("break", name, owner, owner, self._fence(name, owner), "stuck", self._random.choice("01"))

    def _inspect(self, name: int, owner: str) -> Call:
        return self._call("inspect", name, owner, marked=False)

    def _raise_fence(self, name: int, owner: str) -> Call:
        fence = self._random.choice([1, 1_700_000_000_000_000, 2_600_000_000_000_000])
        return self._call("raise_fence", name, owner, str(fence), marked=False)

    def _pause(self, name: int, _owner: str) -> Call:
        length = self._random.choice(["0", self._time()])
        return self._call("pause", name, "pause", length, '{"host":"h","pid":1,"pause":1}')

    def _read(self, name: int, _owner: str) -> Call:
        return self._record("read_record", name, str(self._random.choice([0, 0, 5, 9, 2_000_000_000_000_000])))

    def _write(self, name: int, _owner: str) -> Call:
        value = bytes(self._random.randrange(256) for _ in range(4))
        fence = str(self._random.choice([4, 5, 9, 2_000_000_000_000_000]))
        return self._record("write_record", name, value, fence, self._time())

    def _call(self, script: str, name: int, owner: str, *arguments: str | bytes, marked: bool = True) -> Call:
        keys = self._names.keys(f"{name}.{self._versions[name]}")
        parts = [keys.base.encode() + part for part in (b"", b":s", b":q", b":w", b":z", b":d")]
        if marked:
            parts.append(keys.mark + owner.encode())
        return Call(script, parts, [_encoded(argument) for argument in arguments], name, owner)

    def _record(self, script: str, name: int, *arguments: str | bytes) -> Call:
        keys = self._names.keys(f"{name}.{self._versions[name]}")
        return Call(script, [keys.record], [_encoded(argument) for argument in arguments], name)

    def _time(self) -> str:
        return str(self._random.choice([8, 15, 30, 60, 100, 2000]))

    def _fence(self, name: int, owner: str) -> str:
        known = self._fences.get((name, owner), 7)
        return str(known if self._random.random() < 0.85 else known - 1)


def _encoded(argument: str | bytes) -> bytes:
    return argument if isinstance(argument, bytes) else argument.encode()
