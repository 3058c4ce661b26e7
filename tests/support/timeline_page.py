"""Helpers for browser tests of the timeline: wait for it, and read the visible range."""

from __future__ import annotations

from playwright.sync_api import Page

from tests.support.servers import Server


def opened(page: Page, server: Server, run: str, more: str = "") -> None:
    page.goto(f"{server.url}/timeline?run={run}{more}")
    settled(page)


def settled(page: Page) -> None:
    """Wait until every tile of the view is drawn."""
    until(page, "!!window.sawtoothTimeline && sawtoothTimeline.tiles.settled() && sawtoothTimeline.frames.length > 2")


def until(page: Page, true: str) -> None:
    """Wait until a line of JavaScript is true.

    Playwright's own wait is not allowed by the content security policy of the page.
    """
    for _ in range(600):
        if page.evaluate(true):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {true}")


def view(page: Page) -> tuple[float, float]:
    """Return the visible range in ns after the recording's start."""
    start, end = page.evaluate("[sawtoothTimeline.target.start, sawtoothTimeline.target.end]")
    return start, end
