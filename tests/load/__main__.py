"""Let many viewers use a server, without browsers; then again during two uploads of a gigabyte.

    python -m tests.load.prepare --data FOLDER          # once: 20 runs of 1 million events
    python -m tests.load --data FOLDER [--viewers 25] [--seconds 120] [--upload-mb 1000]

An active viewer opens a screen of a run or types into its filter every 2 to 5 seconds. First, a single viewer opens the pages
of all runs. Later, a wrong answer is an empty page, or a page with a part that only other runs showed to this single viewer.
A part that no run showed to the single viewer counts as new. Such parts occur because screens remember filters. The server is
this program's own. Everything stays on 127.0.0.1 and ends by itself. The exit code is 1 for a wrong answer, an error, or a
95th percentile above two seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import psutil

from sawtooth.app.places import screen_named, with_view
from tests.load.viewer import LoadError, Page, Viewer
from tests.support.servers import LOGGED_IN, Server, fetch, start_server

SCREENS = ("verdict", "work", "idle", "efficiency", "timeline")
FILTERS = {"work": ("gemm", "elementwise")}
THINK_SECONDS = (2.0, 5.0)
BAR_SECONDS = 2.0
MEGABYTE = 1 << 20

Known = dict[str, set[str]]


@dataclass
class Phase:
    seconds: list[float] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)
    new: int = 0  # Pages with a part that no single viewer saw.
    processor_seconds: float = 0.0  # Processor time of the server.

    def line(self, name: str, server: psutil.Process) -> str:
        quantiles = " | ".join(f"{v:.2f}" for v in np.percentile(self.seconds or [0], [50, 95, 99]))
        wrong, errors = self.problems["wrong"], sum(self.problems.values()) - self.problems["wrong"]
        return f"| {name} | {len(self.seconds)} | {quantiles} | {wrong} | {self.new} | {errors} | {self.processor_seconds / max(len(self.seconds), 1) * 1000:.0f} | {server.memory_info().rss >> 20} | {os.getloadavg()[0]:.1f} |"


async def ask(viewer: Viewer, run: str, screen: str, word: str) -> Page:
    """Open a screen, then filter it by ``word`` if there is one, as a person would."""
    place, query = screen_named(screen).place, urlencode(with_view(screen, {"run": run}))
    page = await viewer.show(place, query)
    return await viewer.show(place, query, {page.widgets["Search"]: word}) if word else page


async def alone(url: str, runs: list[str]) -> Known:
    """Return every part of the runs' pages that a single viewer sees.

    The viewer opens the screens in order, then in reverse order, because screens remember filters and views.
    """
    viewer, known = await Viewer(url).open(), Known()
    for run in runs:
        asked = [(screen, word) for screen in SCREENS for word in ("", *FILTERS.get(screen, ()))]
        for screen, word in (*asked, *reversed(asked)):
            known.setdefault(run, set()).update((await ask(viewer, run, screen, word)).figures)
    await viewer.close()
    return known


async def work(url: str, known: Known, seed: int, end: float, phase: Phase) -> None:
    """Be one active viewer until ``end``."""
    chance, viewer = random.Random(seed), await Viewer(url).open()
    run = chance.choice(sorted(known))
    while time.monotonic() < end:
        await asyncio.sleep(chance.uniform(*THINK_SECONDS))
        if chance.random() < 0.2:
            run = chance.choice(sorted(known))
        screen = chance.choice(SCREENS)
        try:
            page = await ask(viewer, run, screen, chance.choice(("", *FILTERS.get(screen, ()))))
        except (LoadError, OSError) as error:
            phase.problems[str(error)[:80]] += 1
            viewer = await Viewer(url).open()
            continue
        phase.seconds.append(page.seconds)
        unknown = page.figures - known[run]
        if not page.figures or any(unknown & others for others in known.values()):
            phase.problems["wrong"] += 1
        elif unknown:
            phase.new += 1
    await viewer.close()


def upload(url: str, megabytes: int) -> float:
    """Send a file of ``megabytes``; return the seconds it took."""
    started, block = time.monotonic(), b" " * MEGABYTE
    connection = http.client.HTTPConnection("127.0.0.1", int(url.rsplit(":", 1)[1]), timeout=600)
    connection.putrequest("PUT", "/api/v1/uploads?name=load.json")
    connection.putheader("Content-Length", str(megabytes * MEGABYTE))
    connection.putheader("X-Sawtooth", "1")
    connection.putheader("Authorization", LOGGED_IN["Authorization"])
    connection.endheaders()
    for _ in range(megabytes):
        connection.send(block)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    if answer.get("bytes") != megabytes * MEGABYTE:
        raise LoadError(f"upload: {answer}")
    return time.monotonic() - started


async def run_phase(url: str, known: Known, given: argparse.Namespace, uploads: int) -> tuple[Phase, list[float]]:
    """Let the viewers work while ``uploads`` lanes send files, one after the other in each lane."""
    phase, end, took = Phase(), time.monotonic() + given.seconds, []

    async def lane() -> None:
        while time.monotonic() < end:
            took.append(await asyncio.to_thread(upload, url, given.upload_mb))

    viewers = [work(url, known, seed, end, phase) for seed in range(given.viewers)]
    await asyncio.gather(*viewers, *(lane() for _ in range(uploads)))
    return phase, took


async def measure(server: Server, given: argparse.Namespace) -> int:
    """Run the phases and print the table; return the exit code."""
    listed = json.loads(fetch(server, "/api/v1/runs"))["runs"]
    named = {run["name"]: run["id"] for run in listed if run["name"].startswith("load-")}
    runs = [named[name] for name in sorted(named)[: given.runs]]
    process, started = psutil.Process(server.process.pid), time.monotonic()
    known = await alone(server.url, runs)
    print(
        f"{len(runs)} runs, opened by a single viewer in {time.monotonic() - started:.0f} s; {os.cpu_count()} cores, {given.viewers} viewers\n",
        flush=True,
    )
    print(
        "| phase | reruns | p50, s | p95, s | p99, s | wrong | new | errors | CPU ms a rerun | server MB | load |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    failed = False
    for name, uploads in (("viewers", 0), ("viewers and 2 uploads", 2)):
        before = process.cpu_times()
        phase, took = await run_phase(server.url, known, given, uploads)
        phase.processor_seconds = sum(process.cpu_times()[:2]) - sum(before[:2])
        print(phase.line(name, process), flush=True)
        for problem, count in phase.problems.items():
            print(f"    {count} × {problem}")
        if took:
            print(f"    {len(took)} uploads of {given.upload_mb} MB, {np.median(took):.0f} s each")
        failed |= bool(phase.problems) or float(np.percentile(phase.seconds or [99], 95)) > BAR_SECONDS
    return int(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--viewers", type=int, default=25)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--upload-mb", type=int, default=1000)
    given = parser.parse_args()
    server = start_server(given.data.absolute())
    try:
        return asyncio.run(measure(server, given))
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
