"""Tells the account of the rules what the server did: which script ran for whom, what it answered, whom it made holder.

It reads script calls and their replies as the headers of the scripts describe them, and knows which claim an owner
value stands for, because every claim is announced here before it is sent. It judges little itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from leasehold._backends.redis.scripts import script
from leasehold._core.validity import DRIFT_FIXED
from leasehold.spi import Place
from leasehold.values import Claim, Grant, Holder, Loss, LossReason, Mode, Refusal
from verification.simulation.accounts import Book, Ownership, StoreModel
from verification.simulation.redis.server import EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold._backends.redis.keys import Names
    from leasehold.spi import Signal
    from verification.simulation.history import History
    from verification.simulation.network import Link
    from verification.simulation.redis.server import Run, Session, SimRedis
    from verification.simulation.redis.wire import Connection
    from verification.simulation.world import World

__all__ = ["RedisClock", "RedisWatcher"]

SCRIPTS = (
    *("acquire", "break", "inspect", "pause", "raise_fence", "read_record", "release", "renew", "withdraw"),
    "write_record",
)
VERBS = {b"0": "try_acquire", b"1": "join", b"2": "turn"}
CROWD, COOLING = b"*several*", b"*cooling*"
MOST_PER_SECOND = 150
NOBODY = cast("Signal", None)


class RedisClock:
    """Whole milliseconds on the server's clock. A key is there in its last one, a member of the crowd is not."""

    keeps_silent_places = True

    def __init__(self, server: SimRedis) -> None:
        self._server = server

    def now(self) -> float:
        """Seconds since the world began, on the server's clock."""
        return (self._server.now_us // 1000 - EPOCH * 1000) / 1000

    def end_of_grant(self, claim: Claim, ttl: float) -> float:
        """A holder key lives one millisecond longer than a score says."""
        return self._after(ttl, 1 if claim.mode is Mode.EXCLUSIVE else 0)

    def end_of_place(self, recheck: float) -> float:
        """The server counts three re-checks."""
        return self._after(3 * recheck, 0)

    def end_of_mark(self, ttl: float) -> float:
        """A mark is a key."""
        return self._after(ttl, 1)

    def _after(self, seconds: float, more_ms: int) -> float:
        return (self._server.now_us // 1000 - EPOCH * 1000 + round(seconds * 1000) + more_ms) / 1000


class RedisWatcher:
    """Watches one server and keeps the account."""

    def __init__(self, world: World, history: History, server: SimRedis, names: Names) -> None:
        self.model = StoreModel(world, history, RedisClock(server))
        self._world = world
        self._history = history
        self._server = server
        self._names = names
        self._claims: dict[str, Claim] = {}
        self._links: dict[str, Link] = {}  # by owner
        self._asked: dict[tuple[str, str], tuple[float, int]] = {}  # since when, and how often
        self._stood: dict[str, float] = {}  # owners, and when they took their places
        self._learned: dict[str, float] = {}  # processes, and when they learned that the server cannot reach them
        self._scripts = {script(name).text: name for name in SCRIPTS}
        self._tell: dict[str, Callable[[Connection, Run], None]] = {
            "acquire": self._acquired,
            "break": self._broke,
            "release": self._released,
            "renew": self._renewed,
            "withdraw": self._withdrew,
        }

    def expect(self, claim: Claim, link: Link) -> None:
        """A client asks with this claim; the server counts in milliseconds."""
        self._links[claim.owner] = link
        min_hold = round(claim.min_hold * 1000) / 1000
        self._claims[claim.owner] = replace(claim, min_hold=min_hold, ttl=round(claim.ttl * 1000) / 1000)

    # --- the server's watcher

    def ran(self, session: Session, run: Run) -> None:
        """See `Watcher`."""
        connection = cast("Connection", session)
        name = self._scripts[run.text]
        self._world.note(connection.link.process.name, "ran", name, *self._facts(name, run))
        tell = self._tell.get(name)
        if tell is not None:
            tell(connection, run)
            self._forget_silent_places(run.keys[2], run.arguments[1 if name == "acquire" else 0].decode())

    def rebuilt(self) -> None:
        """See `Watcher`: write the account anew from what the server has, and excuse whom that concerns."""
        for key, book in self.model.books.items():
            before = dict(book.records)
            self._read(key, book)
            for owner, record in before.items():
                now = book.records.get(owner)
                if now is None or now.fence != record.fence or now.expires < record.expires:
                    self.model.forgotten.add(owner)
            self.model.forgotten.update(owner for owner in book.records if owner not in before)

    def stepped(self, seconds: float) -> None:
        """See `Watcher`: a step forward ends grants early, and hand-overs are dated wrongly."""
        self._world.note("server", "clock steps", round(seconds, 3))
        if seconds > 0:
            self._excuse_all()

    def skewed(self, seconds: float) -> None:
        """See `Watcher`: as a step forward. The margin of a grant is for drift, but for a fixed part."""
        if seconds > DRIFT_FIXED:
            self._excuse_all()

    def _excuse_all(self) -> None:
        for book in self.model.books.values():
            self.model.forgotten.update(book.records)
            self.model.forgotten.update(book.waiting)

    def _count(self, process: str, key: str) -> None:
        """Nobody hammers the server: a program that waits asks a few times per second."""
        second, count = self._asked.get((process, key), (0.0, 0))
        if self._world.now >= second + 1.0:
            second, count = self._world.now, 0
        self._asked[process, key] = (second, count + 1)
        if count + 1 == MOST_PER_SECOND:
            self._history.violate("asks without a pause", f"{process} {key}")

    # --- what each script did

    def _acquired(self, connection: Connection, run: Run) -> None:
        claim, reply = self._claims[run.arguments[1].decode()], run.reply
        verb = VERBS[run.arguments[0][:1]]
        self._count(connection.link.process.name, claim.key)
        fence = reply[1] if reply[0] == 1 else None
        told = self._handed_over(run, until=fence)
        self._note_waiter(claim.owner, run)
        answer: Any = None
        if reply[0] == 1:
            answer = Grant(claim, reply[1], reply[4] / 1000, None, reply[2] == 1, reply[6])
        elif reply[0] == 2:
            answer = Place(claim, NOBODY, int(run.arguments[8]) / 3000, reply[1])
        elif reply[0] == 0:
            answer = Refusal(claim.key)
        if self._is_held_off(run.keys[1]) and (reply[0] == 2 or (reply[0] == 0 and verb != "turn")):
            verb = "held off"  # then it is no wonder that a free lock is not granted
        self.model.applied(connection.link, verb, claim, answer, connection.sent_at)
        self._handed_over(run, after=told)

    def _released(self, connection: Connection, run: Run) -> None:
        grant = self._grant(run.arguments[0], run.arguments[1])
        self.model.applied(connection.link, "release", grant, run.reply == 1, connection.sent_at)
        self._handed_over(run)

    def _withdrew(self, connection: Connection, run: Run) -> None:
        claim = self._claims[run.arguments[0].decode()]
        self.model.applied(connection.link, "withdraw", claim, None, connection.sent_at)
        if run.arguments[1] == b"0":
            self.model.books[claim.key].withdrawn.pop(claim.owner, None)  # no copy can come, so none is refused
        self._handed_over(run)

    def _broke(self, connection: Connection, run: Run) -> None:
        owner, fence, _, at_once = run.arguments
        subject = (self._claims[owner.decode()].key, int(fence), at_once == b"1")
        self.model.applied(connection.link, "break_", subject, run.reply == 1, connection.sent_at)
        self._handed_over(run)

    def _renewed(self, connection: Connection, run: Run) -> None:
        grant = self._grant(run.arguments[0], run.arguments[1])
        answer: Grant | Loss = replace(grant, ttl=int(run.arguments[2]) / 1000)
        if run.reply[0] != 1:
            answer = Loss(LossReason.BROKEN if run.reply[0] == 2 else LossReason.TAKEN)
        self.model.applied(connection.link, "renew", (grant,), (answer,), connection.sent_at)

    def _handed_over(self, run: Run, after: int = 0, until: int | None = None) -> int:
        """Tell of hand-overs, up to the one whose fence is higher; returns how many messages were told of."""
        for place, (message, heard) in enumerate(run.published[after:], after):
            what, owner, *rest = message.decode().split("\n")
            claim = self._claims[owner]
            if not heard:
                self._skipped(claim)
            elif what == "g":
                fence, _, left, ttl = rest
                if until is not None and int(fence) > until:
                    return place
                spare = int(left[1:]) if left.startswith("r") else 0
                self.model.handed_over(Grant(claim, int(fence), int(ttl) / 1000, None, left == "1", spare))
        return len(run.published)

    def _note_waiter(self, owner: str, run: Run) -> None:
        """Who waits since when and how it can be called; and who learns that it was passed over."""
        if run.reply[0] == 2:
            self._stood.setdefault(owner, self._world.now)
            if run.arguments[9][:1] == b"g":
                self.model.come_themselves.discard(owner)
            else:
                self.model.come_themselves.add(owner)
        elif run.reply[0] == 0 and owner in self.model.passed_over:
            link = self._links[owner]
            if link.well_for < self._world.now - self._learned.get(link.process.name, 0.0):
                self._learned[link.process.name] = self._world.now

    def _skipped(self, claim: Claim) -> None:
        """That costs one turn. Whoever knows that it could not be reached sees to it that it can."""
        self.model.skipped(claim)
        link = self._links[claim.owner]
        learned = self._learned.get(link.process.name)
        if learned is None or link.well_for < self._world.now - learned:
            return
        if self._stood.get(claim.owner, 0.0) > learned + 0.5:
            self._history.violate("passed over again", f"{link.process.name} {claim.key} {claim.owner[:6]}")

    def _is_held_off(self, state: bytes) -> bool:
        """Strict mode: nothing is granted for a while after the server's process changed."""
        until_ms = self._server.database.run([b"HGET", state, b"u"])
        return until_ms is not None and int(until_ms) > self._server.database.now_ms

    def _grant(self, owner: bytes, fence: bytes) -> Grant:
        claim = self._claims[owner.decode()]
        return Grant(claim, int(fence), claim.ttl)

    def _facts(self, name: str, run: Run) -> list[Any]:
        """What the trace says: nothing that differs between two runs of a seed."""
        owner = run.arguments[1 if name == "acquire" else 0][:6].decode(errors="replace") if name in self._tell else ""
        reply = run.reply if isinstance(run.reply, int) else [part for part in run.reply if isinstance(part, int)]
        pushed = [message.decode().replace("\n", " ") + f" to {heard}" for message, heard in run.published]
        step = VERBS[run.arguments[0][:1]] if name == "acquire" else ""
        return [part for part in (step, owner, run.keys[0].decode(), reply, *pushed) if part != ""]

    def _forget_silent_places(self, queue: bytes, owner: str) -> None:
        """Whether a waiter that fell silent keeps its place for now is the store's own affair."""
        book = self.model.books.get(self._claims[owner].key)
        if book is None:
            return
        for silent in book.silent(self.model.clock.now()):
            if self._server.database.run([b"ZSCORE", queue, silent.encode()]) is None:
                del book.waiting[silent]

    # --- what the server has

    def _read(self, key: str, book: Book) -> None:
        """One key, from the database; the layout is described in queue.lua."""
        keys, ask = self._names.keys(key), self._server.database.run
        base = keys.base.encode()
        holder, state = ask([b"GET", keys.slot_key]), base + b":s"
        owner, left = ask([b"HMGET", state, b"o", b"l"])
        book.records = {}
        book.abandoned = left is not None or (owner is not None and owner != holder)
        for member in ask([b"ZRANGE", base + b":z", b"0", b"-1"]):
            self._read_member(base, member, book)
        if holder not in (None, CROWD):
            name = "cooling" if holder == COOLING else holder.decode()
            claim = self._claims.get(name) or Claim(key, name, 0.0, Mode.EXCLUSIVE, 1, 0.0, Holder("", 0))
            fields = ask([b"HMGET", state, b"g", b"t", b"a", b"b"])
            self._record(book, claim, fields, ask([b"PTTL", keys.slot_key]), cooling=holder == COOLING)
            book.records[claim.owner].spare = int(ask([b"HGET", state, b"f"])) - int(fields[0])
        waiting = [each.decode() for each in ask([b"ZRANGE", base + b":q", b"0", b"-1"])]
        book.waiting = {each: (self._claims[each], self._place_ends(base, each)) for each in waiting}
        marks = {each: ask([b"PTTL", keys.mark + each.encode()]) for each in book.withdrawn}
        book.withdrawn = {each: self.model.clock.end_of_mark(max(0, ms) / 1000) for each, ms in marks.items()}

    def _read_member(self, base: bytes, member: bytes, book: Book) -> None:
        ask = self._server.database.run
        *fields, cooling = ask(
            [b"HMGET", base + b":d", *(member + each for each in (b":f", b":t", b":a", b":b", b":c"))]
        )
        left_ms = int(ask([b"ZSCORE", base + b":z", member])) - self._server.database.now_ms
        self._record(book, self._claims[member.decode()], fields, left_ms, cooling=cooling is not None)

    def _record(self, book: Book, claim: Claim, fields: list[Any], left_ms: int, *, cooling: bool) -> None:
        fence, since, abandoned, broken = fields
        book.records[claim.owner] = Ownership(
            claim,
            int(fence),
            (int(since) // 1000 - EPOCH * 1000) / 1000,
            self.model.clock.end_of_grant(claim, left_ms / 1000),
            abandoned == b"1",
            cooling,
            broken is not None,
        )

    def _place_ends(self, base: bytes, owner: str) -> float:
        text = self._server.database.run([b"HGET", base + b":w", owner.encode()])
        return (int((text or b"0").partition(b"\n")[0]) - EPOCH * 1000) / 1000
