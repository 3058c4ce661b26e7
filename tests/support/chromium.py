"""The Chromium that the tests drive, and the requests of a page in it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from sawtooth.app.places import screen_named
from tests.support.servers import COOKIE

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def executable() -> str | None:
    """Return the path of a Chromium, or None if there is none.

    The order is SAWTOOTH_CHROMIUM, the system's Chromium, Playwright's Chromium.
    """
    if path := os.environ.get("SAWTOOTH_CHROMIUM"):
        return path if Path(path).exists() else None
    for name in NAMES:
        if found := shutil.which(name):
            return found
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def log_in(context: BrowserContext) -> None:
    """Add the session cookie of the tests to a browser, so that every test server accepts it."""
    name, value = COOKIE
    context.add_cookies([{"name": name, "value": value, "domain": host, "path": "/"} for host in ("localhost", "127.0.0.1")])


class PageLog:
    """The requests of a page, and its errors."""

    def __init__(self, page: Page) -> None:
        self.urls: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.urls.append(request.url))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def foreign(self, server_url: str) -> list[str]:
        """Return every requested address that is not on this server.

        ``data:`` and ``blob:`` addresses stay in the browser and do not count.
        """
        own = (server_url, server_url.replace("http", "ws", 1), "data:", "blob:")
        return [url for url in self.urls if not url.startswith(own)]


def click_to(page: Page, name: str) -> None:
    """Open a screen as a viewer does: click its place in the sidebar, then its tab."""
    place, screen = screen_named(screen_named(name).place), screen_named(name)
    if f"/{place.name}?" not in page.url or not screen.of:
        page.get_by_test_id("stSidebar").get_by_role("link", name=place.title, exact=True).click()
        page.wait_for_url(f"**/{place.name}*")
    if screen.of:
        page.locator(".st-views").get_by_role("link", name=screen.title, exact=True).click()
        page.wait_for_url(f"**/{place.name}?view={name}*")
