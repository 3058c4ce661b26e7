"""Helpers for browser tests of the timeline: serve examples, wait for it, read the visible range."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page

from sawtooth.ingest.schema import DataFolder
from tests.support.paths import SAMPLES
from tests.support.prepared import prepared
from tests.support.servers import Server, start_server, without_bundled


@contextmanager
def serving_examples(folder: Path) -> Iterator[Server]:
    """Start a server with two of the bundled recordings, which are ingested before it starts."""
    data = DataFolder(without_bundled(folder / "data"))
    for name in ("resnet_fixed", "gpt"):
        prepared(data, *sorted((SAMPLES / name).glob("*trace.json.gz")), *sorted((SAMPLES / name).glob("*.jsonl")), name=name)
    running = start_server(data.root)
    yield running
    running.stop()


def run_named(server: Server, name: str) -> str:
    return next(run.id for run in DataFolder(server.data).manifests() if run.name == name)


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
