"""Measure how fast the pages are on a large trace, on this machine.

    python -m tests.benchmarks.pages [--events 5000000] [--rounds 3] [--trace TRACE.json.gz] [--data FOLDER] [--screens …]

It ingests a trace of the given size (or takes the largest run of ``--data``) and opens every screen with empty caches. It
prints for each screen: the number of queries, the slowest query, the time of the whole script, and the bytes of the charts
and of the page. All are medians of the rounds. Next to each wall time is the processor time, because wall times mean little
on a busy machine. ``tests.benchmarks.clicks`` measures a viewer's waits in a browser.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from sawtooth.analysis.store.library import Library, Recording
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder
from tests.benchmarks.ingest import BUNDLED, make
from tests.support.paths import ROOT

SLOW_MS = 100.0  # Slower queries are listed with their text.


@dataclass
class Query:
    """One query: its text, and the wall and processor time until its rows arrived."""

    sql: str
    ms: float = 0.0
    cpu_ms: float = 0.0


class TimedCursor:
    """A cursor that measures the time of each query, including the calls that fetch its rows."""

    def __init__(self, cursor: Any, seen: list[Query]) -> None:
        self._cursor, self._seen = cursor, seen

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._cursor, name)
        if not callable(attribute):
            return attribute

        def timed(*arguments: Any, **named: Any) -> Any:
            if name == "execute":
                self._seen.append(Query(" ".join(str(arguments[0]).split())))
            start, busy = time.perf_counter(), time.process_time()
            out = attribute(*arguments, **named)
            if self._seen:
                self._seen[-1].ms += (time.perf_counter() - start) * 1e3
                self._seen[-1].cpu_ms += (time.process_time() - busy) * 1e3
            return self if out is self._cursor else out

        return timed


@contextmanager
def timed_queries() -> Iterator[list[Query]]:
    """Time every query on a library's recordings."""
    seen: list[Query] = []
    made = Recording.__init__

    def init(self: Recording, cursor: Any, *rest: Any) -> None:
        made(self, TimedCursor(cursor, seen), *rest)

    Recording.__init__ = init  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        Recording.__init__ = made  # type: ignore[method-assign]


@dataclass
class Opened:
    queries: list[Query]
    ms: float
    cpu_ms: float
    chart_bytes: int
    page_bytes: int


@dataclass
class Screen:
    name: str
    rounds: list[Opened] = field(default_factory=list)

    def median(self, of: str) -> float:
        return statistics.median(getattr(r, of) for r in self.rounds)

    def slowest(self) -> list[tuple[str, float, float]]:
        """Return the queries with their median wall and processor times, the slowest first."""
        times: dict[str, list[Query]] = {}
        for opened in self.rounds:
            for query in opened.queries:
                times.setdefault(query.sql, []).append(query)
        medians = [
            (sql, statistics.median(q.ms for q in all_), statistics.median(q.cpu_ms for q in all_))
            for sql, all_ in times.items()
        ]
        return sorted(medians, key=lambda row: -row[2])


def open_screen(name: str, run: str) -> Opened:
    """Open a screen with empty caches, in a process that has loaded its modules."""
    import streamlit as st
    from streamlit.components.v2.component_manager import BidiComponentManager

    from tests.support.pages import unopened_at

    test = unopened_at(name, run=run)
    st.cache_data.clear()
    st.cache_resource.clear()
    # A server looks for components in all installed packages once, at its start. AppTest does so in each run, for about 200 ms.
    with timed_queries() as seen, mock.patch.object(BidiComponentManager, "discover_and_register_components"):
        start, busy = time.perf_counter(), time.process_time()
        test.run()
        ms, cpu_ms = (time.perf_counter() - start) * 1e3, (time.process_time() - busy) * 1e3
    if len(test.exception):
        sys.exit(f"The screen {name} failed: {test.exception[0].value}")
    charts = sum(len(chart.proto.spec) for chart in test.get("plotly_chart"))
    page = sum(element.proto.ByteSize() for element in _elements(test))
    return Opened(seen, ms, cpu_ms, charts, page)


def _elements(test: Any) -> Iterator[Any]:
    def under(node: Any) -> Iterator[Any]:
        for child in getattr(node, "children", {}).values():
            if hasattr(child, "children"):
                yield from under(child)
            elif hasattr(child, "proto"):
                yield child

    yield from under(test.main)


def ingested(folder: DataFolder, source: Path, events: int) -> Manifest:
    """Make a trace of ``events`` events and ingest it, like an upload."""
    from sawtooth.app.jobs.ingest_files import ingest_into_runs

    trace = folder.uploads / "large.json.gz"
    count = make(source, trace, events)
    start = time.perf_counter()
    manifest = ingest_into_runs(folder, [(trace, trace.name)], keep_source=False).runs[0]
    print(f"{count:,} events: a recording in {time.perf_counter() - start:.1f} s", end=", ", flush=True)
    trace.unlink()
    return manifest


def largest(folder: DataFolder) -> Manifest:
    """Return the run whose recordings take the most space."""

    def size(manifest: Manifest) -> int:
        return sum(folder.recording_file(ref.id).stat().st_size for ref in manifest.recordings)

    return max(folder.manifests(), key=size)


def analysed(folder: DataFolder, manifest: Manifest) -> None:
    """Analyse the run and store the result, like an upload."""
    from sawtooth.analysis.result_cache import cached_file, result_of

    start = time.perf_counter()
    library = Library(folder)
    result_of(manifest, library)
    library.close()
    stored = cached_file(folder, manifest, "result.msgpack").stat().st_size
    print(f"analysed in {time.perf_counter() - start:.1f} s, {stored / 1e3:.0f} kB stored", flush=True)


def report_seconds(folder: DataFolder, run: str) -> float:
    """Return how long ``sawtooth report RUN --format json`` takes, with the start of Python."""
    import subprocess

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "sawtooth.app.cli", "report", run, "--format", "json", "--data", str(folder.root)]
    start = time.perf_counter()
    json.loads(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)
    return time.perf_counter() - start


def table(screens: list[Screen]) -> str:
    """Return the screens as Markdown rows, and below them the queries that take longer than SLOW_MS."""
    rows = [
        "| screen | queries | slowest, processor ms | its wall ms | script, processor ms | script, wall ms | charts, kB | page, kB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    slow: list[str] = []
    for screen in screens:
        queries = screen.slowest()
        worst = f"{queries[0][2]:.0f} | {queries[0][1]:.0f}" if queries else "– | –"
        script = f"{screen.median('cpu_ms'):.0f} | {screen.median('ms'):.0f}"
        sizes = f"{screen.median('chart_bytes') / 1e3:.0f} | {screen.median('page_bytes') / 1e3:.0f}"
        rows.append(f"| {screen.name} | {len(queries)} | {worst} | {script} | {sizes} |")
        slow += [
            f"  {screen.name}: {cpu:.0f} ms of processor, {ms:.0f} ms: {sql[:240]}"
            for sql, ms, cpu in queries
            if min(ms, cpu) > SLOW_MS
        ]
    return "\n".join([*rows, "", *(["above the limit:", *slow] if slow else [f"no query takes more than {SLOW_MS:.0f} ms"])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trace", type=Path, default=BUNDLED)
    parser.add_argument("--data", type=Path, help="use this folder's largest run instead of a new one")
    parser.add_argument("--screens", nargs="*", help="measure only these screens")
    given = parser.parse_args()
    print(
        f"{platform.platform()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}; {given.rounds} rounds"
    )
    folder = DataFolder(given.data or Path(tempfile.mkdtemp())).create()
    os.environ["SAWTOOTH_DATA"] = str(folder.root)
    try:
        manifest = largest(folder) if given.data else ingested(folder, given.trace, given.events)
        analysed(folder, manifest)
        from sawtooth.app.places import SCREENS

        screens = [Screen(s.name) for s in SCREENS if s.needs_run and (not given.screens or s.name in given.screens)]
        for _ in range(given.rounds):
            for screen in screens:
                screen.rounds.append(open_screen(screen.name, manifest.id))
        print(f"\n{table(screens)}\n")
        print(
            f"sawtooth report: {statistics.median(report_seconds(folder, manifest.id) for _ in range(given.rounds)):.2f} s, start included"
        )
    finally:
        if not given.data:
            shutil.rmtree(folder.root)


if __name__ == "__main__":
    main()
