"""Debian's Chromium, driven by Playwright, for pages that only a browser can judge.

Playwright's blocking interface keeps an event loop running in the thread that uses it, so the browser lives for one
file of tests only: another file of the same worker may start a loop of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

__all__ = ["browser"]

CHROMIUM = "/usr/bin/chromium"
QUIETLY = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without a window, which talks to nobody but the pages it is sent to."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=list(QUIETLY))
        yield chromium
        chromium.close()
