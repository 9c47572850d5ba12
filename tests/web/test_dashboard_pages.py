"""What the pages show, drawn from facts that a test makes up; how they look and behave is for a browser."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import Any

import pytest

from leasehold.web import Role, Viewer
from leasehold.web.actions import ACTIONS
from leasehold.web.drawing import draw
from leasehold.web.pages import PAGES

NOW = 1_763_208_000.0
ANA, BEN = Viewer("ana", Role.WRITE), Viewer("ben", Role.READ)
HOLDER = {"host": "db-1", "pid": 7, "label": "nightly", "reason": "charging"}
HOLDING = {
    "holder": HOLDER, "fence": 41, "held_for": 65.0, "expires_in": 20.0, "ttl_seen": 30.0, "renewed_ago": None,
    "broken": None, "cooling": False,
}  # fmt: skip
PAUSE = {"reason": "audit", "by": "eve", "expires_in": 600.0, "paused_for": 5.0}
RUN = {
    "slot": "monday", "outcome": "done", "runner": HOLDER, "finished": NOW - 90, "began": NOW - 100,
    "fence": 41, "closed": True, "again": None, "forgotten": None,
}  # fmt: skip
LOCK = {
    "name": "a/b", "state": "held", "mode": "exclusive", "capacity": None, "holdings": [HOLDING], "waiters": 0,
    "waiting": [], "paused": None,
}  # fmt: skip
READING = {"error": None, "age": 0.5}


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fixed(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override] # of the class that it stands for
            return datetime.fromtimestamp(NOW, tz or UTC)

    monkeypatch.setattr("leasehold.web.drawing.datetime", Fixed)


def shown(template: str, facts: dict[str, Any], viewer: Viewer = ANA, query: Any = None, **more: Any) -> str:
    """The changing part of a page, with its white space made one."""
    text = draw(
        template,
        facts=facts,
        viewer=viewer,
        query=query or {},
        **{
            "title": "leasehold",
            "store": "redis",
            "page": PAGES.get(template),
            "pages": [],
            "notice": None,
            "live": "",
            "layout": "fragment.html",
            **more,
        },
    )
    return re.sub(r"\s+", " ", text)


def words(text: str) -> str:
    """What is left without the markup, with plain dashes."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text)).strip().replace("\u2013", "-")


# --- trouble


@pytest.mark.parametrize("page", ["locks", "leaders", "jobs", "keys", "partitions"])
def test_a_store_that_does_not_answer_is_said_on_every_page(page: str) -> None:
    totals = {"held": 0, "waiters": 0, "paused": 0, "names": 0, "longest": 0}
    rest: dict[str, dict[str, Any]] = {
        "locks": {"queues": True, "totals": totals, "locks": []},
        "leaders": {"leaders": [], "patterns": []},
        "jobs": {"supported": True, "jobs": [], "pausable": True},
        "keys": {"supported": True, "answer": None, "running": []},
        "partitions": {"supported": True, "groups": []},
    }  # fmt: skip
    text = words(shown(page, {"error": "it is <away>", "age": 65.0, **rest[page]}))
    assert "The store does not answer. it is &lt;away&gt;" in text
    assert "as it was 1m05s ago" in text
    empty = ("No lock is in use", "No election was seen", "No job was seen yet", "No partitions are shared out")
    assert not any(each in text for each in empty), "nobody knows that"
    assert words(shown(page, {"failed": "no <rights>"})) == "no &lt;rights&gt;"


# --- locks


def locks(*found: dict[str, Any], **more: Any) -> dict[str, Any]:
    totals = {"names": 1234, "held": 1200, "waiters": 3, "paused": 1, "longest": 3700.0}
    return {
        **READING,
        "queues": True,
        "totals": totals,
        "found": 1,
        "page": 1,
        "pages": 1,
        "locks": list(found),
        **more,
    }


def test_a_row_has_the_lock_its_holder_and_what_is_left() -> None:
    text = shown("locks", locks({**LOCK, "holdings": [HOLDING, HOLDING, HOLDING], "waiters": 2, "stalled": None}))
    assert 'href="lock?name=a%2Fb"' in text
    for word in ("nightly", "+2", "db-1 · pid 7", "41", "1m05s", "20s", "charging", "held 1,200", "longest hold 1h01m"):
        assert word in words(text), word
    assert "1 lock of 1,234" in words(text)
    assert 'class="ttl"' in text
    assert '<progress max="30.0" value="20.0">' in text


@pytest.mark.parametrize(("left", "is_low"), [(9.9, True), (10.0, False)])
def test_a_lease_that_was_not_renewed_for_long_is_marked(left: float, is_low: bool) -> None:
    text = shown("locks", locks({**LOCK, "holdings": [{**HOLDING, "expires_in": left}], "stalled": None}))
    assert ('class="ttl low"' in text) is is_low


@pytest.mark.parametrize(("ago", "told"), [(None, None), (0.4, "renewed just now"), (65.0, "renewed 1m05s ago")])
def test_the_last_renewal_is_told_where_it_was_seen(ago: float | None, told: str | None) -> None:
    text = words(shown("locks", locks({**LOCK, "holdings": [{**HOLDING, "renewed_ago": ago}], "stalled": None})))
    assert ("renewed" in text) is (told is not None)
    assert told is None or told in text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"paused": PAUSE}, "paused by eve: audit"),
        ({"holdings": [{**HOLDING, "broken": "stuck"}]}, "broken: stuck"),
        ({"holdings": [], "state": "free"}, "free free"),
        ({"mode": "permit", "capacity": 3}, "1 of 3"),
        ({"mode": "shared"}, "a/b shared"),
    ],
)
def test_a_row_says_why_a_lock_is_not_simply_held(changes: dict[str, Any], told: str) -> None:
    assert told in words(shown("locks", locks({**LOCK, "stalled": None, **changes})))


def test_a_store_without_queues_has_no_number_of_waiters() -> None:
    text = words(shown("locks", locks({**LOCK, "stalled": None}, queues=False)))
    assert "keeps no queue" in text
    assert "waiting -" in text
    assert " ? " in text


def test_pages_and_headings_keep_what_was_searched_for() -> None:
    query = {"q": "cart", "long": "1", "sort": "held", "order": "desc"}
    text = shown("locks", locks({**LOCK, "stalled": None}, page=2, pages=3, found=250), query=query)
    assert 'rel="prev" href="./?q=cart&amp;long=1&amp;sort=held&amp;order=desc&amp;page=1"' in text
    assert 'rel="next" href="./?q=cart&amp;long=1&amp;sort=held&amp;order=desc&amp;page=3"' in text
    assert 'aria-sort="descending"><a href="./?q=cart&amp;long=1&amp;sort=held&amp;order=asc">Held for' in text
    assert '<a href="./?q=cart&amp;long=1&amp;sort=fence&amp;order=desc">Fence' in text, "the highest first"
    assert '<a href="./?q=cart&amp;long=1&amp;sort=name&amp;order=asc">Name' in text
    plain = shown("locks", locks({**LOCK, "stalled": None}))
    assert 'aria-sort="ascending"><a href="./?sort=name&amp;order=desc">Name' in plain
    assert 'rel="next"' not in plain
    assert 'rel="prev"' not in plain


def test_no_lock_is_told_apart_from_none_that_fits() -> None:
    nothing = {"names": 0, "held": 0, "waiters": 0, "paused": 0, "longest": 0.0}
    assert "No lock fits" in shown("locks", locks())
    text = words(shown("locks", locks(totals=nothing)))
    assert "No lock is in use" in text
    assert "longest hold -" in text


# --- one lock


def lock(viewer: Viewer = ANA, *, lock: dict[str, Any] | None = LOCK, **more: Any) -> str:
    facts = {
        "error": None, "name": "a/b", "lock": lock, "queues": True, "pausable": True, "last_run": None, "grants": [],
        "seen_since": 1_763_208_000.0, **more,
    }  # fmt: skip
    return shown("lock", facts, viewer)


def test_who_may_write_is_offered_the_orders_that_make_sense() -> None:
    assert 'href="break?name=a%2Fb&amp;fence=41"' in lock()
    assert 'href="pause?name=a%2Fb"' in lock()
    assert "Resume…" not in lock()
    paused = lock(lock={**LOCK, "paused": PAUSE})
    assert 'href="resume?name=a%2Fb"' in paused
    assert "Pause…" not in paused
    assert "Break…" not in lock(lock={**LOCK, "holdings": [{**HOLDING, "broken": "stuck"}]})
    assert "Break…" not in lock(lock={**LOCK, "holdings": [{**HOLDING, "cooling": True}]})
    assert "Pause…" not in lock(pausable=False)
    assert 'href="pause?name=a%2Fb"' in lock(lock=None), "what is free may be paused"
    assert 'href="forget?name=a%2Fb&amp;slot=monday"' in lock(last_run=RUN)
    for each in (lock(BEN), lock(BEN, last_run=RUN), lock(BEN, lock={**LOCK, "paused": PAUSE})):
        assert "…" not in each


def test_a_pause_is_told_with_who_why_and_how_long() -> None:
    text = words(lock(lock={**LOCK, "paused": PAUSE}))
    assert "Paused by eve 5.0s ago, for another 10m00s: audit" in text
    short = words(lock(lock={**LOCK, "paused": {**PAUSE, "expires_in": None, "paused_for": None}}))
    assert "for another" not in short
    assert "ago" not in short


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "charging"),
        ({"broken": "stuck"}, "broken: stuck; kept until its ttl is over"),
        ({"cooling": True}, "released, kept for its min_hold"),
    ],
)
def test_a_holder_has_its_reason_or_what_became_of_it(changes: dict[str, Any], told: str) -> None:
    assert told in words(lock(lock={**LOCK, "holdings": [{**HOLDING, **changes}]}))


def test_the_queue_has_its_waiters_and_how_many_are_behind_them() -> None:
    waiter = {**HOLDER, "label": "second", "reason": "my turn"}
    text = words(lock(lock={**LOCK, "waiting": [waiter], "waiters": 1_001}))
    assert "second" in text
    assert "my turn" in text
    assert "and 1,000 more behind them" in text
    assert "more behind" not in words(lock(lock={**LOCK, "waiting": [waiter], "waiters": 1}))
    assert "No waiters." in lock()
    assert "keeps no queue" in lock(queues=False)
    assert "It is free." in lock(lock=None)


def test_grants_that_were_seen_have_their_times_and_their_ends() -> None:
    base = {"fence": 41, "holder": "nightly on db-1", "began": 1_763_208_000.0, "seen": 1_763_208_060.0}
    over = {**base, "ended": 1_763_208_005.0, "end": "released"}
    text = lock(grants=[{**base, "ended": None, "end": None}, over])
    assert '<li class="open">' in text
    assert '<li class="closed">' in text
    assert "12:00:00 - now 1m00s holds it" in words(text)
    assert "12:00:00 - 12:00:05 5.0s released" in words(text)
    assert "since 2025-11-15 12:00:00 UTC" in words(text)


def test_a_run_that_was_forgotten_says_by_whom() -> None:
    text = lock(last_run={**RUN, "outcome": "forgotten", "forgotten": "once more (by ana)"})
    assert "once more (by ana)" in text
    assert "Forget…" not in text
    assert "ago" in words(lock(last_run=RUN))


# --- the other pages


def test_leaders_are_shown_and_elections_without_one_are_marked() -> None:
    rows = [
        {"name": "boss", "leader": HOLDING, "candidates": 2, "terms_seen": 3},
        {"name": "other", "leader": None, "candidates": 0, "terms_seen": 0},
    ]
    text = words(shown("leaders", {**READING, "leaders": rows, "patterns": ["x"]}))
    assert "boss nightly db-1 · pid 7 41 1m05s" in text
    assert "2 3 other no leader - - - 0 0" in text
    empty = words(shown("leaders", {**READING, "leaders": [], "patterns": ["boss:*", "x"]}))
    assert "Looked for: boss:* , x ." in empty


def jobs(viewer: Viewer = ANA, *, pausable: bool = True, **changes: Any) -> str:
    job = {"name": "a/b", "running": None, "paused": None, "last_run": RUN, **changes}
    return shown("jobs", {**READING, "supported": True, "pausable": pausable, "jobs": [job]}, viewer)


def test_a_job_is_idle_running_or_paused() -> None:
    assert "a/b idle monday done" in words(jobs())
    assert "running 1m05s" in words(jobs(running={**HOLDER, "held_for": 65.0}))
    assert "paused audit" in words(jobs(paused=PAUSE, running={**HOLDER, "held_for": 65.0}))
    assert "1m30s ago 10s" in words(jobs())
    assert "- no run is remembered - - -" in words(jobs(last_run=None))
    assert "1m30s ago -" in words(jobs(last_run={**RUN, "began": None}))


def test_orders_for_a_job_are_those_that_make_sense() -> None:
    assert 'href="pause?name=a%2Fb"' in jobs()
    assert 'href="resume?name=a%2Fb"' in jobs(paused=PAUSE)
    assert 'href="forget?name=a%2Fb&amp;slot=monday"' in jobs()
    assert "Forget…" not in jobs(last_run={**RUN, "forgotten": "x"})
    assert "Forget…" not in jobs(last_run=None)
    assert "Pause…" not in jobs(pausable=False)
    assert "Forget…" in jobs(pausable=False)
    assert "…" not in jobs(BEN)
    assert "keeps no records" in shown("jobs", {"error": None, "supported": False, "pausable": False, "jobs": []})


def test_a_key_that_was_looked_up_is_in_progress_completed_or_unknown() -> None:
    def keys(answer: dict[str, Any] | None, running: list[Any] | None = None) -> str:
        asked = {"scope": "charges", "key": "k<1>"}
        facts = {**READING, "supported": True, "running": running or [], "asked": asked, "answer": answer}
        return shown("keys", facts)

    found = {"found": True, "state": "completed", "since": 65.0, "expires_in": 7_200.0}
    assert "charges / k&lt;1&gt; completed for 1m05s; forgotten in 2h00m." in words(keys(found))
    assert 'class="state done"' in keys(found)
    assert 'class="state held"' in keys({**found, "state": "in progress"})
    assert "Nothing is stored for this key" in keys({"found": False})
    assert "No attempt is in progress." in keys(None)
    row = {"scope": "charges", "key": "k", "name": "idempotency:7:charges:k", **HOLDING}
    text = keys(None, [row])
    assert "charges k nightly db-1 · pid 7 41 1m05s 20s" in words(text).replace("20s 20s", "20s")
    assert 'href="lock?name=idempotency%3A7%3Acharges%3Ak"' in text
    assert "keeps no records" in shown("keys", {"error": None, "supported": False})


def test_partitions_have_the_colours_of_their_members_and_free_ones_are_counted() -> None:
    cells = [
        {"index": 0, "member": 0, "fence": 21, "owned": True},
        {"index": 1, "member": 9, "fence": 22, "owned": True},
        {"index": 2, "member": None, "fence": 23, "owned": True},
        {"index": 3, "member": None, "fence": None, "owned": False},
    ]
    people = [{"holder": HOLDER, "member_for": 65.0, "fence": 11, "owned": 2}]
    group = {"name": "orders", "count": 4, "free": 1, "members": people, "partitions": cells}
    text = shown("partitions", {**READING, "supported": True, "groups": [group]})
    assert "orders 4 partitions, 1 member, 1 without an owner" in words(text).replace(" , ", ", ").replace(
        "member ,", "member,"
    )
    for cell in ("cell m0", "cell m1", "cell other", "cell free"):
        assert f'class="{cell}"' in text
    assert 'href="lock?name=orders%2F1" title="1, fence 22"' in text
    assert 'title="3, free"' in text
    assert 'aria-label="3 of 4 partitions have an owner"' in text
    assert "nightly db-1 · pid 7 2 1m05s 11" in words(text)
    two = {**group, "free": 0, "members": people * 2}
    assert "2 members" in words(shown("partitions", {**READING, "supported": True, "groups": [two]}))
    assert "without an owner" not in shown("partitions", {**READING, "supported": True, "groups": [two]})
    assert "has no semaphores" in shown("partitions", {**READING, "supported": False, "groups": []})


def test_findings_have_their_level_and_what_to_do() -> None:
    findings = [
        {"check": "fsync", "level": "problem", "found": "it is off", "why": "fences go back", "advice": "set it"},
        {"check": "version", "level": "ok", "found": "8.0", "why": "new enough", "advice": ""},
    ]
    text = shown("doctor", {"error": None, "findings": findings, "capabilities": {"fifo": True, "has_pause": False}})
    assert '<li class="problem">' in text
    assert "problem fsync it is off fences go back set it" in words(text)
    assert text.count('class="advice"') == 1
    assert '<li class="yes">fifo' in text
    assert '<li class="no">has pause' in text
    assert "nothing to say" in shown("doctor", {"error": None, "findings": [], "capabilities": {}})


def test_the_audit_shows_who_ordered_what_and_where_all_of_it_is() -> None:
    entry = {
        "time": "2026-01-02T03:04:05.678+00:00", "viewer": "ana", "address": "::1", "action": "break", "target": "a/b",
        "outcome": "failed", "reason": "stuck", "fence": None, "detail": "away",
    }  # fmt: skip
    text = words(shown("audit", {"error": None, "file": "/var/audit", "entries": [entry, {**entry, "fence": 41}]}))
    assert "2026-01-02 03:04:05 ana ::1 break a/b - stuck failed away" in text
    assert "a/b 41 stuck" in text
    assert "/var/audit" in text
    empty = words(shown("audit", {"error": None, "file": None, "entries": []}))
    assert "Nothing was ordered here" in empty
    assert "--audit FILE" in empty


def test_queues_have_their_numbers_and_the_jobs_of_one_of_them() -> None:
    row = {"queue": "refunds", "ready": 1_000, "delayed": 2, "claimed": 3, "dead": 4, "done": 5, "lag": -1.0}
    job = {"id": 9, "key": None, "attempts": 3, "changed": 65.0, "last_error": None}
    facts = {
        "error": None, "supported": True, "database": "app", "queues": [row], "queue": "refunds", "state": "dead",
        "jobs": [job],
    }  # fmt: skip
    text = shown("queue", facts)
    assert "refunds 1,000 2 3 4 5 0.0s" in words(text)
    assert 'class="chosen"' in text
    assert 'class="number dead"' in text
    assert '<a href="queue?queue=refunds&amp;state=dead" aria-current="true">dead</a>' in text
    assert "9 - 3 1m05s ago -" in words(text)
    assert 'href="delete?queue=refunds&amp;job=9"' in text
    assert "…" not in shown("queue", facts, BEN)
    assert "…" not in shown("queue", {**facts, "state": "ready"})
    assert "No job of this queue is dead." in shown("queue", {**facts, "jobs": []})
    assert "No queue has jobs" in shown("queue", {**facts, "queues": [], "queue": None})


@pytest.mark.parametrize("name", ACTIONS)
def test_a_form_asks_for_what_its_link_does_not_say(name: str) -> None:
    action = ACTIONS[name]
    query = {"name": "a/b", "fence": "41", "slot": "monday", "queue": "refunds", "job": "9"}
    fixed = {field: query[field] for field in action.fields if field in query}
    holding = HOLDING if name == "break" else None
    text = shown("order", {}, query=query, action=action, fixed=fixed, holding=holding, token="t<oken")
    assert 'name="token" value="t&lt;oken"' in text
    asked = {
        "break": ["confirm", "reason", "now"],
        "pause": ["reason", "duration"],
        "forget": ["reason"],
        "delete": ["reason"],
    }
    inputs = [each for each in re.findall(r'<input[^>]*name="(\w+)"', text) if each != "token"]
    assert inputs == asked.get(name, [])
    for field, value in fixed.items():
        assert f"{field}={value.replace('/', '%2F')}" in text.partition('autocomplete="off"')[0]
    assert ('class="danger"' in text) is (name in ("break", "delete"))
    assert f"<p>{action.summary}</p>" in text
    assert ("nightly" in text) is (name == "break")


def test_a_refusal_is_shown_as_text_and_a_notice_as_well() -> None:
    text = shown("refused", {}, message="no <rights>", page=None, layout="layout.html", notice="Paused <now>")
    assert 'role="alert">no &lt;rights&gt;<' in text
    assert 'role="status">Paused &lt;now&gt;<' in text
    assert "may write" in words(text)
    assert "read-only" in words(shown("refused", {}, BEN, message="x", page=None, layout="layout.html"))
    assert "data-stream" not in text


# --- what stands around the facts


def test_the_forms_of_a_search_keep_what_was_searched_for() -> None:
    query = {"q": 'a"b', "waiters": "1", "sort": "held", "order": "desc"}
    text = shown("locks", locks(), query=query, layout="layout.html")
    assert 'name="q" value="a&#34;b"' in text
    assert 'name="waiters" value="1" checked>' in text
    assert 'name="long" value="1">' in text, "it was not asked for"
    assert '<input type="hidden" name="sort" value="held">' in text
    assert '<input type="hidden" name="order" value="desc">' in text
    text = shown("locks", locks(), query={"long": "1"}, layout="layout.html")
    assert 'name="long" value="1" checked>' in text
    assert 'name="waiters" value="1">' in text
    assert 'type="hidden"' not in text
    facts: dict[str, Any] = {**READING, "supported": True, "running": [], "asked": None, "answer": None}
    text = shown("keys", facts, query={"scope": "a:b", "key": "<k>"}, layout="layout.html")
    assert 'name="scope" value="a:b"' in text
    assert 'name="key" value="&lt;k&gt;"' in text


@pytest.mark.parametrize(
    ("page", "current"), [("locks", "./"), ("lock", "./"), ("leaders", "leaders"), ("audit", "audit")]
)
def test_every_page_says_where_one_is_whose_store_it_is_and_who_looks(page: str, current: str) -> None:
    menu = [each for each in PAGES.values() if each.in_menu]
    text = shown(
        page, {"failed": "away"}, BEN, query={"name": "a/b"}, layout="layout.html", pages=menu, live="of=x&y=1",
        title="our <locks>", store="redis://db-1",
    )  # fmt: skip
    assert re.findall(r'<a href="([^"]*)" aria-current="page">', text) == [current]
    heading = "a/b" if page == "lock" else PAGES[page].title
    assert f"<title>{heading} \u00b7 our &lt;locks&gt;</title>" in text
    assert '<span class="store" title="the store that is shown">redis://db-1</span>' in text
    assert "ben read-only" in words(text)
    assert '<i class="role read">' in text
    assert 'data-stream="of=x&amp;y=1"' in text
    assert "Paused" not in text


def test_a_lock_of_several_holders_says_how_many_of_how_many() -> None:
    several = [HOLDING, {**HOLDING, "fence": 42, "holder": {**HOLDER, "label": "second"}}]
    text = lock(lock={**LOCK, "mode": "permit", "capacity": 3, "holdings": several})
    assert '<span class="mode">2 of 3</span>' in text
    assert "<h2>Holders</h2>" in text
    assert "nightly db-1 \u00b7 pid 7 41 1m05s" in words(text)
    assert "second db-1 \u00b7 pid 7 42 1m05s" in words(text)
    assert re.findall(r'href="break\?name=a%2Fb&amp;fence=(\d+)"', text) == ["41", "42"]
    assert '<span class="mode">shared</span>' in lock(lock={**LOCK, "mode": "shared"})
    assert ('class="mode"' in lock(), "<h2>Holder</h2>" in lock()) == (False, True)


def test_a_run_is_told_with_its_runner_its_outcome_and_its_moment() -> None:
    for text in (lock(last_run={**RUN, "outcome": "failed"}), jobs(last_run={**RUN, "outcome": "failed"})):
        assert '<span class="state failed">failed</span>' in text
        assert '<time datetime="2025-11-15T11:58:30+00:00" title="2025-11-15 11:58:30 UTC">1m30s ago</time>' in text
        assert "monday" in text
        assert "nightly db-1 \u00b7 pid 7" in words(text)


def test_the_jobs_of_a_queue_are_told_with_their_keys_and_errors() -> None:
    row = {"queue": "refunds", "ready": 1, "delayed": 2, "claimed": 3, "dead": 0, "done": 5, "lag": 65.0}
    job = {"id": 9, "key": "order<7>", "attempts": 3, "changed": 65.0, "last_error": "HTTP <502>"}
    facts = {
        "error": None, "supported": True, "database": "app<1>", "queues": [row, {**row, "queue": "mails"}],
        "queue": "refunds", "state": "ready", "jobs": [job, {**job, "id": 10, "attempts": 4}],
    }  # fmt: skip
    text = shown("queue", facts)
    assert "In <code>app&lt;1&gt;</code>" in text
    assert "refunds 1 2 3 0 5 1m05s mails" in words(text)
    assert "9 order&lt;7&gt; 3 1m05s ago HTTP &lt;502&gt; 10" in words(text)
    assert text.count('class="chosen"') == 1
    assert '<tr data-key="refunds" class="chosen">' in text
    assert "number dead" not in text
    assert '<a href="queue?queue=refunds&amp;state=ready" aria-current="true">ready</a>' in text
    assert text.count('aria-current="true"') == 1
    assert 'href="queue?queue=mails"' in text


@pytest.mark.parametrize(
    ("name", "query", "title", "cancel"),
    [
        ("pause", {"name": "a/b"}, "Pause a/b", "lock?name=a%2Fb"),
        ("forget", {"name": "a/b", "slot": "<1>"}, "Forget a/b , slot &lt;1&gt;", "lock?name=a%2Fb&amp;slot"),
        ("retry", {"queue": "refunds", "job": "9"}, "Retry refunds , job 9", "queue?queue=refunds"),
    ],
)
def test_a_form_names_what_it_is_about_and_leads_back_to_it(
    name: str, query: dict[str, str], title: str, cancel: str
) -> None:
    text = shown("order", {}, query=query, action=ACTIONS[name], fixed=query, holding=None, token="t")
    assert words(text.partition("</h1>")[0]).endswith(title)
    assert f'<a href="{cancel.partition("&amp;")[0]}">Cancel</a>' in text


@pytest.mark.parametrize("page", ["locks", "leaders", "jobs", "keys", "partitions"])
def test_what_was_read_before_the_store_went_away_is_shown_as_old(page: str) -> None:
    row = {"scope": "s", "key": "k", "name": "n", **HOLDING}
    group = {"name": "orders", "count": 0, "free": 0, "members": [], "partitions": []}
    rest: dict[str, dict[str, Any]] = {
        "locks": locks({**LOCK, "stalled": None}),
        "leaders": {"leaders": [{"name": "b", "leader": HOLDING, "candidates": 2, "terms_seen": 3}], "patterns": []},
        "jobs": {
            "supported": True, "pausable": True,
            "jobs": [{"name": "a", "running": None, "paused": None, "last_run": RUN}],
        },
        "keys": {"supported": True, "answer": None, "running": [row]},
        "partitions": {"supported": True, "groups": [group]},
    }  # fmt: skip
    assert re.search(r'class="(rows )?stale"', shown(page, {**rest[page], "error": "away", "age": 65.0}))
    assert "stale" not in shown(page, {**rest[page], **READING})
