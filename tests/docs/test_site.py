"""The site: it builds without a warning, every link in it leads somewhere, nothing comes from outside, search works."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

import leasehold
from tests.waiting import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page, ViewportSize

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r'<a\b[^>]*?\shref="([^"]*)"')
ANCHOR = re.compile(r'\s(?:id|name)="([^"]+)"')
ASSET = re.compile(r'<(?:script|img|iframe|source|video|link)\b[^>]*?\s(?:src|srcset|href)="([^"]*)"')
IN_STYLE = re.compile(r"(?:url\(|@import)\s*['\"]?([^'\")\s]+)")
WIDE: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built once."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"make site shows the same:\n{done.stdout}{done.stderr}"
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site as a server on this host gives it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class Silent(SimpleHTTPRequestHandler):
    """Serves files, and says nothing about it."""

    def log_message(self, *_: object) -> None: ...


def leads_nowhere(site: Path) -> list[str]:
    """The links between pages that have no end."""
    pages = {page: page.read_text() for page in site.rglob("*.html")}
    anchors = {page: {"", *ANCHOR.findall(text)} for page, text in pages.items()}
    dead = []
    for page, text in pages.items():
        for link in set(LINK.findall(text)):
            parts = urlsplit(link)
            if (
                parts.scheme or page.name == "404.html"
            ):  # which is served for any address, so its links begin at the top
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or unquote(parts.fragment) not in anchors.get(target, {parts.fragment}):
                dead.append(f"{page.relative_to(site)}: {link}")
    return dead


def fetched_from_outside(site: Path) -> list[str]:
    """What pages and style sheets of the site would fetch from another host."""
    texts = [(page, ASSET) for page in site.rglob("*.html")] + [(sheet, IN_STYLE) for sheet in site.rglob("*.css")]
    return [
        f"{file.relative_to(site)}: {found}"
        for file, pattern in texts
        for found in pattern.findall(file.read_text())
        if not found.startswith("data:") and urlsplit(found).netloc
    ]


def test_every_link_leads_to_a_page_and_a_heading(site: Path) -> None:
    assert leads_nowhere(site) == []


def test_no_page_fetches_anything_from_outside(site: Path) -> None:
    assert fetched_from_outside(site) == []
    # The theme would fetch the script that draws these; ours are drawn while the site is built.
    assert [page for page in site.rglob("*.html") if 'class="mermaid"' in page.read_text()] == []


def test_a_bad_link_and_a_foreign_script_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<a href="a.html#b">b</a> <script src="https://example.org/x.js"></script>')
    (tmp_path / "a.html").write_text('<a href="index.html">back</a> <a href="gone.html">gone</a>')
    (tmp_path / "a.css").write_text("@import '//example.org/font.css'; a { background: url(data:image/png;base64,AA) }")
    assert sorted(leads_nowhere(tmp_path)) == ["a.html: gone.html", "index.html: a.html#b"]
    assert fetched_from_outside(tmp_path) == ["index.html: https://example.org/x.js", "a.css: //example.org/font.css"]


def test_the_version_is_on_every_page(site: Path) -> None:
    version = f"leasehold {leasehold.__version__}"
    assert [page for page in site.rglob("*.html") if version not in page.read_text()] == []


def test_a_reader_searches_for_a_word_and_nothing_comes_from_outside(browser: Browser, address: str) -> None:
    with a_page(browser, WIDE) as page:
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        assert page.title() == "leasehold"
        page.keyboard.press("s")  # the theme's key for the search field
        page.get_by_role("textbox", name="Search").fill("stampede")
        page.locator(".md-search-result__link", has_text="Cache without a stampede").first.click()
        page.wait_for_url(lambda url: "cache-without-stampede" in url)
        assert "Cache without a stampede" in page.locator("h1").inner_text()
        assert [url for url in requests if not url.startswith((address, "data:"))] == []


def test_colours_follow_the_system_and_the_switch(browser: Browser, address: str) -> None:
    with a_page(browser, WIDE, color_scheme="dark") as page:
        page.goto(f"{address}how-to/sell-the-last-ticket.html")
        assert brightness(page, ".plot text", "fill") > 128 > brightness(page, "body", "backgroundColor")
        page.locator("label[title='Switch to light mode']").click()
        assert brightness(page, ".plot text", "fill") < 128 < brightness(page, "body", "backgroundColor")


def test_a_telephone_shows_pages_without_moving_them_sideways(browser: Browser, address: str) -> None:
    with a_page(browser, PHONE) as page:
        for path in ("index", "tutorial", "reference/capabilities", "reference/cli", "reference/api/telemetry"):
            page.goto(f"{address}{path}.html", wait_until="domcontentloaded")
            assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"], path


@contextmanager
def a_page(browser: Browser, viewport: ViewportSize, **more: Any) -> Iterator[Page]:
    """A page with fresh memory; on a busy machine it takes its time."""
    with browser.new_context(viewport=viewport, **more) as context:
        context.set_default_timeout(LIMIT * 1000)
        yield context.new_page()


def brightness(page: Page, selector: str, style: str) -> float:
    """How bright a colour is as the browser draws it: 0 is black, 255 is white."""
    colour = str(page.locator(selector).first.evaluate(f"element => getComputedStyle(element)['{style}']"))
    red, green, blue = map(float, re.findall(r"[\d.]+", colour)[:3])
    return 0.299 * red + 0.587 * green + 0.114 * blue
