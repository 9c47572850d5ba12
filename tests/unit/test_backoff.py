"""`Backoff`: its steps, what its kinds of jitter mean, and its loops."""

from __future__ import annotations

import asyncio
import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import leasehold
from leasehold import Backoff, ConfigurationError


def delays(backoff: Backoff, chance: float, number: int = 7) -> list[float]:
    return [round(backoff.delay(attempt, chance), 9) for attempt in range(number)]


def test_the_default_is_10_50_200_ms_and_then_half_a_second_for_ever() -> None:
    assert delays(Backoff(jitter="none"), 0.3) == [0.01, 0.05, 0.2, 0.5, 0.5, 0.5, 0.5]
    assert Backoff().jitter == "equal"
    assert Backoff().tries is None


def test_after_its_steps_it_grows_by_its_factor_up_to_the_longest() -> None:
    backoff = Backoff((1,), factor=2, longest="10s", jitter="none")
    assert delays(backoff, 0) == [1, 2, 4, 8, 10, 10, 10]
    assert Backoff((1,), factor=2, longest=10, jitter="none").delay(10_000, 0) == 10


@pytest.mark.parametrize(
    ("jitter", "least", "most"), [("none", 0.2, 0.2), ("equal", 0.1, 0.2), ("full", 0.0, 0.2)], ids=str
)
def test_jitter_is_named_as_everybody_names_it(jitter: Any, least: float, most: float) -> None:
    backoff = Backoff((0.2,), jitter=jitter)
    assert backoff.delay(0, 0.0) == pytest.approx(least)
    assert backoff.delay(0, 1 - 1e-12) == pytest.approx(most)


@given(
    st.lists(st.floats(0.001, 5), min_size=1, max_size=5),
    st.floats(1, 10),
    st.floats(5, 100),
    st.sampled_from(["none", "equal", "full"]),
    st.integers(0, 50),
    st.floats(0, 1, exclude_max=True),
)
def test_no_pause_is_longer_than_the_longest_or_negative(
    steps: list[float], factor: float, longest: float, jitter: Any, attempt: int, chance: float
) -> None:
    backoff = Backoff(steps, factor=factor, longest=longest, jitter=jitter)
    assert 0 <= backoff.delay(attempt, chance) <= longest


def test_durations_are_written_as_everywhere() -> None:
    assert Backoff(["10ms", timedelta(milliseconds=50)], longest="1s").steps == (0.01, 0.05)


def test_it_is_a_value() -> None:
    backoff = Backoff(("10ms",), tries=3)
    assert backoff == Backoff((0.01,), tries=3)
    assert hash(backoff) == hash(Backoff((0.01,), tries=3))
    assert pickle.loads(pickle.dumps(backoff)) == backoff
    with pytest.raises(AttributeError):
        backoff.tries = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    "options",
    [
        {"steps": ()},
        {"steps": (0,)},
        {"steps": "10ms"},
        {"steps": (-1,)},
        {"steps": (1,)},  # longer than the longest
        {"factor": 0.5},
        {"factor": float("nan")},
        {"factor": True},
        {"longest": "soon"},
        {"jitter": "decorrelated"},
        {"tries": 0},
        {"tries": 1.5},
        {"tries": True},
    ],
    ids=str,
)
def test_what_cannot_be_a_backoff_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Backoff(**options)


def test_a_loop_sleeps_between_its_tries_and_not_after_the_last(slept: list[float]) -> None:
    backoff = Backoff((0.01, 0.02), longest=0.02, jitter="none", tries=4)
    assert list(backoff) == [0, 1, 2, 3]
    assert slept == [0.01, 0.02, 0.02]
    assert list(Backoff(tries=1)) == [0]


def test_a_loop_that_is_left_sleeps_no_more_and_its_else_tells_that_the_tries_are_used_up() -> None:
    for attempt in Backoff((0.001,), tries=5):
        if attempt == 1:
            break
    else:
        pytest.fail("it was left")
    assert attempt == 1


def test_on_an_event_loop_it_lets_others_run() -> None:
    async def main() -> tuple[list[int], bool]:
        others = asyncio.create_task(asyncio.sleep(0))
        attempts = [attempt async for attempt in Backoff((0.001,), tries=3)]
        return attempts, others.done()

    assert asyncio.run(main()) == ([0, 1, 2], True)


def test_on_an_event_loop_each_pause_is_the_next_one_and_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(pause: float) -> None:
        slept.append(pause)

    async def main(backoff: Backoff) -> list[int]:
        return [attempt async for attempt in backoff]

    monkeypatch.setattr(asyncio, "sleep", sleep)
    assert asyncio.run(main(Backoff((0.01, 0.02), factor=2, longest=0.07, jitter="none", tries=6))) == list(range(6))
    assert slept == [0.01, 0.02, 0.04, 0.07, 0.07]
    slept.clear()
    draws = iter([0.5, 0.25, 0.0])
    monkeypatch.setattr("leasehold._runtimes.randomness.jitter", lambda: next(draws))
    assert asyncio.run(main(Backoff((8, 4), longest=8, jitter="full", tries=3))) == [0, 1, 2]
    assert slept == [4, 1]


def test_there_is_one_piece() -> None:
    from leasehold._core import backoff

    assert backoff.Backoff is leasehold.Backoff
    assert Backoff() == backoff.CONTENTION


@pytest.mark.parametrize("steps", [(0.4, 0.1), (0.1, 0.4), (0.1, 0.4, 0.2)])
def test_no_step_may_be_longer_than_the_longest_pause_wherever_it_stands(steps: tuple[float, ...]) -> None:
    with pytest.raises(ConfigurationError, match=r"longest \(0\.3 s\) is shorter than a step \(0\.4 s\)"):
        Backoff(steps, longest=0.3)
    assert Backoff(steps, longest=0.4).longest == 0.4
