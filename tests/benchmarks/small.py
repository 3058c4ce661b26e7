"""Measure the processor time to read, derive and analyse small traces in one process.

    python -m tests.benchmarks.small [--events 100 50000] [--traces 8] [--trace TRACE.json.gz]

A job with many ranks has many such traces. The first trace of each size is left out: it loads libraries and creates the
first files. If ``--events`` is smaller than the copied trace, a hand-made loop of four steps is used.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.runs.manifests import register_runs
from sawtooth.ingest.schema import DataFolder
from tests.benchmarks import scaled_trace
from tests.benchmarks.ingest import BUNDLED
from tests.support.chrome_trace import matmul_loop

BY_HAND = 1_000  # Events; the hand-made loop has about fifty.


def processor_seconds(trace: Path, folder: DataFolder) -> tuple[float, float, float]:
    """Return the processor seconds, of all threads, to read, derive and analyse ``trace``."""
    moments = [time.process_time()]
    recording = ingest_file(trace, folder, keep_source=False)
    moments.append(time.process_time())
    ensure_derived(folder, recording.id)
    moments.append(time.process_time())
    library = Library(folder)
    result_of(register_runs(folder, [recording])[0], library)
    library.close()
    moments.append(time.process_time())
    read, derive, analyse = (after - before for before, after in pairwise(moments))
    return read, derive, analyse


def made(folder: Path, source: Path, events: int, number: int) -> Path:
    """Write a trace of about ``events`` events that differs from the others."""
    path = folder / (f"{events}-{number}.json" if events < BY_HAND else f"{events}-{number}.json.gz")
    if events < BY_HAND:
        loop = matmul_loop()
        loop.top["number"] = number
        return loop.write(path)
    scaled_trace.write(source, path, events + 1_000 * number)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=[100, 50_000])
    parser.add_argument("--traces", type=int, default=8)
    parser.add_argument("--trace", type=Path, default=BUNDLED)
    arguments = parser.parse_args()
    print("| events | read | derive | analyse | in all |\n|---:|---:|---:|---:|---:|")
    for events in arguments.events:
        with tempfile.TemporaryDirectory() as name:
            traces = [made(Path(name), arguments.trace, events, number) for number in range(arguments.traces + 1)]
            costs = [processor_seconds(trace, DataFolder(Path(name) / f"data-{n}").create()) for n, trace in enumerate(traces)]
        parts = [statistics.median(part) for part in zip(*costs[1:], strict=True)]
        print(f"| {events:,} | " + " | ".join(f"{seconds:.3f}" for seconds in (*parts, sum(parts))) + " |", flush=True)


if __name__ == "__main__":
    main()
