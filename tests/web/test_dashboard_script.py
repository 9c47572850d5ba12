"""The script of the dashboard in a browser: what the keyboard, the filter and the stream do, step by step.

No server is behind the page: the test answers its requests, and sends the frames of its stream itself.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from leasehold.web import Role, Viewer
from leasehold.web.drawing import FILES, draw
from leasehold.web.pages import PAGES

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

ADDRESS = "http://dashboard.test/"
HOLDING = {
    "holder": {"host": "db-1", "pid": 7, "label": None, "reason": None}, "fence": 41, "held_for": 65.0,
    "expires_in": 20.0, "ttl_seen": 30.0, "renewed_ago": None, "broken": None, "cooling": False,
}  # fmt: skip
STREAMS = """
    window.streams = [];
    window.EventSource = class extends EventTarget {
        static CLOSED = 2;
        constructor(url) { super(); this.url = url; this.readyState = 1; streams.push(this); }
        close() { this.readyState = 2; }
    };
"""


def stop_time(page: Page) -> None:
    """From now on it passes for the script only when it is said."""
    page.clock.pause_at(datetime(2100, 1, 1, tzinfo=UTC))


def locks(*names: str, layout: str = "layout.html", page: str = "locks", live: str = "of=locks") -> str:
    """The list with these locks."""
    rows = [
        {
            "name": name, "state": "held", "mode": "exclusive", "capacity": None, "holdings": [HOLDING], "waiters": 0,
            "waiting": [], "paused": None, "stalled": None,
        }
        for name in names
    ]  # fmt: skip
    totals = {"names": len(names), "held": len(names), "waiters": 0, "paused": 0, "longest": 65.0}
    facts = {
        "error": None, "age": 0.5, "queues": True, "totals": totals, "found": len(names), "page": 1, "pages": 1,
        "locks": rows,
    }  # fmt: skip
    return draw(
        page, facts=facts, viewer=Viewer("ana", Role.READ), query={}, title="leasehold", store="redis", live=live,
        page=PAGES.get(page), pages=list(PAGES.values()), notice=None, layout=layout, message="no",
    )  # fmt: skip


class Screen:
    """A page with the script, and the streams that it opened."""

    def __init__(self, page: Page, document: str) -> None:
        self.page = page
        self._document = document
        self.visited: list[str] = []
        page.add_init_script(STREAMS)
        page.route("**/*", self._answer)
        page.goto(ADDRESS)

    def _answer(self, route: Route) -> None:
        address = urlsplit(route.request.url)
        content, kind = FILES.get(address.path.removeprefix("/static/"), (None, ""))
        if content is not None:
            route.fulfill(body=content, content_type=kind)
            return
        self.visited.append(address.path[1:] + (f"?{address.query}" if address.query else ""))
        route.fulfill(body=self._document, content_type="text/html; charset=utf-8")

    def send(self, *names: str) -> None:
        """The next frame of the stream that was opened last, with these locks."""
        frame = json.dumps(locks(*names, layout="fragment.html"))
        self.page.evaluate("data => streams.at(-1).dispatchEvent(new MessageEvent('page', {data}))", frame)

    def fail(self, state: int) -> None:
        """The stream that was opened last fails, and is in this state then."""
        self.page.evaluate(
            "state => { streams.at(-1).readyState = state; streams.at(-1).dispatchEvent(new Event('error')); }", state
        )

    def streams(self) -> list[tuple[str, bool]]:
        """The address of each stream that was opened, and whether it is open."""
        return [(each[0], each[1]) for each in self.page.evaluate("streams.map(s => [s.url, s.readyState !== 2])")]

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def chosen(self) -> list[str]:
        """The rows that are marked."""
        found: list[str] = self.page.evaluate(
            "[...document.querySelectorAll('tr[aria-selected=true]')].map(row => row.dataset.key)"
        )
        return found

    def names(self) -> list[str]:
        return self.page.locator("tbody th bdi").all_inner_texts()

    def status(self) -> tuple[str, str]:
        status = self.page.locator("#status")
        return status.get_attribute("data-state") or "", status.inner_text()


@pytest.fixture
def screen(page: Page) -> Screen:
    return Screen(page, locks("a", "b", "c"))


# --- rows


def test_keys_go_from_row_to_row_and_stay_at_the_ends(screen: Screen) -> None:
    rows = {"j": "a", "k": "c", "jj": "b", "jjk": "a", "jjjj": "c", "kkkk": "a", "kj": "c"}  # the first k: from below
    for keys, chosen in rows.items():
        screen.press(*keys)
        assert (keys, screen.chosen()) == (keys, [chosen])
        screen.page.reload()


def test_the_chosen_row_stays_chosen_wherever_the_next_frame_has_it(screen: Screen) -> None:
    screen.press("j", "j")
    screen.send("x", "c", "a", "b")
    assert (screen.names(), screen.chosen()) == (["x", "c", "a", "b"], ["b"])
    screen.press("k")
    assert screen.chosen() == ["a"]
    screen.send("x", "c")
    assert screen.chosen() == []
    screen.press("j")
    assert screen.chosen() == ["x"], "it is gone: from the beginning"
    screen.send()
    screen.press("j", "Enter")
    assert screen.visited == [""], "there is nothing to choose or to open"


def test_enter_opens_the_chosen_row_and_not_while_a_link_or_button_has_it(screen: Screen) -> None:
    screen.press("Enter")
    assert screen.visited == [""]
    screen.press("j", "j")
    screen.page.locator("#pause").focus()
    screen.press("Enter")
    assert screen.page.locator("#pause").inner_text() == "Go on", "it was meant for the button"
    screen.page.evaluate("document.activeElement.blur()")
    screen.press("Enter")
    screen.page.wait_for_url("**/lock?name=b")
    assert screen.visited == ["", "lock?name=b"]


def test_keys_are_letters_where_one_types_and_shortcuts_of_the_browser_stay_its_own(screen: Screen) -> None:
    screen.press("/")
    screen.page.keyboard.type("jp/t?")
    expect(screen.page.get_by_label("Search")).to_have_value("jp/t?")
    screen.press("Escape")
    assert screen.page.evaluate("document.activeElement === document.body")
    screen.press("Control+j", "Alt+j", "Meta+j")
    assert screen.chosen() == []
    screen.press("?", "j", "p")
    expect(screen.page.locator("dialog")).to_be_visible()
    assert (screen.chosen(), screen.page.locator("#pause").inner_text()) == ([], "Pause")
    screen.press("Escape")
    screen.page.locator("#keys").click()
    expect(screen.page.locator("dialog")).to_be_visible()


# --- frames


def test_a_frame_takes_the_place_of_the_last_and_a_link_keeps_the_focus(screen: Screen) -> None:
    assert screen.status() == ("static", "loaded")
    screen.page.get_by_role("link", name="b", exact=True).focus()
    screen.send("z", "b")
    assert screen.status() == ("live", "live")
    assert screen.names() == ["z", "b"]
    assert screen.page.evaluate("document.activeElement.getAttribute('href')") == "lock?name=b"
    screen.send("z")
    assert screen.page.evaluate("document.activeElement === document.body"), "it is gone"
    search = screen.page.get_by_label("Search")
    search.focus()
    screen.send("y")
    expect(search).to_be_focused()


def test_a_pause_ends_the_stream_and_going_on_asks_for_the_same_again(screen: Screen) -> None:
    assert screen.streams() == [("stream?of=locks", True)]
    screen.press("p")
    button = screen.page.locator("#pause")
    assert (button.inner_text(), button.get_attribute("aria-pressed")) == ("Go on", "true")
    assert screen.status()[0] == "static"
    assert screen.status()[1].startswith("paused ")
    assert screen.streams() == [("stream?of=locks", False)]
    screen.send("late")
    assert screen.names() == ["a", "b", "c"], "what was on its way is not shown"
    button.click()
    assert (button.inner_text(), button.get_attribute("aria-pressed")) == ("Pause", "false")
    assert screen.status() == ("static", "loading")
    assert screen.streams() == [("stream?of=locks", False), ("stream?of=locks", True)]
    screen.send("d")
    assert screen.names() == ["d"]


def test_a_stream_that_fails_is_told_and_asked_for_again_where_the_browser_does_not(page: Page) -> None:
    page.clock.install()
    screen = Screen(page, locks("a"))
    stop_time(page)
    screen.fail(0)
    page.clock.fast_forward(60_000)
    assert screen.status() == ("lost", "no connection")
    assert len(screen.streams()) == 1, "the browser tries again by itself"
    screen.fail(2)
    page.clock.fast_forward(4_900)
    assert len(screen.streams()) == 1
    page.clock.fast_forward(200)
    assert screen.streams()[1:] == [("stream?of=locks", True)]
    screen.send("b")
    assert screen.status() == ("live", "live")
    screen.fail(2)
    screen.press("p")
    page.clock.fast_forward(60_000)
    assert len(screen.streams()) == 2, "it is paused"


def test_a_page_that_nobody_sees_has_no_stream(screen: Screen) -> None:
    hide = "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); "
    tell = "document.dispatchEvent(new Event('visibilitychange')); }"
    screen.page.evaluate(hide + tell, True)
    assert screen.streams() == [("stream?of=locks", False)]
    screen.page.evaluate(hide + tell, False)
    screen.page.evaluate(hide + tell, False)
    assert screen.streams() == [("stream?of=locks", False), ("stream?of=locks", True)]
    screen.press("p")
    screen.page.evaluate(hide + tell, False)
    assert [is_open for _, is_open in screen.streams()] == [False, False], "it is paused"


# --- the filter


def test_the_filter_asks_for_what_is_typed_once_the_typing_has_stopped(page: Page) -> None:
    page.clock.install()
    screen = Screen(page, locks("a"))
    stop_time(page)
    expect(page.get_by_role("button", name="Show")).to_be_hidden()
    search = page.get_by_label("Search")
    search.fill("ord")
    page.clock.run_for(150)
    search.fill("order:1 & x")
    page.clock.run_for(150)
    assert len(screen.streams()) == 1, "more is being typed"
    page.clock.run_for(100)
    asked = "q=order%3A1+%26+x"
    assert screen.streams() == [("stream?of=locks", False), (f"stream?of=locks&{asked}", True)]
    assert page.url == f"{ADDRESS}?{asked}"
    page.get_by_label("has waiters").check()
    page.clock.run_for(250)
    assert screen.streams()[-1] == (f"stream?of=locks&{asked}&waiters=1", True)
    search.fill("")
    page.get_by_label("has waiters").uncheck()
    page.clock.run_for(250)
    assert screen.streams()[-1] == ("stream?of=locks&", True)
    assert page.url == ADDRESS
    assert [is_open for _, is_open in screen.streams()][:-1] == [False] * (len(screen.streams()) - 1)
    assert screen.visited == [""], "no page was loaded anew"


def test_enter_in_the_filter_asks_at_once_and_gives_the_keyboard_back(page: Page) -> None:
    page.clock.install()
    screen = Screen(page, locks("a"))
    stop_time(page)
    screen.press("/")
    page.keyboard.type("cart")
    screen.press("Enter")
    assert screen.streams()[-1] == ("stream?of=locks&q=cart", True)
    assert (page.url, screen.visited) == (f"{ADDRESS}?q=cart", [""])
    screen.press("j")
    assert screen.chosen() == ["a"]


# --- the theme, and pages that do not change


@pytest.mark.parametrize(("scheme", "themes"), [("light", ["dark", "light"]), ("dark", ["light", "dark"])])
def test_the_theme_is_switched_from_what_is_seen_and_remembered(page: Page, scheme: Any, themes: list[str]) -> None:
    page.emulate_media(color_scheme=scheme)
    screen = Screen(page, locks("a"))
    theme = "document.documentElement.dataset.theme ?? null"
    assert page.evaluate(theme) is None
    for number, wanted in enumerate(themes):
        if number == 0:
            screen.press("t")
        else:
            page.locator("#theme").click()
        assert page.evaluate(theme) == wanted
        page.reload()
        assert page.evaluate(theme) == wanted
    page.evaluate("localStorage.setItem('leasehold-theme', 'purple')")
    page.reload()
    assert page.evaluate(theme) is None


def test_a_page_without_a_stream_has_the_keyboard_all_the_same(page: Page) -> None:
    screen = Screen(page, locks(page="refused", live=""))
    screen.press("j", "k", "p", "Enter", "/")
    assert screen.streams() == []
    screen.press("?")
    expect(page.locator("dialog")).to_be_visible()
