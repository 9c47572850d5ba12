"""A page of Debian's Chromium that must not report a problem by the end of its test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import leasehold
from tests.waiting import LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, ConsoleMessage, Page

expect.set_options(timeout=LIMIT * 1000)  # a condition that holds ends the wait at once


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a fresh profile; scripts that fail, dialogs and breaches of the policy fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(LIMIT * 1000)
    problems: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            problems.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
    yield page
    context.close()
    assert problems == []


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


@pytest.fixture
def client(url: str) -> Iterator[leasehold.Client]:
    """A client of a worker; what it still holds at the end of a test is given back."""
    client = leasehold.connect(url, label="worker-1", slow_wait=None)
    yield client
    client.close(release=True)
