"""A table on a terminal that is too narrow for it, and processes that are as good as gone."""

from __future__ import annotations

import io

import pytest

from leasehold.cli import child, inspect, output
from leasehold.values import Holder, Holding, LockState, Mode


@pytest.mark.parametrize("fences", [False, True])
def test_on_a_narrow_terminal_a_long_holder_makes_room_for_the_rest(
    fences: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda _: 76)
    holding = Holding(Holder("a-host-with-a-long-name.example.org", 7, "nightly-report"), 41, 5.0, 12.0)
    _, row = inspect.lock_table([LockState("job", Mode.EXCLUSIVE, 1, (holding,), ())], waiters=False, fences=fences)
    assert "..." in row
    assert ("5.0s" in row, "12s" in row) == (True, True), "what is left is not pushed off the screen"


@pytest.mark.parametrize(("state", "lives"), [("S", True), ("T", True), ("Z", False), ("X", False)])
def test_a_dead_member_of_a_group_is_none(state: str, lives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"12 (a) b) {state} 1 4711 3 0".encode()
    monkeypatch.setattr(child, "open", lambda *_: io.BytesIO(line), raising=False)
    assert child._is_live_member("12", 4711) is lives
    assert not child._is_live_member("12", 1)
