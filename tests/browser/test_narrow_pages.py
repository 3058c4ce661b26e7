"""Tests of pages on a phone and in half a window: steady while loading, no column out of view."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Browser, Page, expect

from sawtooth.app.places import address
from tests.benchmarks.clicks import load
from tests.support.chromium import log_in
from tests.support.servers import Server, fetch

pytestmark = pytest.mark.browser
SLOWER = 3  # A phone's processor, compared with this one.
MAX_SHIFT = 0.05  # Half of what web.dev calls a good cumulative layout shift.


@pytest.mark.parametrize("screen", ["work", "timeline", "compare"])
def test_nothing_moves_on_a_phone_while_the_page_loads(
    example_server: Server, gpt_run: str, browser: Browser, screen: str
) -> None:
    other = next(run["id"] for run in json.loads(fetch(example_server, "/api/v1/runs"))["runs"] if run["id"] != gpt_run)
    query = {"a": other, "b": gpt_run} if screen == "compare" else {"run": gpt_run}
    _assert_steady(browser, f"{example_server.url}{address(screen, query)}", 390)


@pytest.mark.parametrize("width", [1440, 800])
def test_nothing_moves_while_the_live_example_loads(example_server: Server, browser: Browser, width: int) -> None:
    _assert_steady(browser, f"{example_server.url}{address('live', {})}", width)


def _assert_steady(browser: Browser, url: str, width: int) -> None:
    """Load a page with a slow processor, on which its parts appear one by one."""
    context = browser.new_context(viewport={"width": width, "height": 844})
    context.set_default_timeout(60_000)
    log_in(context)
    page = context.new_page()
    context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    found = load(page, url)
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
