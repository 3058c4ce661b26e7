"""Fixtures of browser tests: a server on a free port with its own data folder, and a Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.support.chromium import PageLog, executable, log_in
from tests.support.servers import Server, start_server, without_bundled
from tests.support.timeline_page import run_named, serving_examples

# ms. Playwright's default of 5 s is too short if two servers and two browsers share two cores.
expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a Chromium for the tests of a module.

    While Playwright is running, its event loop runs in this thread, and asyncio.run of other tests fails.
    """
    path = executable()
    if path is None:
        pytest.fail(
            "No Chromium was found. Install one (apt-get install chromium, playwright install chromium) or set SAWTOOTH_CHROMIUM."
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start a server for the tests of a module, from which the bundled recordings were removed."""
    running = start_server(without_bundled(tmp_path_factory.mktemp("served") / "data"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def example_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start a server for the tests of a module, with two of the bundled recordings."""
    with serving_examples(tmp_path_factory.mktemp("timeline")) as running:
        yield running


@pytest.fixture(scope="module")
def gpt_run(example_server: Server) -> str:
    return run_named(example_server, "gpt")


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    context.set_default_timeout(30_000)
    log_in(context)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


@pytest.fixture
def seen(page: Page) -> PageLog:
    return PageLog(page)
