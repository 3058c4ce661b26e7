"""Tests of a newcomer's navigation in a browser: Back and Forward keep a comparison.

A run of the command line appears, and a file dropped anywhere is accepted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop, three_steps
from tests.support.servers import Server, start_server, without_bundled

pytestmark = pytest.mark.browser
SLOW = 90_000  # ms; a fresh server compiles and analyses
SEEN_WITHIN_SECONDS = 2.0 if (os.cpu_count() or 1) > os.getloadavg()[0] else 15.0  # 2 s on a machine with a free core.


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, list[str]]]:
    """Return a server with three runs, oldest first."""
    folder = tmp_path_factory.mktemp("minutes")
    data = DataFolder(without_bundled(folder / "data"))
    runs = []
    for name, step_us in (("before", 1000), ("after", 800), ("third", 900)):
        path = matmul_loop(steps=6, step_us=step_us, matmul_us=400).write(folder / f"{name}.json")
        runs.append(ingest_into_runs(data, [(path, path.name)], name=name).runs[0].id)
    server = start_server(folder / "data")
    yield server, runs
    server.stop()


@pytest.mark.slow
def test_a_narrow_page_shows_two_runs_side_by_side(here: tuple[Server, list[str]], page: Page) -> None:
    page.set_viewport_size({"width": 800, "height": 900})
    page.goto(here[0].url)
    names = page.locator("[class*='st-key-run_cards'] [data-testid=stPageLink]")
    expect(names).to_have_count(3, timeout=SLOW)
    expect(page.locator("h1")).to_contain_text("can gain most", timeout=SLOW)  # This headline moves the cards by one line.
    first, second, third = (names.nth(i).bounding_box() for i in range(3))
    assert first is not None and second is not None and third is not None
    assert first["y"] == second["y"] < third["y"] and first["x"] == third["x"] < second["x"]


@pytest.mark.slow
def test_back_and_forward_restore_a_comparison(here: tuple[Server, list[str]], page: Page) -> None:
    server, (a, b, third) = here
    page.goto(f"{server.url}/compare?a={a}&b={b}")
    expect(page.locator("h1")).to_contain_text("whether before or after is faster", timeout=SLOW)
    page.get_by_role("link", name="Runs").first.click()
    expect(page.locator("h1")).to_contain_text("can gain most", timeout=SLOW)
    page.go_back()
    expect(page.locator("h1")).to_contain_text("whether before or after is faster", timeout=SLOW)
    assert f"a={a}" in page.url and f"b={b}" in page.url
    page.locator(".st-key-compare_runs button").click()
    page.get_by_role("button", name="Swap sides").click()
    expect(page.locator("h1")).to_contain_text("whether after or before is faster", timeout=SLOW)
    page.go_back()
    expect(page.locator("h1")).to_contain_text("whether before or after is faster", timeout=SLOW)
    page.go_forward()
    expect(page.locator("h1")).to_contain_text("whether after or before is faster", timeout=SLOW)
    page.get_by_role("link", name="Runs").first.click()
    expect(page.locator("h1")).to_contain_text("can gain most", timeout=SLOW)
    page.get_by_role("link", name="Compare", exact=True).click()
    expect(page.locator("h1")).to_contain_text("whether after or third is faster", timeout=SLOW)
    page.go_back()
    expect(page.locator("h1")).to_contain_text("can gain most", timeout=SLOW)
    page.go_back()
    expect(page.locator("h1")).to_contain_text("whether after or before is faster", timeout=SLOW)
    page.goto(f"{server.url}/compare?a={a}&b={third}")
    expect(page.locator("h1")).to_contain_text("whether before or third is faster", timeout=SLOW)
    page.go_back()
    expect(page.locator("h1")).to_contain_text("whether after or before is faster", timeout=SLOW)


# Between ``holdBack()`` and ``release()``, the page receives no message of the server, as on a slow connection.
HOLD_BACK = """() => {
  const held = [], listen = WebSocket.prototype.addEventListener;
  let holding = false;
  window.holdBack = () => { holding = true; };
  window.release = () => { holding = false; held.splice(0).forEach((deliver) => deliver()); };
  WebSocket.prototype.addEventListener = function (kind, listener, ...rest) {
    const late = (event) => holding ? held.push(() => listener.call(this, event)) : listener.call(this, event);
    return listen.call(this, kind, kind === "message" ? late : listener, ...rest);
  };
}"""


def test_back_and_forward_before_the_page_is_drawn_open_no_run(here: tuple[Server, list[str]], page: Page) -> None:
    """The browser reports the run that the sidebar showed before Back; this is not a choice of the viewer."""
    server, (a, b, _) = here
    page.add_init_script(f"({HOLD_BACK})()")
    page.goto(f"{server.url}/compare?a={a}&b={b}")
    expect(page.locator("h1")).to_contain_text("whether before or after is faster", timeout=SLOW)
    page.locator(".st-key-compare_runs button").click()
    page.get_by_role("button", name="Swap sides").click()
    expect(page.locator("h1")).to_contain_text("whether after or before is faster", timeout=SLOW)
    page.evaluate("holdBack()")
    page.go_back()
    page.wait_for_timeout(3_000)  # The server draws the page of Back.
    page.go_forward()
    page.wait_for_timeout(1_000)
    page.evaluate("release()")
    expect(page.locator("h1")).to_contain_text("whether after or before is faster", timeout=SLOW)
    page.wait_for_timeout(1_000)
    assert f"/compare?a={b}&b={a}" in page.url


def test_runs_names_the_largest_gain_after_its_first_analyses(tmp_path: Path, page: Page) -> None:
    data = DataFolder(without_bundled(tmp_path / "data"))
    for name, step_us in (("before", 1000), ("third", 900)):
        path = matmul_loop(steps=6, step_us=step_us, matmul_us=400).write(tmp_path / f"{name}.json")
        ingest_into_runs(data, [(path, path.name)], name=name)
    server = start_server(tmp_path / "data")
    try:
        page.goto(server.url)
        expect(page.locator("h1")).to_contain_text("can gain most", timeout=SLOW)
    finally:
        server.stop()


def test_a_run_of_the_command_line_appears_by_itself(here: tuple[Server, list[str]], page: Page, tmp_path: Path) -> None:
    server, _ = here
    page.goto(f"{server.url}/runs")
    expect(page.get_by_text("third").first).to_be_visible(timeout=SLOW)
    path = matmul_loop(steps=7).write(tmp_path / "late.json")
    ingest_into_runs(DataFolder(server.data), [(path, path.name)], name="brought later")
    began = time.monotonic()
    expect(page.locator("h1")).to_contain_text("4 runs", timeout=SLOW)
    assert time.monotonic() - began < SEEN_WITHIN_SECONDS
    # Four or more runs are a table, which is drawn on a canvas. Its cells are elements for screen readers.
    expect(page.get_by_text("brought later").first).to_be_attached(timeout=SLOW)


def test_a_file_dropped_on_another_screen_is_ingested(here: tuple[Server, list[str]], page: Page, tmp_path: Path) -> None:
    server, (a, b, _) = here
    page.goto(f"{server.url}/compare?a={a}&b={b}")
    expect(page.locator("h1")).to_contain_text("whether before or after is faster", timeout=SLOW)
    content = three_steps().json().decode()
    expect(page.locator(".zone")).to_have_count(1, timeout=SLOW)
    page.evaluate(
        """content => {
            const files = new DataTransfer();
            files.items.add(new File([content], 'anywhere.json', { type: 'application/json' }));
            document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: files, bubbles: true }));
        }""",
        content,
    )
    expect(page.get_by_text("anywhere is ready.").first).to_be_visible(timeout=SLOW)
