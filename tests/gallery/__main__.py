"""Take a picture of every screen at every width in both themes, and list what is unusable.

    python -m tests.gallery --out pictures [--screens verdict,compare] [--widths 1440,390] [--themes light,dark] [--data FOLDER]

It serves the bundled recordings (stored in ``--data``, else in its own folder). It lists text below WCAG's contrast,
cut text, pages that scroll sideways, and axe-core's violations in our own markup, and exits with 1 if there are any.
Violations in Streamlit's markup are listed separately.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from sawtooth.app.places import SCREENS, address
from tests.support.chromium import executable, log_in
from tests.support.servers import Server, fetch, start_server

HERE = Path(__file__).parent
CHECK, AXE_CHECK, AXE = (
    (HERE / name).read_text(encoding="utf-8") for name in ("page_check.js", "axe_check.js", "axe/axe.min.js")
)
WIDTHS, NARROW, HEIGHT = (1440, 800, 390), 640, 900
ON_A_PHONE = ("runs", "verdict", "compare", "live", "timeline", "work")  # The screens that are also checked on a phone.
BUNDLED = 3
READ_SECONDS, SHOW_MS, SETTLE_MS = 240, 60_000, 1500


def main(arguments: list[str] | None = None) -> int:
    """Take the pictures; return 1 where a check fails."""
    options = _options().parse_args(arguments)
    chromium = executable()
    if chromium is None:
        print("No Chromium here: set SAWTOOTH_CHROMIUM.", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as spare, sync_playwright() as playwright:
        server = start_server(options.data or Path(spare) / "data")
        try:
            runs = _runs(server)
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            failed = _pictures(browser, server.url, _addresses(runs, options.run), options)
            browser.close()
        finally:
            server.stop()
    return 1 if failed else 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.gallery")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="a data folder with the runs to show; the bundled ones are read into it")
    parser.add_argument("--run", help="the run to show, by its name")
    parser.add_argument("--screens", default=",".join(screen.name for screen in SCREENS))
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)))
    parser.add_argument("--themes", default="light,dark")
    return parser


def _runs(server: Server) -> dict[str, str]:
    """Return the ids of the runs by name, after the bundled recordings are read."""
    deadline = time.monotonic() + READ_SECONDS
    while time.monotonic() < deadline:
        runs = json.loads(fetch(server, "/api/v1/runs"))["runs"]
        if len(runs) >= BUNDLED:
            return {run["name"]: run["id"] for run in runs}
        time.sleep(1)
    raise TimeoutError("The bundled recordings were not read in time.")


def _addresses(runs: dict[str, str], asked: str | None) -> dict[str, str]:
    """Return the address of each screen.

    The run is the requested one, else the bundled run whose GPU waits for data.
    """
    run = runs[asked or "resnet_starved"]
    by_screen = {screen.name: address(screen.name, {"run": run} if screen.needs_run else {}) for screen in SCREENS}
    return by_screen | {"compare": address("compare", {"a": runs["resnet_starved"], "b": runs["resnet_fixed"]})}


def _pictures(browser: Browser, url: str, addresses: dict[str, str], options: argparse.Namespace) -> int:
    failed = 0
    for theme in options.themes.split(","):
        for width in map(int, options.widths.split(",")):
            context = browser.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme=theme)
            log_in(context)
            page = context.new_page()
            for name in options.screens.split(","):
                if width >= NARROW or name in ON_A_PHONE:
                    problems = _picture(page, f"{url}{addresses[name]}", options.out / f"{name}-{width}-{theme}.png")
                    failed += bool(problems)
                    print(f"{name} {width} {theme}: {'; '.join(problems) or 'fine'}", flush=True)
            context.close()
    return failed


def _picture(page: Page, address: str, path: Path) -> list[str]:
    """Take one picture; return the problems of the page."""
    page.goto(address)
    page.locator("h1").first.wait_for(timeout=SHOW_MS)
    page.locator("[data-testid=stStatusWidget], [data-testid=stSkeleton]").first.wait_for(state="hidden", timeout=SHOW_MS)
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for(timeout=SHOW_MS)
    page.wait_for_timeout(SETTLE_MS)  # Charts draw after the script has ended.
    page.screenshot(path=path, timeout=SHOW_MS)
    page.evaluate(AXE)
    ours, theirs = page.evaluate(AXE_CHECK)
    if theirs:
        print(f"{path.stem}: in Streamlit's own markup: {', '.join(theirs)}", flush=True)
    return [str(problem) for problem in [*page.evaluate(CHECK), *ours]]


if __name__ == "__main__":
    sys.exit(main())
