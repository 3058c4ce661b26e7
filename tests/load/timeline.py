"""Measure panning and zooming of the timeline in headless Chromium against its own server.

    python -m tests.load.timeline --data FOLDER [--seconds 60] [--rounds 5]

First it reads tiles of the largest run of ``--data`` from the store, without server and browser. Then it opens the run
``--rounds`` times, each time with a new server and a new browser. Last, it pans and zooms for ``--seconds``.

It prints the time of a tile's query, the time of the first picture (from the click to the frame that shows every tile,
as the page itself sees them) and its processor time in server and browser, the script time of frames, tasks over 50 ms,
frames per second, the heap at the start and at the end, and the time of tiles as the browser saw it. Wall times are
meaningful on a quiet machine only, processor times on any. ``tests.benchmarks.scaled_trace`` makes a trace of 5 million
GPU operations.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
from playwright.sync_api import Page, sync_playwright

from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.tables.timeline import extent
from sawtooth.analysis.tables.timeline_tiles import COLUMNS, SOURCES, tile
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder
from tests.support.chromium import executable, log_in
from tests.support.servers import Server, start_server

FRAME_MS, TASK_MS, FRAMES_A_SECOND, FIRST_S, HEAP_MB, TILE_MS = 8.0, 50.0, 30.0, 0.7, 300.0, 50.0
PLACES = 8  # Random tiles of each level and source.
WATCH = """() => {
    window.seen = {tasks: [], ticks: 0, since: performance.now()};
    new PerformanceObserver(list => list.getEntries().forEach(e => seen.tasks.push(e.duration))).observe({type: 'longtask'});
    const tick = () => { seen.ticks++; requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
    performance.setResourceTimingBufferSize(20000);
    sawtoothTimeline.frames.length = 0;
}"""
FIRST = """() => {
    window.firstPicture = new Promise(seen => addEventListener('click', ({timeStamp}) =>
        new PerformanceObserver(list => list.getEntriesByName('timeline-whole').forEach(mark => seen(mark.startTime - timeStamp)))
            .observe({type: 'mark'}),
        {capture: true, once: true}));
}"""


def largest(folder: DataFolder) -> Manifest:
    """Return the run whose recording has most bytes."""
    return max(folder.manifests(), key=lambda run: sum(folder.recording_file(r.id).stat().st_size for r in run.traces))


def tile_queries(rank: RankResult, library: Library) -> tuple[list[float], list[float]]:
    """Return the wall time and processor time in ms of the query of random tiles.

    It covers every source and every level.
    """
    chance, wall, processor = random.Random(2), [], []
    with open_rank(library, rank) as view:
        entire = extent(view.recording).ns
        levels = range((entire // COLUMNS).bit_length() + 1)
        for source, level, _ in itertools.product(SOURCES, levels, range(PLACES)):
            index = chance.randint(0, entire // (COLUMNS << level))
            begun, worked = time.perf_counter(), time.process_time()
            tile(view.recording, source, view.device, level, index)
            wall.append((time.perf_counter() - begun) * 1000)
            processor.append((time.process_time() - worked) * 1000)
    return wall, processor


@contextmanager
def opened(folder: DataFolder) -> Iterator[tuple[Server, Page]]:
    """Start a server of the folder, and a new browser that is logged in."""
    server = start_server(folder.root)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=executable(), args=["--no-sandbox", "--enable-precise-memory-info"]
            )
            context = browser.new_context(viewport={"width": 1440, "height": 1000})
            log_in(context)
            yield server, context.new_page()
            browser.close()
    finally:
        server.stop()


def worked_s(processes: list[psutil.Process]) -> float:
    """Return the processor time of the processes that still run, in s."""
    times = [process.cpu_times() for process in processes if process.is_running()]
    return sum(t.user + t.system for t in times)


def first_picture(page: Page, server: Server, run: str) -> tuple[float, float, float]:
    """Return the seconds from the click on Timeline to the first complete picture.

    Return also the processor time of the server and of the browser.
    """
    serving = [psutil.Process(server.process.pid)]
    page.goto(f"{server.url}/verdict?run={run}")
    link = page.get_by_test_id("stSidebar").get_by_role("link", name="Timeline")
    link.wait_for(timeout=120_000)
    page.locator('[data-test-script-state="notRunning"] h1').first.wait_for(timeout=120_000)
    page.wait_for_timeout(3000)
    browsing = [p for p in psutil.Process().children(recursive=True) if "chrom" in p.name()]
    page.evaluate(FIRST)
    before = [worked_s(item) for item in (serving, browsing)]
    link.click()
    seconds = page.evaluate("firstPicture") / 1000
    served, browsed = (worked_s(item) - so_far for item, so_far in zip((serving, browsing), before, strict=True))
    return seconds, served, browsed


def work(page: Page, seconds: float) -> list[float]:
    """Pan and zoom like a reader for ``seconds``; return the script time of every frame in ms."""
    box = page.locator("canvas.lanes").bounding_box()
    assert box is not None
    chance, end, frames = random.Random(1), time.monotonic() + seconds, []
    while time.monotonic() < end:
        x, y = box["x"] + box["width"] * chance.uniform(0.1, 0.9), box["y"] + 60
        page.mouse.move(x, y)
        page.keyboard.down("Control")
        for _ in range(20):
            page.mouse.wheel(0, chance.choice((-120, -120, 120)))
        page.keyboard.up("Control")
        page.locator("canvas.lanes").focus()
        key = chance.choice("adwsad")
        page.keyboard.down(key)
        page.wait_for_timeout(chance.uniform(300, 900))
        page.keyboard.up(key)
        if chance.random() < 0.1:
            page.keyboard.press("0")
        frames += page.evaluate("sawtoothTimeline.frames.splice(0)")
    return frames


def heap_mb(page: Page) -> float:
    """Return the heap and the tiles' buffers after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    heap = page.evaluate("performance.memory.usedJSHeapSize")
    return (heap + page.evaluate("sawtoothTimeline.tiles.bytes")) / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    folder = DataFolder(given.data.absolute())
    run = largest(folder)
    with Library(folder) as library:
        result = result_of(run, library)  # The result exists after an ingest. Without it, the page would wait.
        wall, processor = tile_queries(result.ranks[0], library)
    print(f"{run.name}; load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for what, times in (("took", wall), ("processor time", processor)):
        print(
            f"{len(times)} tile queries: {what} p50 {np.median(times):.0f}, p95 {np.percentile(times, 95):.0f}, most {max(times):.0f} ms (limit {TILE_MS:.0f})"
        )
    firsts = []
    for left in reversed(range(given.rounds)):
        with opened(folder) as (server, page):
            firsts.append(first_picture(page, server, run.id))
            if left:
                continue
            page.get_by_test_id("stDataFrame").wait_for()  # The parts below the picture load after it.
            page.locator('[data-test-script-state="notRunning"]').first.wait_for()
            # The heap is read outside the measured time, because garbage collection stops the page for an unknown time.
            before = heap_mb(page)
            page.evaluate(WATCH)
            frames = work(page, given.seconds)
            seen = page.evaluate("({...seen, ms: performance.now() - seen.since})")
            after = heap_mb(page)
            tiles = page.evaluate(
                "performance.getEntriesByType('resource').filter(e => e.name.includes('/tiles?')).map(e => e.duration)"
            )
    first, served, browsed = np.median(firsts, axis=0)
    p95 = float(np.percentile(frames, 95))
    rate, slow = seen["ticks"] / seen["ms"] * 1000, [t for t in seen["tasks"] if t > TASK_MS]
    print(f"first pictures: {', '.join(f'{seconds:.2f}' for seconds, _, _ in firsts)} s; load {os.getloadavg()[0]:.1f}")
    print(
        f"their medians: {first:.2f} s (limit {FIRST_S}); processor time of the server {served:.2f}, of the browser {browsed:.2f} s"
    )
    print(
        f"{len(frames)} frames: script p50 {np.median(frames):.1f}, p95 {p95:.1f}, most {max(frames):.1f} ms (limit {FRAME_MS}); {rate:.0f} a second"
    )
    print(f"tasks over {TASK_MS:.0f} ms: {len(slow)}, longest {max(slow, default=0):.0f} ms")
    print(f"heap and buffers {before:.0f} → {after:.0f} MB (limit {HEAP_MB:.0f})")
    print(
        f"{len(tiles)} requests of tiles: p50 {np.median(tiles):.0f}, p95 {np.percentile(tiles, 95):.0f} ms as the browser saw them"
    )
    held = p95 <= FRAME_MS and rate >= FRAMES_A_SECOND and after <= HEAP_MB and first <= FIRST_S and not slow
    return int(not held or max(processor) > TILE_MS)


if __name__ == "__main__":
    sys.exit(main())
