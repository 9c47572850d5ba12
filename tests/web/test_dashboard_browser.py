"""The dashboard in a real browser."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import expect
from starlette.applications import Starlette
from starlette.routing import Mount

import leasehold
from leasehold._shown import printable
from leasehold.cli.ui import serving
from leasehold.web import Role, Viewer, dashboard
from tests.waiting import eventually
from tests.web.serving import EVIL, dashboard_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

PAGES = ("", "leaders", "jobs", "keys", "queue", "partitions", "doctor", "audit")


@contextmanager
def waiting_for(client: leasehold.Client, name: str, count: int = 1) -> Iterator[None]:
    """So many waiters in the queue of a lock that somebody holds."""
    threads = [
        # Waiters of one client that share a place would be one line in the store's queue.
        threading.Thread(target=lambda: client.lock(name, reason="my turn", fair="strict").acquire(60).release())
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: (state := client.inspect(name)) is not None and len(state.waiting) == count)
    yield
    for thread in threads:
        thread.join()


def test_the_list_shows_holder_fence_and_reason_and_leads_to_the_queue(page: Page, client: leasehold.Client) -> None:
    lease = client.lock("order:1042", reason="charging the card").acquire()
    with dashboard_at(client) as address, waiting_for(client, "order:1042", 2):
        page.goto(address)
        row = page.locator("tr", has_text="order:1042")
        for text in ("worker-1", str(lease.fence), "charging the card", "held", "2"):
            expect(row).to_contain_text(text)
        assert 0 < float(row.locator("progress").get_attribute("value") or 0) <= 30
        row.get_by_role("link").click()
        expect(page.get_by_role("heading", name="order:1042")).to_be_visible()
        assert urlsplit(page.url).query == "name=order%3A1042"
        expect(page.locator("ol.queue li")).to_have_count(2)
        expect(page.locator("ol.timeline li")).to_contain_text("holds it")
        lease.release()
        expect(page.locator("ol.timeline li.closed").first).to_contain_text("released")


def test_search_and_filters_narrow_the_list_and_stay_in_the_address(page: Page, client: leasehold.Client) -> None:
    leases = [client.lock(name).acquire() for name in ("order:1", "order:2", "report")]
    with dashboard_at(client) as address, waiting_for(client, "order:2"):
        page.goto(address)
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(3)
        page.get_by_label("Search").fill("ORDER")
        expect(rows).to_have_count(2)
        page.get_by_label("has waiters").check()
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("order:2")
        page.reload()
        expect(rows).to_have_count(1)
        expect(page.get_by_label("Search")).to_have_value("ORDER")
        page.get_by_label("held > 1 min").check()
        expect(page.get_by_text("No lock fits")).to_be_visible()
        page.goto(f"{address}?sort=name&order=desc")
        expect(rows.first).to_contain_text("report")
        page.get_by_role("link", name="Name").click()
        expect(rows.first).to_contain_text("order:1")
        for lease in leases:
            lease.release()


def test_the_list_changes_by_itself_and_stands_still_while_it_is_paused(page: Page, client: leasehold.Client) -> None:
    with dashboard_at(client) as address:
        page.goto(address)
        expect(page.get_by_text("No lock is in use")).to_be_visible()
        with client.lock("first").hold():
            expect(page.locator("tbody tr")).to_contain_text("first")
            page.get_by_role("button", name="Pause").click()
            expect(page.locator("#status")).to_contain_text("paused")
        with client.lock("second").hold():
            page.wait_for_timeout(2_500)  # longer than a live page needs; there is no condition that nothing happens
            expect(page.locator("tbody tr")).to_contain_text("first")
            page.get_by_role("button", name="Go on").click()
            expect(page.locator("tbody tr")).to_contain_text("second")
            expect(page.locator("#status")).to_have_text("live")


def test_a_lock_is_broken_only_with_its_name_typed_and_a_reason(page: Page, client: leasehold.Client) -> None:
    lease = client.lock("migration").acquire()
    with dashboard_at(client) as address:
        page.goto(f"{address}lock?name=migration")
        page.get_by_role("link", name="Break…").click()
        expect(page.locator(".facts")).to_contain_text(str(lease.fence))
        page.locator("input[name=reason]").fill("it hangs since noon")
        page.locator("input[name=confirm]").fill("migratoin")
        page.get_by_role("button", name="Break").click()
        expect(page.get_by_role("alert")).to_contain_text("another one; nothing was done")
        state = client.inspect("migration")
        assert state is not None
        assert state.holdings[0].broken is None
        page.go_back()
        page.locator("input[name=reason]").fill("it hangs since noon")
        page.locator("input[name=confirm]").fill("migration")
        page.get_by_role("button", name="Break").click()
        expect(page.get_by_text("Broken. The holder learns of it")).to_be_visible()
        state = client.inspect("migration")
        assert state is not None
        assert state.holdings[0].broken == "it hangs since noon (by ana (dashboard))"
        page.goto(f"{address}audit")
        expect(page.locator("tbody tr").first).to_contain_text("it hangs since noon")


def test_a_reader_sees_no_orders_and_is_refused_by_their_forms(page: Page, client: leasehold.Client) -> None:
    lease = client.lock("migration").acquire()
    with dashboard_at(client, role=Role.READ) as address:
        page.goto(f"{address}lock?name=migration")
        expect(page.get_by_text("read-only")).to_be_visible()
        expect(page.locator("a.button")).to_have_count(0)
        page.goto(f"{address}break?name=migration&fence={lease.fence}")
        expect(page.get_by_role("alert")).to_contain_text("read-only")
        expect(page.locator("form[method=post]")).to_have_count(0)


def test_names_and_reasons_of_others_are_shown_and_never_run(page: Page, client: leasehold.Client) -> None:
    leases = [client.lock(name, reason=name).acquire() for name in EVIL]
    with dashboard_at(client) as address:
        page.goto(address)
        expect(page.locator("tbody tr")).to_have_count(len(EVIL))
        shown = set(page.locator("tbody th bdi").all_inner_texts())
        assert shown == {" ".join(printable(name).split()) for name in EVIL}
        page.goto(f"{address}?q={quote(EVIL[1])}")
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.get_by_label("Search")).to_have_value(EVIL[1])
        for name, lease in zip(EVIL, leases, strict=True):
            page.goto(f"{address}lock?name={quote(name, safe='')}")
            page.get_by_role("link", name="Break…").click()
            page.locator("input[name=confirm]").fill(printable(name))
            page.locator("input[name=reason]").fill(EVIL[1])
            page.get_by_role("button", name="Break").click()
            expect(page.locator(".state.broken")).to_be_visible()
            state = client.inspect(name)
            assert state is not None
            assert state.holdings[0].fence == lease.fence
            assert state.holdings[0].broken is not None
        page.goto(f"{address}audit")
        expect(page.locator("tbody tr")).to_have_count(2 * len(EVIL))
        assert page.evaluate("window.pwned") is None


def test_dark_mode_follows_the_system_and_a_switch_is_remembered(browser: Browser, client: leasehold.Client) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    with dashboard_at(client) as address:
        seen = {}
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme)
            page.goto(address)
            seen[scheme] = page.evaluate(colour)
        assert seen["light"] != seen["dark"]
        page.get_by_label("Switch between light and dark").click()
        assert page.evaluate(colour) == seen["light"]
        page.goto(f"{address}audit")
        assert page.evaluate(colour) == seen["light"]
        page.context.close()


def test_the_keyboard_searches_moves_opens_and_explains(page: Page, client: leasehold.Client) -> None:
    with client.lock_all(["a", "b", "c"]).hold(), dashboard_at(client) as address:
        page.goto(address)
        page.keyboard.press("/")
        expect(page.get_by_label("Search")).to_be_focused()
        page.keyboard.press("Escape")
        for key in "jjk":
            page.keyboard.press(key)
        expect(page.locator("tr[aria-selected=true]")).to_contain_text("a")
        page.keyboard.press("j")
        page.keyboard.press("?")
        expect(page.locator("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_be_hidden()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="b", exact=True)).to_be_visible()


@pytest.mark.parametrize("width", [360, 1280])
def test_no_page_needs_sideways_scrolling(page: Page, client: leasehold.Client, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    long = "tenant/" + "x" * 200
    with client.lock(long, reason="y" * 200).hold(), dashboard_at(client) as address:
        for name in (*PAGES, f"lock?name={long}"):
            page.goto(address + name)
            expect(page.locator("main")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name


def test_below_a_prefix_every_link_form_and_stream_stays_there(page: Page, client: leasehold.Client) -> None:
    lease = client.lock("a/b").acquire()
    mounted = dashboard(client, auth=lambda _: Viewer("ana", Role.WRITE))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    with serving(Starlette(routes=[Mount("/ops/locks", mounted)]), "127.0.0.1", 0) as address:
        page.goto(f"{address}ops/locks")
        for name in ("Leaders", "Audit", "Locks"):
            page.get_by_role("navigation").get_by_role("link", name=name).click()
        expect(page.locator("#status")).to_have_attribute("data-state", "live")
        page.get_by_role("link", name="a/b").click()
        page.get_by_role("link", name="Break…").click()
        page.locator("input[name=confirm]").fill("a/b")
        page.locator("input[name=reason]").fill("test")
        page.get_by_role("button", name="Break").click()
        expect(page.get_by_text("Broken. The holder learns of it")).to_be_visible()
    state = client.inspect("a/b")
    assert state is not None
    assert state.holdings[0].fence == lease.fence
    assert state.holdings[0].broken is not None
    assert {urlsplit(each).netloc for each in asked} == {urlsplit(address).netloc}
    assert all(urlsplit(each).path.startswith("/ops/locks") for each in asked)
