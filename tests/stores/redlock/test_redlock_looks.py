"""What is shown of locks, put together from what each node has: merged, page by page, in order. Without nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from leasehold._backends.redlock.backend import RedlockBackend
from leasehold._backends.redlock.calls import LOCK, Calls
from leasehold._backends.redlock.inspect import require_majority, to_states
from leasehold._backends.redlock.options import Options
from leasehold._runtimes.threads import ThreadRuntime, run
from leasehold.errors import BackendError, BackendUnavailable, OutcomeUnknown
from leasehold.kit.holder import holder_to_json
from leasehold.values import Holder, Holding, LockState, Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

ANA, BEN = Holder("db-3", 7, "nightly", "report"), Holder("db-4", 8)
STORED = {holder: holder_to_json(holder).encode() for holder in (ANA, BEN)}
DOWN = BackendUnavailable("n9 is down")


def look(place: int, fence: int, held: int, left: int, broken: bytes = b"", holder: Holder = ANA) -> list[Any]:
    return [place, fence, held, left, broken, STORED[holder]]


# --- the answers of several nodes


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_what_any_node_knows_of_a_grant_is_shown_whichever_answered_first(order: Sequence[int]) -> None:
    answers = [
        look(0, 7, held=1_500_000, left=9_000),
        look(0, 7, held=2_500_000, left=3_000, broken=b"stuck"),
        look(0, 7, held=2_000_000, left=5_000),
    ]
    assert to_states(["ns:x"], [answers[place] for place in order]) == [
        LockState("ns:x", Mode.EXCLUSIVE, 1, (Holding(ANA, 7, 2.5, 5.0, broken="stuck"),), ())
    ]


def test_each_of_several_names_is_shown_with_its_own_holder() -> None:
    both = [*look(0, 7, 1_000_000, 9_000), *look(2, 8, 2_000_000, 4_000, holder=BEN)]
    states = to_states(["a", "b", "c"], [both, both, look(2, 8, 2_000_000, 6_000, holder=BEN)])
    assert [(state.name, state.holdings[0].holder, state.holdings[0].fence) for state in states] == [
        ("a", ANA, 7), ("c", BEN, 8)
    ]  # fmt: skip
    assert [state.holdings[0].expires_in for state in states] == [9.0, 4.0]


def test_holder_that_another_program_wrote_is_shown_as_unknown() -> None:
    answer = [0, 7, 1_000_000, 9_000, b"", b"what?"]
    (state,) = to_states(["x"], [answer, answer, []])
    assert state.holdings[0].holder == Holder("unknown", 0)


def test_error_of_a_minority_names_each_silent_node_once_with_its_own_reason() -> None:
    silent = BackendUnavailable("")
    with pytest.raises(OutcomeUnknown) as caught:
        require_majority([None, DOWN, [], silent, DOWN], ["n1", "n2", "n3", "n4", "n5"], "redlock://x")
    assert str(caught.value).startswith("redlock://x: 4 of 5 nodes did not answer, and 3 are needed: ")
    assert "n1 did not answer in time; n9 is down; BackendUnavailable" in str(caught.value)
    assert str(caught.value).count("n9 is down") == 1
    assert caught.value.backend == "redlock://x"


# --- the list of all names


@dataclass
class ListedNode:
    """A node whose names come in pages, and its connection in one."""

    name: str
    pages: list[dict[str, list[Any] | None]]
    failure: BackendError | None = None

    def __post_init__(self) -> None:
        self.wire = self
        self.prefixes: set[bytes] = set()

    def __str__(self) -> str:
        return self.name

    async def exchange(self, payload: bytes, count: int) -> list[Any]:
        assert count == 1
        words = payload.split(b"\r\n")[2::2]
        if words[0] == b"SCAN":
            self.prefixes.add(words[3])
            cursor = int(words[1])
            following = cursor + 1 if cursor + 1 < len(self.pages) else 0
            return [[b"%d" % following, [(LOCK + key).encode() for key in self.pages[cursor]]]]
        keys = [word.decode().removeprefix(LOCK) for word in words[3:]]
        known = {key: state for page in self.pages for key, state in page.items()}
        reply: list[Any] = []
        for place, key in enumerate(keys):
            state = known[key]
            reply += [] if state is None else [place, *state]
        return [reply]


class ListedNodes:
    """Nodes that are ready."""

    label = "redlock://x"
    is_closed = False

    def __init__(self, *nodes: ListedNode) -> None:
        self.all = list(nodes)
        self.majority = len(nodes) // 2 + 1

    def __len__(self) -> int:
        return len(self.all)

    async def ready(self) -> None:
        """They are."""


def store(*nodes: ListedNode) -> RedlockBackend:
    scripted: Any = ListedNodes(*nodes)
    return RedlockBackend(scripted, Calls(30.0, len(nodes)), Options(), ThreadRuntime())


def held(fence: int, left: int = 9_000) -> list[Any]:
    return look(0, fence, 1_000_000, left)[1:]


def test_list_has_every_name_that_a_majority_may_have_in_order_of_the_names() -> None:
    nodes = [
        ListedNode("n1", [{"ns:d": held(4)}, {}, {"ns:gone": None, "ns:b": held(2, 5_000)}]),
        ListedNode("n2", [{"ns:c": held(3), "ns:a": held(1)}, {"ns:d": held(4), "ns:b": held(2, 8_000)}]),
        ListedNode("n3", [{"ns:a": held(1)}, {"ns:b": held(2, 2_000)}, {"ns:c": held(33)}]),
    ]
    states = run(store(*nodes).list("ns:"))
    assert [(state.name, state.holdings[0].fence, state.holdings[0].expires_in) for state in states] == [
        ("ns:a", 1, 9.0), ("ns:b", 2, 5.0), ("ns:d", 4, 9.0)
    ], "no majority has one grant of c"  # fmt: skip
    assert [node.prefixes for node in nodes] == [{f"{LOCK}ns:*".encode()}] * 3


def test_node_that_is_down_may_have_what_is_listed() -> None:
    nodes = [ListedNode("n1", [{"a": held(1)}]), ListedNode("n2", [{"b": held(2)}]), ListedNode("n3", [], DOWN)]
    assert [state.name for state in run(store(*nodes).list(""))] == ["a", "b"]


def test_list_without_a_majority_is_the_error_of_a_node_that_failed() -> None:
    nodes = [ListedNode("n1", [{"a": held(1)}]), ListedNode("n2", [], DOWN), ListedNode("n3", [], DOWN)]
    with pytest.raises(BackendUnavailable, match="n9 is down"):
        run(store(*nodes).list(""))
