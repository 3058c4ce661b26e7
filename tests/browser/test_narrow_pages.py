"""Tests of pages on a phone and in half a window: steady while loading, no column out of view."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from sawtooth.app.places import address
from tests.benchmarks.clicks import load
from tests.support.chromium import log_in
from tests.support.servers import Server

pytestmark = pytest.mark.browser
MAX_SHIFT = 0.05  # Half of what web.dev calls a good cumulative layout shift.


@pytest.mark.parametrize("screen", ["work", "timeline"])
def test_nothing_moves_on_a_phone_while_the_page_loads(
    example_server: Server, gpt_run: str, browser: Browser, screen: str
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    context.set_default_timeout(60_000)
    log_in(context)
    found = load(context.new_page(), f"{example_server.url}{address(screen, {'run': gpt_run})}")
    context.close()
    assert found.failed == []
    assert found.shift <= MAX_SHIFT


def test_half_a_window_shows_each_row_of_work_complete(example_server: Server, gpt_run: str, page: Page) -> None:
    page.set_viewport_size({"width": 800, "height": 900})
    page.goto(f"{example_server.url}{address('work', {'run': gpt_run})}")
    row = page.locator(".st-key-work_narrow a").first
    expect(row).to_be_visible()
    parts = row.locator("> *").evaluate_all("parts => parts.map(part => part.getBoundingClientRect().right)")
    assert len(parts) == 4 and parts == sorted(parts) and parts[-1] <= 800  # Name, time, bar and category, in one line.
    table = page.get_by_test_id("stDataFrame").first
    expect(table).to_be_hidden()
    page.get_by_text("All columns").click()
    expect(table).to_be_visible()
    expect(row).to_be_hidden()


def test_a_phone_shows_the_numbers_of_the_roofline_without_its_charts(example_server: Server, gpt_run: str, page: Page) -> None:
    page.goto(f"{example_server.url}{address('efficiency', {'run': gpt_run})}")
    part = page.locator(".st-key-roofline_part")
    expect(part.locator(".st-key-roofline")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    expect(part.locator(".st-key-roofline")).to_be_hidden()
    expect(part.get_by_role("table")).to_be_visible()
