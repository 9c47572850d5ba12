"""What people are shown of durations, texts, holders, pauses, jobs and commands."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from leasehold import Holder, LastRun, Leader, Pause, Skipped
from leasehold._core.names import key_for
from leasehold._face.operator_events import NamePaused
from leasehold._fence_command import raise_command
from leasehold._shown import printable, show_duration
from leasehold._words import kind_of, with_article
from leasehold.findings import Finding, Level
from leasehold.values import Claim, Mode

ANA = Holder("db-3", 4711, "nightly-report")
MOVED = Pause("the database is moved", "ana@ops-1")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-3, "0.0s"), (0.04, "0.0s"), (0.96, "1.0s"), (9.94, "9.9s"), (10, "10s"), (10.6, "11s"), (59.4, "59s"),
        (59.6, "1m00s"), (60, "1m00s"), (65, "1m05s"), (3_599, "59m59s"), (3_599.6, "1h00m"), (3_900, "1h05m"),
        (86_399, "23h59m"), (86_400, "1d00h"), (90_000, "1d01h"), (900_000, "10d10h"),
    ],
)  # fmt: skip
def test_a_duration_is_shown_in_at_most_two_units(seconds: float, shown: str) -> None:
    assert show_duration(seconds) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("Zürich 東京", "Zürich 東京"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("line\nbreak", "line\\nbreak"),
        ("turned \u202e round", "turned \\u202e round"),
        ("\u200bé", "\\u200bé"),
        ("lone \ud800", "lone \\ud800"),
        (7, "7"),
    ],
)
def test_nothing_in_a_text_steers_a_terminal(text: object, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("fact", "sentence"),
    [
        (ANA, "nightly-report on db-3, pid 4711"),
        (Holder("db-3", 4711), "db-3, pid 4711"),
        (Holder("db-3", 4711, ""), "db-3, pid 4711"),
        (MOVED, "paused by ana@ops-1: the database is moved"),
        (Pause("upgrade", "ana", 540.4), "paused by ana for another 540 s: upgrade"),
        (Pause("upgrade", "ana", 0.0), "paused by ana for another 0 s: upgrade"),
        (Leader("jobs", ANA, 7), "'jobs' is led by nightly-report on db-3, pid 4711 (fence 7)"),
        (Skipped("j", "s"), "'j' was skipped for slot s: it is being run by another holder"),
        (Skipped("j", "s", ANA), f"'j' was skipped for slot s: it is being run by {ANA}"),
        (Skipped("j", "s", paused=MOVED), f"'j' was skipped for slot s: it is {MOVED}"),
        (
            Skipped("j", "s", ANA, 0.0),
            f"'j' was skipped for slot s: it was run by {ANA}, finished at 1970-01-01T00:00:00+00:00",
        ),
        (
            Skipped("j", "s", ANA, 1.7e9, failed=True),
            f"'j' was skipped for slot s: it was run by {ANA}, finished at 2023-11-14T22:13:20+00:00, and failed",
        ),
        (NamePaused("x", "upgrade", "ana", None), "ana paused 'x': upgrade"),
        (NamePaused("x", "upgrade", "ana", 90.0), "ana paused 'x' for 90 s: upgrade"),
    ],
)
def test_a_fact_reads_as_a_sentence_in_every_time_zone(fact: object, sentence: str, far_from_greenwich: None) -> None:
    assert str(fact) == sentence


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        ({}, "done"),
        ({"failed": True}, "failed"),
        ({"failed": True, "closed": False}, "failed"),
        ({"forgotten": "by ana"}, "forgotten"),
        ({"forgotten": "by ana", "failed": True}, "forgotten"),
        ({"forgotten": ""}, "forgotten"),
    ],
)
def test_what_became_of_a_run_is_one_word(facts: dict[str, Any], outcome: str) -> None:
    assert LastRun("j", "s", ANA, 0.0, **facts).outcome == outcome


def test_a_skip_is_false_and_a_claim_does_not_show_its_owner() -> None:
    assert not Skipped("j", "s")
    assert "secret" not in repr(Claim("k", "secret", 1.0, Mode.EXCLUSIVE, 1, 0.0, ANA))


@pytest.mark.parametrize("level", Level)
def test_a_finding_has_each_fact_under_its_own_name(level: Level) -> None:
    data = Finding("clock", level, "it is fast", "leases end early", "set it").as_data()
    assert data == {
        "check": "clock",
        "level": level.name.lower(),
        "found": "it is fast",
        "why": "leases end early",
        "advice": "set it",
    }
    assert Finding("clock", level, "", "").advice == ""


def test_the_worse_a_finding_is_the_higher_its_level() -> None:
    assert Level.OK < Level.WARNING < Level.PROBLEM


@pytest.mark.parametrize(
    ("namespace", "name", "words"),
    [
        ("leasehold", "x", ["x", "18", "--url", "redis://h"]),
        ("shop", "a:b", ["a:b", "18", "--url", "redis://h", "--namespace", "shop"]),
        ("a:b%", "it's; rm", ["it's; rm", "18", "--url", "redis://h", "--namespace", "a:b%"]),
    ],
)
def test_the_command_that_raises_a_fence_can_be_pasted_into_a_shell(
    namespace: str, name: str, words: list[str]
) -> None:
    command = raise_command(key_for(namespace, name), 18, "redis://h")
    assert shlex.split(command) == ["leasehold", "fence", "raise", *words, "--reason", "replaced"]


class AsyncSession:
    pass


@pytest.mark.parametrize(
    ("value", "words"),
    [(1, "an int"), ("x", "a str"), (object(), "an object"), (AsyncSession(), "an AsyncSession"), (None, "a NoneType")],
)
def test_what_is_refused_is_named_with_its_article(value: object, words: str) -> None:
    assert kind_of(value) == words


@pytest.mark.parametrize(
    ("noun", "words"), [("asyncpg.pool.Pool", "an asyncpg.pool.Pool"), ("URL", "a URL"), ("unit", "a unit"), ("", "a ")]
)
def test_an_article_is_chosen_by_the_first_letter(noun: str, words: str) -> None:
    assert with_article(noun) == words
