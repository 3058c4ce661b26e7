"""Measure how fast and stable the pages are in Chromium.

    python -m tests.benchmarks.clicks --data FOLDER [--rounds 5] [--screens runs timeline …] [--themes light,dark]

It opens the largest run of ``--data``. For each screen it prints the medians of the rounds: the time from the click on the
screen's link to the first sentence and to the first new picture, and the bytes received. Then it opens each address in a new
page and prints the layout shift, failed requests, console errors and axe-core's serious violations. For the Verdict, it also
prints the time from a click on a change's check box to the second frame after it. The machine's load is printed first,
because wall times on a busy machine mean little without it.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from sawtooth.app.places import PLACES, address, screen_named
from sawtooth.ingest.schema import DataFolder
from tests.benchmarks.pages import largest
from tests.gallery.__main__ import AXE, AXE_CHECK
from tests.support.chromium import click_to, executable, log_in
from tests.support.servers import Server, start_server

QUIET_MS = 1000  # A page that receives no byte for this time is complete.
MAX_WAIT_MS = 10_000  # The wait ends after this time, because a page with a clock is never complete.
WAIT_MS = 120_000
# Runs in the page. A picture counts from its first frame, also in the shadow trees of components.
WATCH = """() => {
  const PICTURES = "canvas, .js-plotly-plot .main-svg, [role=img], .stairs .seg, .st-poster svg";
  const GIVE_UP_MS = 60_000;
  const all = (selector, root = document, found = []) => {
    found.push(...root.querySelectorAll(selector));
    for (const one of root.querySelectorAll("*")) if (one.shadowRoot) all(selector, one.shadowRoot, found);
    return found;
  };
  const shown = (one) => { const box = one.getBoundingClientRect(); return box.width > 20 && box.height > 8; };
  const title = () => all("h1, h2.st-title").filter(shown).map((one) => one.textContent)[0] ?? "";
  window.clickTimes = { shift: 0 };
  new PerformanceObserver((list) => { for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.clickTimes.shift += entry.value; }).observe({ type: "layout-shift", buffered: true });
  window.watchClick = (ready) => {
    const before = title(), old = new Set(all(PICTURES)), times = { title: null, picture: null };
    let done;
    window.clickDone = new Promise((resolve) => (done = resolve)); // the page's security policy forbids Playwright's own waiting
    addEventListener("click", () => {
      const start = performance.now();
      const look = () => {
        const now = performance.now() - start, text = title();
        if (now > GIVE_UP_MS) return done({ ...times, picture: null });
        if (times.title === null && text && text !== before) times.title = now;
        const marked = performance.getEntriesByName("timeline-whole").some((mark) => mark.startTime > start);
        if (times.title !== null && (ready === "mark" ? marked : all(PICTURES).some((one) => !old.has(one) && shown(one)))) done({ ...times, picture: now });
        else requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    }, { capture: true, once: true });
  };
  window.tickTime = () => new Promise((done) => {
    const box = all(".stairs input[type=checkbox]")[0];
    if (!box) return done(null);
    const start = performance.now();
    box.click();
    requestAnimationFrame(() => requestAnimationFrame(() => { box.click(); done(performance.now() - start); }));
  });
}"""


@dataclass
class Clicked:
    """The results of one screen's rounds, in milliseconds and bytes."""

    title: list[float] = field(default_factory=list)
    picture: list[float] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)


class Received:
    """What a page has received since ``bytes`` was set to 0, as Chromium counts it.

    The app's own files do not count.
    """

    def __init__(self, page: Page) -> None:
        self.bytes = 0
        app: set[str] = set()
        chromium = page.context.new_cdp_session(page)
        chromium.send("Network.enable")
        chromium.on("Network.webSocketFrameReceived", lambda event: self._add(_length(event["response"])))
        chromium.on(
            "Network.requestWillBeSent", lambda event: "/static/" in event["request"]["url"] and app.add(event["requestId"])
        )
        chromium.on(
            "Network.loadingFinished",
            lambda event: self._add(int(event["encodedDataLength"]) * (event["requestId"] not in app)),
        )

    def _add(self, count: int) -> None:
        self.bytes += count

    def settle(self, page: Page) -> int:
        """Return the bytes when the page is complete, or after MAX_WAIT_MS."""
        quiet = waited = 0
        while quiet < QUIET_MS and waited < MAX_WAIT_MS:
            before = self.bytes
            page.wait_for_timeout(100)
            waited, quiet = waited + 100, 0 if self.bytes != before else quiet + 100
        return self.bytes


def _length(frame: dict[str, Any]) -> int:
    text = str(frame["payloadData"])
    return len(text) if frame["opcode"] == 1 else 3 * len(text) // 4  # Binary frames are in base64.


def clicks(page: Page, url: str, run: str, names: list[str], rounds: int) -> dict[str, Clicked]:
    """Click on each screen from the Verdict, and on the Verdict from Runs.

    The first round only fills caches.
    """
    times = {name: Clicked() for name in names}
    received = Received(page)
    page.add_init_script(f"({WATCH})()")
    for measured in range(rounds + 1):
        for name in names:
            start = "runs" if name == "verdict" else "verdict"
            page.goto(f"{url}{address(start, {'run': run})}")
            page.locator("h1").first.wait_for()
            received.settle(page)
            if screen_named(name).of:
                click_to(page, screen_named(name).of)
                received.settle(page)
            received.bytes = 0
            page.evaluate("ready => watchClick(ready)", "mark" if name == "timeline" else "new")
            click_to(page, name)
            took = page.evaluate("clickDone")
            sent = received.settle(page)
            if took["picture"] is None:
                sys.exit(f"{name} showed no picture: {page.url}")
            if measured:
                times[name].title.append(took["title"])
                times[name].picture.append(took["picture"])
                times[name].sent.append(sent)
    return times


@dataclass
class Loaded:
    """The problems of a screen whose address is opened."""

    shift: float
    tick_ms: float | None
    failed: list[str]
    axe: list[str]


def load(page: Page, url: str) -> Loaded:
    """Open an address; return the layout shift, what failed, and what axe-core finds."""
    failed: list[str] = []
    page.on("response", lambda got: failed.append(f"{got.status} {got.url}") if got.status >= 400 else None)
    page.on("console", lambda answer: failed.append(answer.text) if answer.type == "error" else None)
    page.add_init_script(f"({WATCH})()")
    received = Received(page)
    page.goto(url)
    page.locator("h1").first.wait_for()
    received.settle(page)
    shift, tick = page.evaluate("clickTimes.shift"), page.evaluate("tickTime()")
    page.evaluate(AXE)
    ours, theirs = page.evaluate(AXE_CHECK)
    return Loaded(shift, tick, failed, [*ours, *theirs])


def _measure(browser: Browser, server: Server, run: str, options: argparse.Namespace) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(WAIT_MS)
    log_in(context)
    print("| screen | to its sentence, ms | to its picture, ms | slowest, ms | kB |\n|---|---:|---:|---:|---:|")
    for name, took in clicks(context.new_page(), server.url, run, options.screens, options.rounds).items():
        to_title, picture = statistics.median(took.title), statistics.median(took.picture)
        print(
            f"| {name} | {to_title:.0f} | {picture:.0f} | {max(took.picture):.0f} | {statistics.median(took.sent) / 1e3:.0f} |"
        )
    context.close()
    print(
        "\n| screen | theme | layout shift | tick, ms | failed requests, console errors | axe, serious |\n|---|---|---:|---:|---|---|"
    )
    for theme in options.themes.split(","):
        context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=theme)
        context.set_default_timeout(WAIT_MS)
        log_in(context)
        for name in options.screens:
            page = context.new_page()
            found = load(page, f"{server.url}{address(name, {'run': run})}")
            page.close()
            tick = "–" if found.tick_ms is None else f"{found.tick_ms:.0f}"
            print(
                f"| {name} | {theme} | {found.shift:.3f} | {tick} | {'; '.join(found.failed) or '–'} | {'; '.join(found.axe) or '–'} |",
                flush=True,
            )
        context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--screens", nargs="*", default=list(PLACES))
    parser.add_argument("--themes", default="light,dark")
    options = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}")
    chromium = executable()
    if chromium is None:
        sys.exit("No Chromium here: set SAWTOOTH_CHROMIUM.")
    run = largest(DataFolder(options.data)).id
    server = start_server(options.data, SAWTOOTH_DEMO="0")
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            _measure(browser, server, run, options)
            browser.close()
    finally:
        server.stop()


if __name__ == "__main__":
    main()
