"""Measure the processor time of each stage from a trace to its first answer.

    python -m tests.benchmarks.stages TRACE.json.gz …

The stages are imports, reading, deriving and analysing, each with its child processes. Each trace is
read in its own process and gets a row: the processor seconds of each stage, the wall time of all stages, the memory of the largest
process, and the stored bytes. A column has the wall time divided by that of ``gzip -dc``, which runs just before. The bundled trace is read first,
so that all loaded modules are compiled, as in an installed copy.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from tests.support.paths import ROOT

BUNDLED = ROOT / "sample_traces" / "gpt" / "trace.json.gz"
HEAD = (
    "| trace | imports | read | derive | analyse | all stages | wall time | × `gzip -dc` | largest process, MB | recording + derived, MB |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def processor_seconds() -> float:
    """Return the processor seconds of this process and of those that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def row(trace: Path) -> str:
    """Return the row of one trace; nothing of Sawtooth may be loaded before."""
    unpacked_s = _seconds_to_unpack(trace)
    began, moments = time.perf_counter(), [processor_seconds()]
    from sawtooth.analysis.derive.build import ensure_derived
    from sawtooth.analysis.result_cache import result_of
    from sawtooth.analysis.run_analysis import analyse  # noqa: F401  (otherwise it would be loaded at its first use)
    from sawtooth.analysis.store.library import Library
    from sawtooth.ingest.recording import ingest_file
    from sawtooth.ingest.runs.manifests import register_runs
    from sawtooth.ingest.schema import DataFolder

    moments.append(processor_seconds())
    with tempfile.TemporaryDirectory(dir=trace.parent) as name:
        folder = DataFolder(Path(name)).create()
        recording = ingest_file(trace, folder)
        moments.append(processor_seconds())
        derived = ensure_derived(folder, recording.id)
        moments.append(processor_seconds())
        library = Library(folder)
        result_of(register_runs(folder, [recording])[0], library)
        library.close()
        moments.append(processor_seconds())
        passed_s = time.perf_counter() - began
        stored = sum(path.stat().st_size for path in (folder.recording_file(recording.id), derived)) / 1e6
    stages = [after - before for before, after in pairwise(moments)]
    memory = max(resource.getrusage(process).ru_maxrss for process in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
    seconds = " | ".join(f"{stage:.1f}" for stage in (*stages, sum(stages)))
    return f"| {trace.name} | {seconds} | {passed_s:.1f} | {passed_s / unpacked_s:.1f} | {memory:.0f} | {stored:.1f} |"


def _seconds_to_unpack(trace: Path) -> float:
    began = time.perf_counter()
    subprocess.run(["gzip", "-dc", str(trace)], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    if sys.argv[1] == "--row":
        print(row(Path(sys.argv[2])))
        return
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for trace in (None, *map(Path, sys.argv[1:])):
        command = [sys.executable, "-m", "tests.benchmarks.stages", "--row", str((trace or BUNDLED).resolve())]
        line = subprocess.run(command, check=True, cwd=ROOT, env=environment, capture_output=True, text=True).stdout
        print(HEAD if trace is None else line.strip(), flush=True)


if __name__ == "__main__":
    main()
