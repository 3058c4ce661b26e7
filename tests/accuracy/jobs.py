"""Print the reports of jobs of several ranks next to their stopwatch, as a Markdown table.

    python -m tests.accuracy.jobs FOLDER … [--data FOLDER]

Each folder (or each of its sub-folders) is one job: 0.trace.json.gz, 1.trace.json.gz, …, truth_0.json with the stopwatch's
``step_s_pipelined`` without the profiler, and telemetry.jsonl or nvml_*.jsonl of its GPUs if recorded. Or the folder has the
run.sawtooth of `sawtooth run torchrun` and a truth.json. If truth.json also has ``step_s_after_profile``, the true step is
the mean of both stopwatches. ``--data`` stores the ingested recordings.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from sawtooth.analysis.ranks.stragglers.sentences import straggler_cause, straggler_name
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder

BUNDLE = "run.sawtooth"
BAR = 0.15  # Largest accepted error of a job's step, as a share of the stopwatch's.


def jobs(paths: list[str]) -> list[Path]:
    """Return the jobs' folders: those in ``paths``, or their sub-folders."""
    roots = [Path(g) for g in paths]
    found = [f for root in roots for f in ([root] if _truth(root).exists() else sorted(root.iterdir()))]
    return [f for f in found if _truth(f).exists()]


def _truth(folder: Path) -> Path:
    return folder / ("truth.json" if (folder / BUNDLE).exists() else "truth_0.json")


def stopwatch_ms(folder: Path) -> float:
    """Return the job's step without the profiler, by its own stopwatch."""
    truth = json.loads(_truth(folder).read_text(encoding="utf-8"))
    return statistics.mean(truth[key] for key in ("step_s_pipelined", "step_s_after_profile") if key in truth) * 1e3


def analysed(library: Library, folder: Path, *, telemetry: bool) -> RunResult:
    """Return the analysed job, from its traces alone or with its GPUs' telemetry."""
    files = sorted([*folder.glob("*.trace.json.gz"), *folder.glob(BUNDLE)])
    files += sorted([*folder.glob("telemetry.jsonl*"), *folder.glob("nvml*.jsonl*")]) if telemetry else []
    run = ingest_into_runs(library.folder, [(f, f"{folder.name}/{f.name}") for f in files], name=folder.name).runs[0]
    return analyse(run if telemetry else msgspec.structs.replace(run, recordings=run.traces), library)


def late(result: RunResult) -> str:
    """Return the ranks for which the job waits, in words."""
    communication = result.communication
    found = communication.stragglers if communication is not None else ()
    names = [f"{straggler_name(s, result.ranks)}: {straggler_cause(s) or '?'} ({s.gain_ms:.1f} ms)" for s in found]
    pauses = result.lead.best.pauses if result.lead is not None else ()
    names += [f"rank {p.ranks[0]}: {p.reason} pauses ({p.ms_per_step:.1f} ms)" for p in pauses if p.ranks]
    return "; ".join(names) or "nobody"


def main(paths: list[str], data: Path) -> None:
    print(
        "| job | stopwatch, ms | profiled, ms | traces alone, ms | error | interval | with telemetry, ms | error | waits for |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---|")
    alone, both, contained = [], [], []
    library = Library(DataFolder(data))
    for folder in jobs(paths):
        watch = stopwatch_ms(folder)
        cells, found = [folder.name, f"{watch:.2f}"], ""
        for telemetry, errors in ((False, alone), (True, both)):
            result = analysed(library, folder, telemetry=telemetry)
            best = result.lead.best if result.lead is not None else None
            if best is None or best.ms is None:
                cells += ["–"] * (2 if telemetry else 4)
                continue
            errors.append(best.ms / watch - 1)
            reading = best.reading
            if not telemetry:
                contained.append((reading.low or 0.0) <= watch <= (reading.high or float("inf")))
                cells.append(f"{best.mean_ms or 0:.2f}")
            cells += [f"{best.ms:.2f}", f"{errors[-1]:+.1%}"]
            cells += [f"{reading.low or 0:.1f} to {reading.high or 0:.1f}"] if not telemetry else []
            found = late(result) if not telemetry or late(result) == found else f"{found}; with telemetry: {late(result)}"
        print(f"| {' | '.join(cells)} | {found} |", flush=True)
    library.close()
    for name, errors in (("traces alone", alone), ("with telemetry", both)):
        within = sum(abs(e) <= BAR for e in errors)
        median = statistics.median(map(abs, errors)) if errors else 0.0
        print(f"\n{name}: {within} of {len(errors)} within {BAR:.0%}, median error {median:.1%}.")
    print(f"\nThe interval from traces alone contains the stopwatch's value for {sum(contained)} of {len(contained)}.")


def run(table: Callable[[list[str], Path], None], description: str | None) -> None:
    """Print ``table`` of the folders on the command line; ``--data`` is the folder of their recordings."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        table(arguments.folders, arguments.data or Path(scratch))


if __name__ == "__main__":
    run(main, __doc__)
