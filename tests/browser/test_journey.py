"""Tests of the main task in a real browser, from a dropped trace to the verdict and its details.

After a reload the same place is shown again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from sawtooth.app.page.navigation import HIDDEN_IF_EMPTY
from sawtooth.app.places import SCREENS
from sawtooth.ingest.schema import DataFolder
from tests.support.chromium import PageLog, click_to, log_in
from tests.support.paths import ROOT
from tests.support.servers import Server, start_server

pytestmark = pytest.mark.browser

TRACE = ROOT / "tests" / "recordings" / "mlp_eager"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start_server(tmp_path_factory.mktemp("bundled") / "data")
    yield running
    running.stop()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Server]:
    """Return a server without runs of the user, also if the test runs again."""
    running = start_server(tmp_path / "data")
    yield running
    running.stop()


def test_a_dropped_trace_leads_to_the_answer_and_back(fresh: Server, page: Page, seen: PageLog) -> None:
    page.goto(fresh.url)
    expect(page.get_by_text("Start here")).to_be_visible(timeout=120_000)  # The server reads the bundled recordings first.

    page.locator("input[type=file]").first.set_input_files([str(TRACE / "trace.json.gz"), str(TRACE / "nvml.jsonl")])
    ready = page.get_by_text(re.compile(r" is ready\.$"))
    expect(ready).to_be_visible(timeout=120_000)
    name = ready.inner_text().removesuffix(" is ready.")
    # The list no longer has the examples.
    expect(page.get_by_role("heading", level=1)).to_contain_text("1 run on this machine")
    page.get_by_role("link", name="See the verdict").first.click()
    expect(page.get_by_text(f"{name} · NVIDIA H200")).to_be_visible(timeout=60_000)  # The run has the name given at upload.

    answer = page.get_by_role("heading", level=1)
    expect(answer).to_contain_text(re.compile(r":\s(≈\s)?\d.*\s→\s≈.*×"))
    expect(page.get_by_text("Both changes: ", exact=False)).to_be_visible()
    assert re.search(r"/verdict\?run=[0-9a-f]{16}$", page.url)
    expect(page.get_by_role("region", name="The step now")).to_be_visible()
    page.get_by_role("button", name=re.compile("Show the change")).first.click()  # The first change to make.
    expect(page.get_by_role("button", name="Copy the change")).to_be_visible()
    page.keyboard.press("Escape")

    page.get_by_test_id("stSidebar").get_by_role("link", name="Timeline").click()
    expect(answer).to_contain_text("The GPU works")
    _drag_across(page)
    expect(page.get_by_role("region", name="Details")).to_contain_text("Where the time goes")
    page.keyboard.press("f")
    page.wait_for_url(re.compile(r"[?&]t0=[\d.]+&t1=[\d.]+"))
    expect(answer).to_contain_text("in view")
    address, sentence = page.url, answer.inner_text()

    page.reload()
    expect(answer).to_have_text(sentence)
    assert page.url == address

    assert seen.foreign(fresh.url) == []
    assert seen.errors == []


def _example(server: Server, page: Page) -> str:
    """Return the first bundled run when the list shows it.

    The list shows bundled runs only to users without own runs.
    """
    for _ in range(240):
        if found := [manifest.id for manifest in DataFolder(server.data).manifests() if manifest.name == "resnet_starved"]:
            return found[0]
        page.wait_for_timeout(500)
    raise AssertionError("the bundled runs were not read in two minutes")


def _drag_across(page: Page) -> None:
    """Select the middle third of the picture's width, as a person does with the mouse."""
    picture = page.locator("canvas.lanes")
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    assert box is not None
    y = box["y"] + 60
    page.mouse.move(box["x"] + box["width"] / 3, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, y, steps=5)
    page.mouse.move(box["x"] + box["width"] * 2 / 3, y, steps=5)
    page.mouse.up()


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (800, "dark")])
def test_every_screen_shows_its_answer_first_and_fits_the_page(
    server: Server, browser: Browser, width: int, scheme: str
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme)
    log_in(context)
    context.set_default_timeout(60_000)
    page = context.new_page()
    watched = PageLog(page)
    page.goto(server.url)
    expect(page.get_by_text("Three ways to add a run")).to_be_visible(timeout=120_000)
    page.goto(f"{server.url}/verdict")
    for screen in (item for item in SCREENS if item.name not in HIDDEN_IF_EMPTY):
        click_to(page, screen.name)
        expect(page.get_by_role("heading", level=1).first).to_be_visible()
        expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
        expect(page.get_by_text("This page failed")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), screen.name
        assert page.locator("img:not([alt])").count() == 0, screen.name
    assert watched.foreign(server.url) == []
    assert watched.errors == []
    context.close()


# This script withholds the server's messages from the first drawing of the tabs until ``release()``.
HOLD_BACK = """() => {
  const held = [], listen = WebSocket.prototype.addEventListener;
  let holding = true;
  window.release = () => { holding = false; held.splice(0).forEach((deliver) => deliver()); };
  WebSocket.prototype.addEventListener = function (kind, listener, ...rest) {
    const late = (event) => {
      const deliver = () => listener.call(this, event);
      holding && document.querySelector(".st-views") ? held.push(deliver) : deliver();
    };
    return listen.call(this, kind, kind === "message" ? late : listener, ...rest);
  };
}"""


def test_a_late_change_of_the_address_does_not_undo_a_click(server: Server, page: Page) -> None:
    """Work removes an unknown row from the address.

    When this new address reaches the browser, the viewer may have left Work.
    """
    page.add_init_script(f"({HOLD_BACK})()")
    page.goto(f"{server.url}/work?run={_example(server, page)}&row=unknown")
    memory = page.locator(".st-views").get_by_role("link", name="Memory")
    expect(memory).to_be_visible(timeout=60_000)
    page.wait_for_timeout(3_000)  # The server finishes Work.
    memory.click()
    page.wait_for_url(re.compile(r"/work\?view=memory&run="))
    page.evaluate("release()")
    expect(page.locator(".st-views [aria-current=page]")).to_have_text("Memory")
    expect(page).to_have_url(re.compile(r"/work\?view=memory&run=[0-9a-f]{16}$"))


def test_a_tab_redrawn_during_a_click_opens(server: Server, page: Page) -> None:
    """The browser sends no click to a link that is new when the button is released.

    The tabs are drawn anew after each click.
    """
    page.goto(f"{server.url}/work?run={_example(server, page)}")
    expect(page.get_by_role("heading", name=re.compile("What to do about"))).to_be_visible(timeout=60_000)
    while not page.evaluate("Boolean(window.sawtoothKeys)"):  # Wait for the page's own script.
        page.wait_for_timeout(50)
    page.locator(".st-views").get_by_role("link", name="Memory").hover()
    page.mouse.down()
    page.locator(".st-views").evaluate("tabs => { tabs.innerHTML = tabs.innerHTML; }")
    page.mouse.up()
    page.wait_for_url(re.compile(r"/work\?view=memory&run="))


def test_the_search_of_every_page_opens_a_kernel_and_a_tab_keeps_the_focus(server: Server, page: Page) -> None:
    while not (runs := [run.id for run in DataFolder(server.data).manifests() if run.name == "resnet_starved"]):
        page.wait_for_timeout(250)  # The bundled recordings are being read.
    page.goto(f"{server.url}/verdict?run={runs[0]}")
    expect(page.get_by_role("region", name="The step now")).to_be_visible(timeout=60_000)
    page.keyboard.press("Control+k")
    found = page.get_by_role("option")
    expect(found.filter(has_text="Work › Memory")).to_be_visible()
    page.keyboard.type("kernel batch norm")
    expect(found.first).to_contain_text("batch_norm")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/work\?run=[0-9a-f]{16}&name="))
    expect(page.get_by_role("heading", name=re.compile("What to do about batch_norm"))).to_be_visible()
    page.locator(".st-views").get_by_role("link", name="Memory").press("Enter")
    page.wait_for_url(re.compile(r"/work\?view=memory&run="))
    expect(page.locator(".st-views [aria-current=page]")).to_be_focused()
    page.go_back()
    expect(page.get_by_role("textbox", name="Search")).to_have_value(re.compile("batch_norm"))
