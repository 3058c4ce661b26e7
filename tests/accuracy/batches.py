"""Compare predicted batch sizes with measured ones: ``python -m tests.accuracy.batches FOLDER``.

FOLDER has one folder per run: ``run.sawtooth``, written by the capture helper, and ``truth.json``. ``truth.json`` has the
``step_s`` and ``samples_per_step`` of the loop without the recorder, ``peak_mem`` (bytes allocated) if known, and every other
setting (``model``, ``bf16``, …). Runs that differ only in the batch size form a group. Within a group, every other size is
predicted from each run's trace and compared with the stopwatch. ``--data FOLDER`` names a data folder to use.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from sawtooth.analysis.batch_predictions import at_batch
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.accuracy.captured import Truth, command, groups_by

BAR, MEMORY_BAR = 0.15, 0.10  # Allowed error of a prediction, as a share of the measured rate and memory.
MEASURED = (
    "name",
    "change",
    "batch",
    "samples_per_step",
    "step_s",
    "samples_per_s",
    "steps_timed",
    "window_ns",
    "peak_mem",
    "torch",
)
HEAD = "| model | from | to | measured, samples/s | predicted | error | in interval | limit | memory |\n|---|---:|---:|---:|---:|---:|---|---|---:|"


@dataclass(frozen=True)
class Judged:
    """One prediction for a batch size, next to the measurement.

    It has the measured and the predicted samples per second, and whether the predicted interval contains the measured step.
    If ``host_limits``, the host limits the step at that size, so Sawtooth predicts only an interval. The error of memory is
    None if unknown.
    """

    model: str
    sizes: tuple[float, float]
    measured: float
    predicted: float
    in_interval: bool
    host_limits: bool
    memory_error: float | None

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    def line(self) -> str:
        memory = f"{self.memory_error:+.0%}" if self.memory_error is not None else "–"
        sizes = " | ".join(f"{size:g}" for size in self.sizes)
        return f"| {self.model} | {sizes} | {self.measured:,.0f} | {self.predicted:,.0f} | {self.error:+.0%} | {'yes' if self.in_interval else 'no'} | {'host' if self.host_limits else 'GPU'} | {memory} |"


def groups(folder: Path) -> dict[str, dict[str, Truth]]:
    """Return the truths by run, in groups in which only the batch size differs.

    Sizes that occur in no other run are left out.
    """
    by_setting = groups_by(
        folder, lambda truth: json.dumps({key: value for key, value in truth.items() if key not in MEASURED}, sort_keys=True)
    )
    return {
        next(iter(runs)): runs
        for runs in by_setting.values()
        if len({truth["samples_per_step"] for truth in runs.values()}) > 1
    }


def judge(folder: Path, library: Library) -> Iterator[Judged]:
    """Yield every prediction from one size of a model to another."""
    for model, truths in groups(folder).items():
        for before, after in permutations(truths, 2):
            size, target = (truths[name]["samples_per_step"] for name in (before, after))
            path = folder / before / "run.sawtooth"
            run = result_of(ingest_into_runs(library.folder, [(path, path.name)], name=before).runs[0], library)
            at = at_batch(run, target / size, library)
            if at is None or size == target:
                continue
            truth = truths[after]
            peak = truth.get("peak_mem")
            memory = at.memory_bytes / peak - 1 if at.memory_bytes and peak else None
            in_interval = at.low_ms <= 1e3 * truth["step_s"] <= at.high_ms
            yield Judged(
                model, (size, target), target / truth["step_s"], 1e3 * target / at.step_ms, in_interval, at.host_limits, memory
            )


def main(folder: Path, data: Path) -> None:
    print(HEAD)
    judged = []
    for one in judge(folder, Library(DataFolder(data).create())):
        judged.append(one)
        print(one.line(), flush=True)
    if not judged:
        print("\nNo two runs differ only in the batch.")
        return
    memory = [abs(one.memory_error) for one in judged if one.memory_error is not None]
    print()
    for limit, of_it in (
        ("the GPU limits the step", [j for j in judged if not j.host_limits]),
        ("the host limits it", [j for j in judged if j.host_limits]),
    ):
        errors = [abs(one.error) for one in of_it]
        if errors:
            print(
                f"If {limit}: {sum(e <= BAR for e in errors)} of {len(errors)} within {BAR:.0%} (median {statistics.median(errors):.0%}), ",
                end="",
            )
            print(f"{sum(one.in_interval for one in of_it)} intervals contain the measured step")
    print(
        f"Memory: {sum(e <= MEMORY_BAR for e in memory)} of {len(memory)} within {MEMORY_BAR:.0%}"
        if memory
        else "Memory: not predicted."
    )


if __name__ == "__main__":
    command(__doc__, main)
