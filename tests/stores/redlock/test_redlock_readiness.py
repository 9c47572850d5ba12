"""Which nodes a client connects to, leaves out, probes and tells what they missed. Time passes on command."""

from __future__ import annotations

import gc
import math
from typing import TYPE_CHECKING, Any

import pytest
from redis import ResponseError

from leasehold._backends.redis.calls import pack
from leasehold._backends.redis.wire import Node as Address
from leasehold._backends.redlock.calls import Calls
from leasehold._backends.redlock.node import MISSES, Node
from leasehold._backends.redlock.nodes import HARD, IDLE, LOOK_AGAIN, PROBE_EVERY, SOFT, Nodes
from leasehold._backends.redlock.scripts import NAMES, script
from leasehold._backends.redlock.undelivered import Undelivered
from leasehold._backends.redlock.wire import SILENCE_LIMIT
from leasehold._runtimes.threads import run
from leasehold.errors import BackendError, BackendRejected, BackendUnavailable, ClientClosed, OutcomeUnknown
from leasehold.values import Claim, Holder, Mode
from tests.stores.support import Flag

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

CALLS = Calls(30, 3)
KNOWN = pack("SCRIPT", "EXISTS", *(script(name).digest for name in NAMES))
CLAIM = Claim("leasehold:x", "f" * 32, 10.0, Mode.EXCLUSIVE, 1, 0.0, Holder("host", 1))
AWAY = BackendUnavailable("connection refused")
NO = BackendRejected("NOAUTH")


class Steps:
    """A runtime: each wait passes the time up to its deadline, or does what is next in `plan`."""

    blocking = True

    def __init__(self) -> None:
        self.time = 100.0
        self.plan: list[Callable[[], object]] = []
        self.limits: list[float] = []  # of each scatter
        self.waits: list[float] = []
        self.workers: list[Coroutine[Any, Any, None]] = []

    def now(self) -> float:
        return self.time

    def signal(self) -> Flag:
        return Flag()

    async def wait(self, signal: Flag, deadline: float) -> bool:
        self.waits.append(deadline - self.time)
        if self.plan:
            self.plan.pop(0)()
        if not signal.up:
            self.time = max(self.time, deadline)
        return signal.up

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.plan:
            self.plan.pop(0)()

    async def scatter(self, requests: Sequence[Any], _: object, deadline: float) -> list[Any]:
        self.limits.append(deadline - self.time)
        answers: list[Any] = []
        for request in requests:
            try:
                answers.append(await request.perform())
            except Exception as error:
                answers.append(error)
        return answers

    def spawn(self, worker: Coroutine[Any, Any, None], _: str) -> None:
        self.workers.append(worker)


class Wire:
    """The connections to one node; `fails` is what connecting raises."""

    def __init__(self, number: int, role: bytes = b"master") -> None:
        self.run_id = b"run%d" % number
        self.role = role
        self.scripts = [1] * len(NAMES)
        self.is_ready = self.has_pending = self.is_closed = False
        self.opened = self.greeted = 0
        self.sent: list[bytes] = []
        self.fails: Exception | None = None

    async def open(self) -> None:
        self._connect()

    def _connect(self) -> None:
        self.opened += 1
        if self.fails is not None:
            raise self.fails
        self.is_ready = True

    async def exchange(self, payload: bytes, count: int, *, fresh: bool = False) -> list[Any]:
        if fresh:
            self._connect()
        if self.fails is not None:
            raise self.fails
        self.sent.append(payload)
        if payload == pack("INFO", "replication"):
            return [b"role:" + self.role + b"\r\nmaster_host:10.0.0.9\r\nmaster_port:7\r\n"]
        if payload.startswith(KNOWN):
            self.greeted += 1
            return [self.scripts, [self.run_id, 7_000_000_000, 0, b""]]
        return [b"OK"] * count

    def request(self, node: Node, call: Any, until: float) -> Any:
        return Asking(node, call, until)

    def close(self) -> None:
        self.is_closed = True
        self.is_ready = False


class Asking:
    """A request; `interrupts` is raised while it is under way."""

    interrupts: BaseException | None = None

    def __init__(self, node: Node, call: Any, until: float) -> None:
        self.node, self.call, self.until = node, call, until
        self.is_aborted = False

    async def perform(self) -> int:
        if self.interrupts is not None:
            raise self.interrupts
        return 1

    def finish(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


class Store:
    """Three nodes, as a client has them."""

    def __init__(self, count: int = 3) -> None:
        self.runtime = Steps()
        self.wires = [Wire(number) for number in range(count)]
        self.nodes = self.make()

    def make(self) -> Nodes:
        wires: Any = self.wires
        runtime: Any = self.runtime
        nodes = [
            Node(Address("h", number), wire, undelivered=Undelivered(), clock=self.runtime.now)
            for number, wire in enumerate(wires)
        ]
        return Nodes(nodes, CALLS, runtime, "redlock://x")

    def ready(self, until: float = math.inf) -> None:
        run(self.nodes.ready(until))


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    for worker in made.runtime.workers:
        worker.close()


other = store


# --- connecting


def test_first_use_connects_to_every_node_and_greets_it(store: Store) -> None:
    store.ready()
    assert [wire.opened for wire in store.wires] == [1, 1, 1]
    assert [wire.greeted for wire in store.wires] == [1, 1, 1]
    assert [node.run_id for node in store.nodes.all] == ["run0", "run1", "run2"]
    assert [node.offset for node in store.nodes.all] == [6900.0] * 3
    store.ready()
    assert [wire.opened for wire in store.wires] == [1, 1, 1], "what is open is used again"
    assert store.runtime.workers == []
    assert store.runtime.limits == [pytest.approx(SOFT)], "slow ones are not waited for"


def test_connection_that_ended_is_opened_anew_without_a_greeting(store: Store) -> None:
    store.ready()
    store.wires[1].is_ready = False
    store.ready()
    assert [wire.opened for wire in store.wires] == [1, 2, 1]
    assert [wire.greeted for wire in store.wires] == [1, 1, 1]


def test_node_that_cannot_be_reached_is_left_out_and_probed(store: Store) -> None:
    store.wires[2].fails = AWAY
    store.ready()
    assert [node.is_up for node in store.nodes.all] == [True, True, False]
    assert store.nodes.all[2].failure is AWAY
    assert len(store.runtime.workers) == 1
    store.ready()
    store.ready()
    assert store.wires[2].opened == 1, "no caller tries it"
    assert len(store.runtime.workers) == 1, "one worker probes"


@pytest.mark.parametrize(
    ("fails", "kind", "words"),
    [
        ([AWAY, AWAY, None], BackendUnavailable, "2 of 3 nodes are not there, and 2 are needed: connection refused"),
        ([NO, NO, None], BackendRejected, "2 of 3 nodes are not there, and 2 are needed: NOAUTH"),
        ([NO, AWAY, None], BackendUnavailable, "2 of 3 nodes are not there, and 2 are needed: NOAUTH"),
        ([NO, NO, AWAY], BackendRejected, "3 of 3 nodes are not there, and 2 are needed: NOAUTH"),
        ([AWAY, NO, AWAY], BackendUnavailable, "3 of 3 nodes are not there, and 2 are needed: NOAUTH"),
    ],
)
def test_store_without_a_majority_says_why_and_whether_that_is_for_good(
    store: Store, fails: list[Exception | None], kind: type[BackendError], words: str
) -> None:
    for wire, error in zip(store.wires, fails, strict=True):
        wire.fails = error
    with pytest.raises(kind) as caught:
        store.ready()
    assert type(caught.value) is kind
    assert str(caught.value) == f"redlock://x: {words}", "a refusal is for good, the rest may be back in a moment"


def test_majority_that_is_missing_is_tried_again_when_no_probe_runs(store: Store) -> None:
    for wire in store.wires[:2]:
        wire.fails = AWAY
    with pytest.raises(BackendUnavailable):
        store.ready()
    for wire in store.wires[:2]:
        wire.fails = None
    with pytest.raises(BackendUnavailable):
        store.ready()  # the probe will find out
    store.nodes._probing = False
    store.ready()
    assert [node.is_up for node in store.nodes.all] == [True] * 3


def test_node_of_a_minority_is_left_to_the_probe(store: Store) -> None:
    store.wires[0].fails = AWAY
    store.ready()
    store.nodes._probing = False
    store.ready()
    assert store.wires[0].opened == 1


def test_majority_is_waited_for_and_no_longer_than_the_store_or_the_caller_allows(store: Store) -> None:
    """Two nodes are being connected to by another call, and take long."""
    for node in store.nodes.all[:2]:
        node.opening = True
    began = store.runtime.time
    with pytest.raises(BackendUnavailable, match="redlock://x does not answer"):
        store.ready()
    assert store.runtime.time == pytest.approx(began + HARD)
    began = store.runtime.time
    with pytest.raises(BackendUnavailable):
        store.ready(began + 0.5)
    assert store.runtime.time == pytest.approx(began + 0.5)


def test_first_use_does_not_wait_for_slow_nodes_beyond_its_caller_s_time(store: Store) -> None:
    store.ready(store.runtime.time + SOFT / 2)
    assert store.runtime.limits == [pytest.approx(SOFT / 2)]


def test_majority_is_not_waited_for_when_the_client_is_closed(store: Store) -> None:
    for node in store.nodes.all[:2]:
        node.opening = True
    store.runtime.plan = [lambda: setattr(store.nodes, "is_closed", True)]
    began = store.runtime.time
    with pytest.raises(BackendUnavailable):
        store.ready()
    assert store.runtime.time < began + 1.0


def test_majority_that_comes_while_it_is_waited_for_is_used_at_once(store: Store) -> None:
    for node in store.nodes.all[:2]:
        node.opening = True

    def comes() -> None:
        store.nodes.all[0].opening = False
        run(store.nodes.connect(store.nodes.all[0]))

    store.runtime.plan = [lambda: None, comes]
    began = store.runtime.time
    store.ready()
    assert store.runtime.time < began + 1.0


def test_node_that_two_calls_connect_to_gets_one_connection(store: Store) -> None:
    node = store.nodes.all[0]
    node.opening = True
    run(store.nodes.connect(node))
    assert store.wires[0].opened == 0
    node.opening = False
    store.wires[0].fails = AWAY
    with pytest.raises(BackendUnavailable):
        run(store.nodes.connect(node))
    assert not node.opening, "it could never be connected to again"


def test_one_server_under_two_names_is_refused_as_long_as_it_answers_under_both(store: Store) -> None:
    store.wires[1].run_id = store.wires[0].run_id
    with pytest.raises(BackendRejected, match="h:0 and h:1 are one and the same server"):
        store.ready()
    for node in store.nodes.all[1:]:
        node.failed(AWAY)
    run(store.nodes.connect(store.nodes.all[2]))
    store.ready()


def test_replica_is_refused_with_the_address_of_its_primary(store: Store) -> None:
    store.wires[0].role = b"slave"
    with pytest.raises(BackendRejected, match=r"h:0 is a replica of 10\.0\.0\.9:7") as refused:
        run(store.nodes.connect(store.nodes.all[0]))
    assert refused.value.backend == "h:0"
    assert not store.nodes.all[0].is_up


@pytest.mark.parametrize("missing", [0, len(NAMES) - 1, None])
def test_scripts_are_sent_to_a_node_that_lacks_any(store: Store, missing: int | None) -> None:
    wire = store.wires[0]
    if missing is not None:
        wire.scripts[missing] = 0
    run(store.nodes.connect(store.nodes.all[0]))
    loads = [payload for payload in wire.sent if b"LOAD" in payload]
    assert len(loads) == (0 if missing is None else 1)
    assert all(payload.count(b"LOAD") == len(NAMES) for payload in loads)


def test_node_that_was_restarted_is_known_by_its_new_process_and_begins_without_misses(store: Store) -> None:
    store.ready()
    node, wire = store.nodes.all[1], store.wires[1]
    node.failed(AWAY)
    node.missed()  # a late answer of a call from before
    wire.run_id, wire.is_ready = b"another", False
    run(store.nodes.connect(node))
    assert (node.run_id, node.misses, node.failure) == ("another", 0, None)
    store.wires[0].run_id = b"another"
    store.nodes.all[0].failed(AWAY)
    run(store.nodes.connect(store.nodes.all[0]))
    with pytest.raises(BackendRejected, match="h:0 and h:1 are one and the same server") as refused:
        store.ready()
    assert refused.value.backend == "redlock://x"


def test_node_that_may_not_say_which_scripts_it_has_gets_all(store: Store) -> None:
    wire: Any = store.wires[0]
    wire.scripts = ResponseError("NOPERM no permission to run 'script|exists'")
    run(store.nodes.connect(store.nodes.all[0]))
    (loads,) = [payload for payload in wire.sent if b"LOAD" in payload]
    assert loads.count(b"LOAD") == len(NAMES)
    assert store.nodes.all[0].is_up


@pytest.mark.parametrize("place", [0, 1])
def test_error_of_an_introduction_names_its_node_and_leaves_it_out(store: Store, place: int) -> None:
    wire, node = store.wires[2], store.nodes.all[2]
    replies: list[list[Any]] = [
        [b"role:master\r\n"] if place else [ResponseError("NOAUTH Authentication required.")],
        [[1] * len(NAMES), ResponseError("NOAUTH Authentication required.")],
    ]

    async def exchange(*_: Any, **__: Any) -> list[Any]:
        return replies.pop(0)

    wire.exchange = exchange  # type: ignore[method-assign]
    with pytest.raises(BackendRejected) as refused:
        run(store.nodes.connect(node))
    assert refused.value.backend == "h:2"
    assert node.failure is refused.value
    assert (node.run_id, node.opening) == (None, False)


def test_majority_cannot_come_when_half_of_an_even_number_of_nodes_refuses() -> None:
    four = Store(4)
    for wire in four.wires[:2]:
        wire.fails = NO
    with pytest.raises(BackendRejected, match="2 of 4 nodes are not there, and 3 are needed: NOAUTH") as refused:
        four.ready()
    assert refused.value.backend == "redlock://x"
    for worker in four.runtime.workers:
        worker.close()


def test_node_that_comes_wakes_the_call_that_waits_for_it_at_once(store: Store) -> None:
    for node in store.nodes.all[:2]:
        node.opening = True
    began = store.runtime.time

    def comes() -> None:
        store.nodes.all[0].opening = False
        run(store.nodes.connect(store.nodes.all[0]))

    store.runtime.plan = [comes]
    store.ready()
    assert store.runtime.time == began
    assert store.runtime.waits == [pytest.approx(LOOK_AGAIN)], "another caller may take the news first"


def test_node_that_does_not_come_wakes_it_too(store: Store) -> None:
    """Else it would wait its whole time for a majority that nobody connects to any more."""
    for node in store.nodes.all[:2]:
        node.opening = True
    store.wires[0].fails = store.wires[1].fails = AWAY

    def fails() -> None:
        for node in store.nodes.all[:2]:
            node.opening = False
            with pytest.raises(BackendUnavailable):
                run(store.nodes.connect(node))

    store.runtime.plan = [fails]
    began = store.runtime.time
    with pytest.raises(BackendUnavailable, match="2 of 3 nodes are not there"):
        store.ready()
    assert store.runtime.time == began


def test_errors_of_all_nodes_together_name_the_store(store: Store) -> None:
    for wire in store.wires:
        wire.fails = AWAY
    with pytest.raises(BackendUnavailable) as missing:
        store.ready()
    with pytest.raises(BackendUnavailable) as late:
        run(store.nodes.poll(CALLS.look(["leasehold:x"]), all, 2.0, store.runtime.time))
    store.nodes.is_closed = True
    with pytest.raises(ClientClosed) as closed:
        store.ready()
    assert [caught.value.backend for caught in (missing, late, closed)] == ["redlock://x"] * 3
    node: Any = store.nodes.all[0]
    node.failed(OSError("no route"))
    assert node.failure.backend == "h:0"
    node.failure = None
    for _ in range(MISSES):
        node.missed()
    assert node.failure.backend == "h:0"


# --- requests


def test_poll_waits_for_its_answers_and_its_caller_s_time_whichever_is_shorter(store: Store) -> None:
    store.ready()
    call = CALLS.look(["leasehold:x"])
    now = store.runtime.time
    for timeout, until, limit in ((2.0, math.inf, 2.0), (2.0, now + 0.5, 0.5), (0.1, now + 0.5, 0.1)):
        run(store.nodes.poll(call, all, timeout, until))
        assert store.runtime.limits[-1] == pytest.approx(limit)
    sent = len(store.runtime.limits)
    with pytest.raises(BackendUnavailable, match="no time left"):
        run(store.nodes.poll(call, all, 2.0, now))
    assert len(store.runtime.limits) == sent


def test_connecting_for_a_request_ends_with_its_caller_s_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leasehold._backends.redlock.nodes.time.monotonic", lambda: 5000.0)
    poll = run(store.nodes.poll(CALLS.look(["leasehold:x"]), all, 2.0, store.runtime.time + 3.0))
    asked: Any = poll.requests
    assert [request.until for request in asked] == [pytest.approx(5003.0)] * 3


def test_requests_of_an_interrupted_round_are_aborted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Asking] = []

    def request(_: Wire, *words: Any) -> Asking:
        made.append(Asking(*words))
        return made[-1]

    monkeypatch.setattr(Wire, "request", request)
    monkeypatch.setattr(Asking, "interrupts", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(store.nodes.poll(CALLS.look(["leasehold:x"]), all, 2.0))
    assert [request.is_aborted for request in made] == [True] * 3


# --- probing


def probe(store: Store) -> None:
    """Let the worker go on to its end."""
    run(store.runtime.workers.pop())


def test_probe_ends_when_every_node_is_back_and_is_started_again_for_the_next_failure(store: Store) -> None:
    store.wires[2].fails = AWAY
    store.ready()
    tries = 6

    def look() -> None:
        store.ready()  # it is used meanwhile
        if store.wires[2].opened >= tries:
            store.wires[2].fails = None

    store.runtime.plan = [look] * 20
    store.runtime.waits.clear()
    probe(store)
    assert store.nodes.all[2].is_up
    assert store.runtime.waits[:6] == pytest.approx(PROBE_EVERY), "at once, and then more and more seldom"
    assert store.runtime.waits[6:] == pytest.approx([PROBE_EVERY[-1]] * len(store.runtime.waits[6:]))
    assert store.wires[2].opened == tries + 1
    store.nodes.all[0].failed(AWAY)
    store.ready()
    assert len(store.runtime.workers) == 1


def test_client_that_rests_is_not_probed_for(store: Store) -> None:
    store.wires[2].fails = AWAY
    store.ready()
    store.runtime.waits.clear()
    probe(store)
    assert IDLE <= sum(store.runtime.waits) <= IDLE + 2 * PROBE_EVERY[-1]
    store.ready()
    assert len(store.runtime.workers) == 1, "it probes again for the next use"


def test_probe_of_a_client_that_is_closed_or_dropped_ends(store: Store, other: Store) -> None:
    store.wires[2].fails = AWAY
    store.ready()
    run(store.nodes.close())
    tried, closed_at = store.wires[2].opened, store.runtime.time
    probe(store)
    assert (store.wires[2].opened, store.runtime.time) == (tried, closed_at), "it goes on"
    other.wires[2].fails = BackendUnavailable("away")
    other.ready()
    tried = other.wires[2].opened

    def drop() -> None:
        del other.nodes
        other.wires[2].fails = None  # what was raised has frames, and these have the client
        gc.collect()

    other.runtime.plan = [lambda: None, drop]  # it has probed once before
    probe(other)
    assert other.wires[2].opened == tried + 1


def test_closed_client_connects_to_nothing_and_its_connections_are_closed(store: Store) -> None:
    store.ready()
    run(store.nodes.close())
    assert [wire.is_closed for wire in store.wires] == [True] * 3
    with pytest.raises(ClientClosed):
        store.ready()


def test_close_waits_for_connections_that_are_being_made_and_not_for_ever(store: Store, other: Store) -> None:
    store.ready()
    store.nodes.all[0].opening = True
    began = store.runtime.time
    closed_at: list[float] = []

    def is_made() -> None:
        if store.runtime.time > began + 1.0:
            store.nodes.all[0].opening = False
            closed_at.append(store.runtime.time)

    store.runtime.plan = [is_made] * 10_000
    run(store.nodes.close())
    assert closed_at[0] == store.runtime.time, "and no longer"
    assert store.runtime.time < began + 1.1
    assert store.wires[0].is_closed
    other.nodes.all[0].opening = True
    run(other.nodes.close())
    assert other.runtime.time == pytest.approx(100.0 + HARD, abs=0.1)


# --- what a node missed


def test_node_is_left_out_when_it_was_silent_twice_in_a_row(store: Store) -> None:
    store.ready()
    node: Any = store.nodes.all[0]
    for _ in range(MISSES - 1):
        node.missed()
    assert node.is_up, "one hiccup is forgiven"
    node.missed()
    assert not node.is_up
    assert "h:0 does not answer" in str(node.failure)
    assert node.misses == 0
    run(store.nodes.connect(node))
    assert node.is_up


def test_failure_of_another_kind_is_told_as_one_of_the_store() -> None:
    node = Store().nodes.all[0]
    node.failed(OSError("no route"))
    assert isinstance(node.failure, BackendUnavailable)
    assert "h:0: no route" in str(node.failure)
    node.failed(OutcomeUnknown("silent"))
    assert isinstance(node.failure, OutcomeUnknown)


def test_request_may_still_arrive_for_the_ttl_and_the_silence_after_it(store: Store) -> None:
    node = store.nodes.all[0]
    node.failed(AWAY)
    store.runtime.time += 10.0 + SILENCE_LIMIT - 0.1
    assert node.may_receive_late(10.0)
    store.runtime.time += 0.2
    assert not node.may_receive_late(10.0)


def test_node_that_is_back_gets_what_it_missed_with_the_texts_of_the_scripts(store: Store) -> None:
    store.ready()
    node, wire = store.nodes.all[0], store.wires[0]
    calls = [CALLS.release(CLAIM, number, store.runtime.time) for number in (1, 2)]
    for call in calls:
        node.deliver_later(call)
    wire.sent.clear()
    store.ready()  # it starts the worker, and waits for nothing
    assert wire.sent == []
    probe(store)
    assert wire.sent == [b"".join(call.whole for call in calls)]
    assert not node.undelivered
    assert wire.opened == 1, "its connection was open"
    assert store.runtime.limits[-1] == pytest.approx(HARD), "a probe has time: no caller waits for it"


def test_node_that_a_call_lost_is_looked_after_although_no_other_call_comes(store: Store) -> None:
    """One that answered with an error is there: no worker is needed for it. A client that was closed has none."""
    store.ready()
    refused = run(store.nodes.poll(CALLS.vote(CLAIM, 1), all, 2.0))
    refused.answers[2] = NO  # type: ignore[index]  # a list
    refused.finish()
    assert store.runtime.workers == []
    release = CALLS.release(CLAIM, 1, store.runtime.time)
    lost = run(store.nodes.poll(release, all, 2.0))
    lost.answers[0] = AWAY  # type: ignore[index]
    store.wires[0].sent.clear()
    lost.finish()
    probe(store)
    assert store.wires[0].sent == [release.whole]
    run(store.nodes.close())
    lost.finish()
    assert store.runtime.workers == []


def test_what_could_not_be_delivered_is_kept_until_it_does_not_matter_any_more(store: Store) -> None:
    store.ready()
    node, wire = store.nodes.all[0], store.wires[0]
    node.deliver_later(CALLS.release(CLAIM, 1, store.runtime.time))
    wire.fails = AWAY
    with pytest.raises(BackendUnavailable):
        run(store.nodes.connect(node))
    assert len(node.undelivered) == 1
    assert node.failure is AWAY
    wire.fails = None
    wire.sent.clear()
    store.runtime.time += CLAIM.ttl + 0.1
    run(store.nodes.connect(node))
    assert not any(b"leasehold:x" in payload for payload in wire.sent), "its ttl is over"
    assert node.is_up
