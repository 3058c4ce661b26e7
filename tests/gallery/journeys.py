"""Measure how long a person waits in the main tasks of the app, by a browser's clock.

    python -m tests.gallery.journeys [--live-seconds 60]

The tasks are: from a dropped trace to its sentence; from a finding with the user's own line to the step after its fix;
and from the Verdict by a copied link into another browser, and Back. It also counts how often the Live chart's nodes
leave the page in a minute. It prints one line each and exits with 1 if one fails.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.support.chromium import executable, log_in
from tests.support.paths import ROOT
from tests.support.servers import Server, start_server

RECORDINGS = ROOT / "tests" / "recordings"
WITH_STACK = RECORDINGS / "gpt_reads_stack"  # This recording has the Python line of each read of a GPU value.
REPLAYED = ROOT / "sample_traces" / "resnet_starved" / "nvml.jsonl"
WAIT_MS = 180_000
TICK_MS = 500


def main(arguments: list[str] | None = None) -> int:
    """Do all tasks; return 1 if one does not end."""
    parser = argparse.ArgumentParser(prog="python -m tests.gallery.journeys")
    parser.add_argument("--live-seconds", type=float, default=60.0)
    options = parser.parse_args(arguments)
    chromium = executable()
    if chromium is None:
        print("No Chromium here: set SAWTOOTH_CHROMIUM.", file=sys.stderr)
        return 2
    expect.set_options(timeout=WAIT_MS)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = start_server(Path(folder) / "data")
        try:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = _context(browser).new_page()
            run = _dropped(server, page)
            _fixed(server, page, run)
            _handed_on(server, browser, page, run)
            lost = _live(server, page, Path(folder) / "data", options.live_seconds)
            browser.close()
        finally:
            server.stop()
    return 1 if lost else 0


def _context(browser: Browser) -> BrowserContext:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, permissions=["clipboard-read", "clipboard-write"])
    context.set_default_timeout(WAIT_MS)
    log_in(context)
    return context


def _print_time(what: str, since: float) -> None:
    print(f"{what}: {time.monotonic() - since:.1f} s", flush=True)


def _dropped(server: Server, page: Page) -> str:
    """Drop a trace with its telemetry; return the run."""
    page.goto(server.url)
    expect(page.get_by_text("Start here")).to_be_visible()  # The bundled recordings are read first.
    begun = time.monotonic()
    page.locator("input[type=file]").first.set_input_files([str(WITH_STACK / "trace.json.gz")])
    expect(page.get_by_text("is ready.")).to_be_visible()
    _print_time("dropped, until it is ready", begun)
    page.get_by_role("link", name="See the verdict").first.click()
    expect(page.get_by_role("region", name="The step now")).to_be_visible()
    _print_time("dropped, until the sentence", begun)
    found = re.search(r"run=([0-9a-f]{16})", page.url)
    assert found, page.url
    return found[1]


def _fixed(server: Server, page: Page, run: str) -> None:
    """Read the user's own line of the first finding that has one, and select the finding's fix."""
    begun = time.monotonic()
    page.goto(f"{server.url}/verdict?run={run}")
    change = page.get_by_role("button", name=re.compile("Show the change")).first
    change.click()
    expect(page.locator(".open:visible")).to_contain_text(re.compile(r"\.py:\d+ in "))
    _print_time("opened, until the user's line", begun)
    before = page.get_by_role("heading", level=1).inner_text()  # The heading of the plan with all changes.
    begun = time.monotonic()
    page.get_by_role("checkbox").first.uncheck()
    expect(page.get_by_role("heading", level=1)).not_to_have_text(before)
    _print_time("ticked, until the new step time", begun)


def _handed_on(server: Server, browser: Browser, page: Page, run: str) -> None:
    """Compare the run with another, open the address in another browser, and go back."""
    page.goto(f"{server.url}/verdict?run={run}")
    begun = time.monotonic()
    page.get_by_role("button", name="Compare with").click()
    page.get_by_role("link", name="resnet_fixed").first.click()
    page.wait_for_url(re.compile(r"/compare\?"))
    answer = page.get_by_role("heading", level=1)
    expect(answer).to_contain_text(re.compile("resnet_fixed"))
    _print_time("Verdict, until the comparison's sentence", begun)
    address, sentence = page.url, answer.inner_text()
    begun = time.monotonic()
    context = _context(browser)
    other = context.new_page()
    other.goto(address)
    expect(other.get_by_role("heading", level=1)).to_have_text(sentence)
    _print_time("its link in another browser, until the same sentence", begun)
    context.close()
    begun = time.monotonic()
    page.go_back()
    expect(page.get_by_role("region", name="The step now")).to_be_visible()
    _print_time("Back, until the Verdict", begun)


def _live(server: Server, page: Page, data: Path, seconds: float) -> int:
    """Watch a session for ``seconds``; return how many of the chart's nodes left the page."""
    line = [sys.executable, "-m", "sawtooth.ingest.sampler", "--replay", str(REPLAYED), "--loop", "--out", str(data / "live")]
    sampler = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        page.goto(f"{server.url}/live")
        expect(page.get_by_text("samples over")).to_be_visible()
        expect(page.locator("canvas").first).to_be_visible()
        _until(lambda: page.locator("canvas").count() > 5, page)
        drawn = page.locator("canvas").evaluate_all("nodes => { window.drawn = nodes; return nodes.length }")
        first = page.get_by_text("samples over").inner_text()
        page.wait_for_timeout(seconds * 1000)
        lost = int(page.evaluate("window.drawn.filter(node => !node.isConnected).length"))
        print(
            f"live for {seconds:.0f} s: {lost} of {drawn} canvases left the page; {first} → {page.get_by_text('samples over').inner_text()}"
        )
        return lost
    finally:
        sampler.terminate()
        sampler.wait(20)


def _until(found: Callable[[], bool], page: Page) -> None:
    for _ in range(WAIT_MS // TICK_MS):
        if found():
            return
        page.wait_for_timeout(TICK_MS)
    raise TimeoutError("it did not happen in time")


if __name__ == "__main__":
    sys.exit(main())
