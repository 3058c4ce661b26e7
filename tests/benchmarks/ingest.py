"""Measure the time from a trace to a recording and to an answer, next to unpacking and parsing.

    python -m tests.benchmarks.ingest [--events 1000000 5000000 20000000] [--rounds 3] [--trace TRACE.json.gz]
        [--peers [PYTHON]] [--limit SECONDS]

It makes traces of the sizes in ``--events`` from a bundled trace. Every contender runs in its own process, one after the
other in each round. It prints the medians: wall time, its ratio to ``gzip -dc``, processor time of all processes, its ratio,
and the largest memory of one process. Other work on the machine changes processor time far less than wall time.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

BUNDLED = ROOT / "sample_traces" / "gpt" / "trace.json.gz"
LIMIT_SECONDS = 900.0  # A contender that takes longer counts as not finished.
INGEST = """
import sys; from pathlib import Path
from sawtooth.ingest.recording import ingest_file; from sawtooth.ingest.schema import DataFolder
ingest_file(Path(sys.argv[1]), DataFolder(Path(sys.argv[2])))
"""
ANSWER = """
import sys; from pathlib import Path
from sawtooth.analysis.result_cache import result_of; from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs; from sawtooth.ingest.schema import DataFolder
trace, folder = Path(sys.argv[1]), DataFolder(Path(sys.argv[2])); result_of(ingest_into_runs(folder, [(trace, trace.name)]).runs[0], Library(folder))
"""
PEERS = {  # Name -> its module and its program. Whole-document parsers keep the complete trace in memory.
    "orjson.loads": ("orjson", "import gzip, orjson, sys; orjson.loads(gzip.open(sys.argv[1]).read())"),
    "json.load": ("json", "import gzip, json, sys; json.load(gzip.open(sys.argv[1]))"),
    "HTA load": (
        "hta",
        "import shutil, sys; from hta.trace_analysis import TraceAnalysis; shutil.copy(sys.argv[1], sys.argv[2] + '/rank_0.json.gz');"
        " TraceAnalysis(trace_files={0: sys.argv[2] + '/rank_0.json.gz'})",
    ),
}


@dataclass(frozen=True)
class Run:
    """One measured process; ``seconds`` is infinite when it was stopped at the limit, None when it failed."""

    seconds: float | None
    memory_mb: float
    processor_seconds: float


def measured(command: list[str], limit: float = LIMIT_SECONDS) -> Run:
    """Run ``command`` and return its wall time and peak resident memory.

    The memory is the largest of one process: of the command or of a process that it waited for.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    while True:
        done, status, usage = os.wait4(process.pid, os.WNOHANG)
        seconds = time.perf_counter() - start
        if done:
            process.returncode = os.waitstatus_to_exitcode(status)
            finished = float("inf") if seconds > limit else None
            processor = usage.ru_utime + usage.ru_stime
            return Run(seconds if process.returncode == 0 else finished, usage.ru_maxrss / 1024, processor)
        if seconds > limit:
            process.kill()
        time.sleep(0.005)


def contenders(trace: Path, peers: str | None) -> dict[str, Callable[[Path], list[str]]]:
    """Return the commands to compare, by name.

    Each gets an empty folder. ``peers`` is the Python that has the peers installed.
    """
    found: dict[str, Callable[[Path], list[str]]] = {
        "gzip -dc": lambda folder: ["gzip", "-dc", str(trace)],
        "sawtooth ingest": lambda folder: [sys.executable, "-c", INGEST, str(trace), str(folder)],
        "sawtooth, to the first answer": lambda folder: [sys.executable, "-c", ANSWER, str(trace), str(folder)],
    }
    for name, (module, program) in PEERS.items() if peers else ():
        if subprocess.run([str(peers), "-c", f"import {module}"], capture_output=True, check=False).returncode == 0:
            found[name] = lambda folder, program=program: [str(peers), "-c", program, str(trace), str(folder)]
    return found


def compare(trace: Path, rounds: int, peers: str | None, limit: float) -> dict[str, list[Run]]:
    """Run every contender once per round, one after the other.

    The trace is read once before, so that it is in the page cache.
    """
    with trace.open("rb") as file:
        while file.read(1 << 20):
            pass
    results: dict[str, list[Run]] = {}
    for _ in range(rounds):
        for name, command in contenders(trace, peers).items():
            with tempfile.TemporaryDirectory(dir=trace.parent) as folder:
                results.setdefault(name, []).append(measured(command(Path(folder)), limit))
    return results


def table(results: dict[str, list[Run]], limit: float) -> str:
    """Return the medians as Markdown rows, with the ratios to gzip's time and to Sawtooth's."""
    medians = {
        name: None if any(r.seconds is None for r in runs) else statistics.median(r.seconds or 0.0 for r in runs)
        for name, runs in results.items()
    }
    gzip, ours = medians["gzip -dc"] or 0.0, medians["sawtooth ingest"] or 0.0
    spent = {name: statistics.median(r.processor_seconds for r in runs) for name, runs in results.items()}
    rows = [
        "| what | seconds | x gzip -dc | x sawtooth ingest | processor seconds | x gzip -dc | peak memory, MB |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, runs in results.items():
        seconds, memory = medians[name], max(r.memory_mb for r in runs)
        mark = "> " if seconds == float("inf") else ""
        shown = "failed | | "
        if seconds is not None:
            seconds = min(seconds, limit)
            shown = f"{mark}{seconds:.2f} | {mark}{seconds / gzip:.2f} | {mark}{seconds / ours:.2f}"
        processor = f"{spent[name]:.2f} | {spent[name] / spent['gzip -dc']:.2f}"
        rows.append(f"| {name} | {shown} | {processor} | {memory:.0f} |")
    return "\n".join(rows)


def make(source: Path, target: Path, events: int) -> int:
    """Write the trace in a separate process, because children start with the memory of this one."""
    program = "import sys; from pathlib import Path; from tests.benchmarks import scaled_trace as s; print(s.write(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, str(source), str(target), str(events)]
    return int(subprocess.run(command, check=True, capture_output=True, env=environment).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trace", type=Path, default=BUNDLED)
    parser.add_argument(
        "--peers", nargs="?", const=sys.executable, metavar="PYTHON", help="also run the parsers and tools that this Python has"
    )
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="seconds after which a contender did not finish")
    options = parser.parse_args()
    print(
        f"{platform.platform()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}; {options.rounds} rounds"
    )
    folder = Path(tempfile.mkdtemp())
    try:
        for events in options.events:
            trace = folder / f"{events}.json.gz"
            count = make(options.trace, trace, events)
            print(
                f"\n{count:,} events, {trace.stat().st_size / 1e6:.0f} MB compressed, from {options.trace.parent.name}\n",
                flush=True,
            )
            print(table(compare(trace, options.rounds, options.peers, options.limit), options.limit), flush=True)
            trace.unlink()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
