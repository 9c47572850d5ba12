"""A Redis server: one clock of its own, one database, scripts, channels, and a replica that may lag behind.

It knows what a server does with commands, one at a time. It does not know how they arrive (`wire` does) nor what they
mean for locks (`watcher` is told of every script that ran). Its faults are asked for by name: it forgets its scripts or
all its keys, it is restarted empty, its replica takes over without the last writes, its clock steps, it stands still,
it refuses writes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from verification.simulation.redis.database import OK, CommandError, Database, Status, is_write, needs_memory
from verification.simulation.redis.lua import ScriptEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from verification.simulation.world import World

__all__ = ["EPOCH", "Later", "Run", "Session", "SimRedis", "Watcher"]

EPOCH = 1_600_000_000  # when the world begins, on this server's clock: safely in the past of every real one


@dataclass(frozen=True, slots=True)
class Later:
    """A reply that takes its time."""

    seconds: float
    reply: Any


@dataclass(slots=True)
class Run:
    """One script that ran: what it was given, what it said, and what it published to how many."""

    text: bytes
    keys: Sequence[bytes]
    arguments: Sequence[bytes]
    reply: Any = None
    published: list[tuple[bytes, int]] = field(default_factory=list)


class Session(Protocol):
    """The server's end of a connection."""

    def hear(self, message: list[Any]) -> None:
        """Something was published on a channel of this connection, or its subscription is confirmed."""

    def hang_up(self, *, in_silence: bool) -> None:
        """The server closes the connection, or is gone without a word."""


class Watcher(Protocol):
    """Whoever wants to know what the server does."""

    def ran(self, session: Session, run: Run) -> None:
        """A script has just run."""

    def rebuilt(self) -> None:
        """The server came back with other data than it had acknowledged."""

    def skewed(self, seconds: float) -> None:
        """The clock of the new primary is so far ahead of that of the old one, or behind it."""

    def stepped(self, seconds: float) -> None:
        """The server's clock stepped."""


class SimRedis:
    """One server, or the primary and its replica."""

    def __init__(self, world: World, *, rate: float = 1.0, name: str = "") -> None:
        self.world = world
        self.name = name
        self.watcher: Watcher | None = None
        self.is_down = False
        self.stalled_until = 0.0
        self.lag = 0.0  # seconds that the replica is behind
        self.refuses = ""  # writes, with these words
        self.database = Database()
        self.subscribers: dict[bytes, dict[int, Session]] = {}
        self.sessions: dict[int, Session] = {}
        self._rate = rate
        self._shift = 0.0
        self._engine = ScriptEngine(self._from_script)
        self._scripts: dict[bytes, bytes] = {}
        self._run: Run | None = None
        self._script_us = 0
        self._effects: list[tuple[bytes, ...]] = []  # writes of the command that runs now
        self._log: list[tuple[float, int, list[tuple[bytes, ...]]]] = []  # when, on which clock, what
        self._acknowledged = 0  # how much of the log the replica surely has
        self._lives = 0
        self._started = -86_400.0
        self._replica_id = self._name("replica")
        self._new_life()

    # --- time

    @property
    def now_us(self) -> int:
        """What its clock shows."""
        if self._run is not None:
            return self._script_us
        return EPOCH * 1_000_000 + round((self.world.now * self._rate + self._shift) * 1e6)

    def step_clock(self, seconds: float) -> None:
        """Somebody set the clock."""
        self._shift += seconds
        if self.watcher is not None:
            self.watcher.stepped(seconds)

    # --- connections

    def attach(self, session: Session) -> int:
        """A new connection; its number."""
        number = self.world.next_number()
        self.sessions[number] = session
        return number

    def detach(self, number: int) -> None:
        """The connection is gone, as far as the server knows."""
        self.sessions.pop(number, None)
        for members in self.subscribers.values():
            members.pop(number, None)

    def hang_up_on_all(self, *, in_silence: bool = False) -> None:
        """Close every connection. When a host loses its power, nobody is told."""
        sessions, self.sessions = self.sessions, {}
        self.subscribers.clear()
        for session in sessions.values():
            session.hang_up(in_silence=in_silence)

    # --- faults

    def lose_listeners(self) -> None:
        """A box on the way ends connections that were quiet for long, with a word to the server only."""
        for number in [number for members in self.subscribers.values() for number in members]:
            self.detach(number)

    def restart_empty(self) -> None:
        """The process is started again, and nothing was kept on disk."""
        self.database.clear()
        self._log.clear()
        self._acknowledged = 0
        self._started = self.world.now
        self._new_life()
        self._told_of_new_data()

    def fail_over(self, skew: float = 0.0) -> None:
        """The replica becomes the primary: with a clock of its own, and without what had not reached it yet.

        The old primary becomes its replica, so that the next fail-over brings it back.
        """
        del self._log[self._replicated() :]
        self._acknowledged = len(self._log)
        replica = Database()
        for _, moment_ms, effects in self._log:
            replica.now_ms = moment_ms
            for effect in effects:
                replica.run(effect)
        self.database = replica
        self._shift += skew
        self.run_id, self._replica_id = self._replica_id, self.run_id
        self._lives += 1
        self.replication_id, self.old_replication_id = self._name("replication"), self.replication_id
        self._scripts.clear()
        self._told_of_new_data()
        if self.watcher is not None:
            self.watcher.skewed(skew)

    def restart(self) -> None:
        """The process is started again, and has all that it had."""
        self._started = self.world.now
        self._new_life()

    def flush(self) -> None:
        """Somebody said FLUSHALL."""
        self._clear()
        self._told_of_new_data()

    def forget_scripts(self) -> None:
        """Somebody said SCRIPT FLUSH."""
        self._scripts.clear()

    def stall(self, seconds: float) -> None:
        """It stands still: what arrives meanwhile is done afterwards."""
        self.stalled_until = max(self.stalled_until, self.world.now + seconds)

    def _new_life(self) -> None:
        """A new process: it has another name and knows no script."""
        self._lives += 1
        self.run_id = self._name("run")
        self.replication_id, self.old_replication_id = self._name("replication"), "0" * 40
        self._scripts.clear()

    def _name(self, kind: str) -> str:
        return hashlib.sha1(f"{self.world.seed} {self.name}{kind} {self._lives}".encode()).hexdigest()

    def _clear(self) -> None:
        self.database.clear()
        self._log.clear()
        self._acknowledged = 0

    def _told_of_new_data(self) -> None:
        self.database.now_ms = self.now_us // 1000
        if self.watcher is not None:
            self.watcher.rebuilt()

    def _replicated(self) -> int:
        """How many entries of the log the replica has."""
        reached = sum(moment <= self.world.now - self.lag for moment, _, _ in self._log)
        return max(reached, self._acknowledged)

    # --- commands

    def execute(self, session: Session, number: int, words: Sequence[bytes]) -> Any:
        """One command of a client; errors are replies."""
        self.database.now_ms = self.now_us // 1000
        self._effects = []
        try:
            return self._special(session, number, words)
        except CommandError as error:
            return error
        finally:
            if self._effects:
                self._log.append((self.world.now, self.database.now_ms, self._effects))

    def _special(self, session: Session, number: int, words: Sequence[bytes]) -> Any:
        name = words[0].upper()
        if name in (b"EVAL", b"EVALSHA"):
            return self._eval(session, name, words)
        if name in (b"SUBSCRIBE", b"SSUBSCRIBE"):
            self.subscribers.setdefault(words[1], {})[number] = session
            return [name.lower(), words[1], 1]
        if name == b"WAIT":
            return self._wait(int(words[1]), int(words[2]) / 1000)
        command = _SERVER.get(name)
        return self._plain(list(words)) if command is None else command(self, words)

    def _plain(self, words: list[bytes]) -> Any:
        if words[0].upper() in (b"PUBLISH", b"SPUBLISH"):
            return self._publish(words[1], words[2])
        if is_write(words[0]):
            self._refuse(words[0])
            self._effects.append(tuple(words))
        return self.database.run(words)

    def _refuse(self, name: bytes) -> None:
        """As Redis does: a script that has written, even without effect, is not stopped in the middle."""
        if self.refuses and not self._effects and (needs_memory(name) or not self.refuses.startswith("OOM")):
            raise CommandError(self.refuses)

    def _eval(self, session: Session, name: bytes, words: Sequence[bytes]) -> Any:
        if name == b"EVAL":
            text = words[1]
            self._scripts[hashlib.sha1(text).hexdigest().encode()] = text
        elif (known := self._scripts.get(words[1])) is None:
            raise CommandError("NOSCRIPT No matching script. Please use EVAL.")
        else:
            text = known
        count = int(words[2])
        self._script_us = self.now_us
        self._run = run = Run(text, words[3 : 3 + count], words[3 + count :])
        try:
            run.reply = self._engine.run(text, run.keys, run.arguments)
        finally:
            self._run = None
        if self.watcher is not None:
            self.watcher.ran(session, run)
        return run.reply

    def _from_script(self, words: list[bytes]) -> Any:
        if words[0] in (b"TIME", b"INFO"):
            return _SERVER[words[0]](self, words)
        reply = self._plain(words)
        if self._run is not None and words[0] in (b"PUBLISH", b"SPUBLISH"):
            self._run.published.append((words[2], reply))
        return reply

    def _publish(self, channel: bytes, message: bytes) -> int:
        members = list(self.subscribers.get(channel, {}).values())
        for session in members:
            session.hear([b"message", channel, message])
        return len(members)

    def _wait(self, replicas: int, patience: float) -> Any:
        """One replica: it has everything as soon as its lag is over."""
        if replicas < 1 or self.lag > patience:
            return Later(patience, 0)
        self._acknowledged = len(self._log)
        return Later(self.lag, 1)


def _time(server: SimRedis, _words: Sequence[bytes]) -> list[bytes]:
    return [b"%d" % (server.now_us // 1_000_000), b"%d" % (server.now_us % 1_000_000)]


def _info(server: SimRedis, words: Sequence[bytes]) -> bytes:
    if words[1:] == [b"replication"]:
        ids = f"master_replid:{server.replication_id}\r\nmaster_replid2:{server.old_replication_id}\r\n"
        return f"# Replication\r\nrole:master\r\n{ids}".encode()
    uptime = int(server.world.now - server._started)
    return f"# Server\r\nrun_id:{server.run_id}\r\nuptime_in_seconds:{uptime}\r\n".encode()


def _script_command(server: SimRedis, words: Sequence[bytes]) -> Any:
    match words[1].upper():
        case b"FLUSH":
            server.forget_scripts()
            return OK
        case b"EXISTS":
            return [int(digest in server._scripts) for digest in words[2:]]
        case b"LOAD":
            digest = hashlib.sha1(words[2]).hexdigest().encode()
            server._scripts[digest] = words[2]
            return digest
    raise CommandError("ERR unknown subcommand")


def _flushall(server: SimRedis, _words: Sequence[bytes]) -> Status:
    server.flush()
    return OK


_SERVER: dict[bytes, Callable[[SimRedis, Sequence[bytes]], Any]] = {
    b"FLUSHALL": _flushall,
    b"INFO": _info,
    b"PING": lambda _server, _words: Status(b"PONG"),
    b"ROLE": lambda _server, _words: [b"master", 0, []],
    b"SCRIPT": _script_command,
    b"TIME": _time,
}
