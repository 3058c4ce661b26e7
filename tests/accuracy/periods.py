"""Print the errors of the step time by the period of GPU activity, as two tables.

    python -m tests.accuracy.periods [FOLDER …]     (default: the bundled and the test recordings)

The first table has the recordings whose period gives the step time, next to kernel time ÷ utilization and to their clocks.
The second table is for loops that leave the GPU idle. A GPU that works at the start of each step is simulated with the
recorded step times, and sampled at 10 Hz. The first half of the steps is sampled. The errors are those against the mean of
the first half and against the mean of the second half.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, host_drift
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.dispatch_law import by_telemetry
from sawtooth.analysis.telemetry.signal.period_evidence import is_trustworthy, steps_of_period
from sawtooth.analysis.telemetry.signal.sawtooth import find_sawtooth
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.accuracy.recordings import folders
from tests.support.pulses import START_NS, sampled_work

MIN_STEPS, MAX_STEPS = 40, 80  # Fewest recorded steps of a loop, and most sampled steps.
MAX_UTILIZATION = 85.0  # Percent. Above this utilization, the host's steps may differ from the GPU's.
STEPS_S = (0.15, 0.25, 0.4, 0.8, 1.6)  # Each loop is sampled with each of these mean step times.
WARM_UP = 0.15  # Share of the recorded steps.
LAW_ERROR = 0.15  # Kernel time ÷ utilization is assumed to have at most this relative error.

F64 = NDArray[np.float64]


class Sampled(NamedTuple):
    """A loop's step time by its period, and the true means of both halves, in s.

    ``error`` and ``drift`` are shares: the half-width of the period's interval, and the drift of the host's speed.
    """

    step_s: float
    error: float
    drift: float
    own_s: float
    later_s: float


def clocks_ms(truth: dict[str, Any], steps: int) -> list[tuple[str, float]]:
    """Return name and mean step in ms of a recording's clocks, with ``steps`` steps per period."""
    found = [("stopwatch", 1e3 * truth["step_s_pipelined"])]
    host = truth.get("step_s_pipelined_host", [])
    if steps > 1 and len(host) >= 2 * steps:
        found.append(("whole periods of it", 1e3 * float(np.mean(host[: len(host) // steps * steps]))))
    if steps > 1 and len(synced := truth.get("step_s_synced", [])) >= 5 * steps:
        found.append(("synchronized", 1e3 * float(np.mean(synced[: len(synced) // steps * steps]))))
    if "step_s_after_profile" in truth:
        found.append(("after the profile", 1e3 * truth["step_s_after_profile"]))
    return found


def of_recordings(paths: list[str]) -> Iterator[str]:
    """Yield a line for each recording with a period: both step times and their errors."""
    with tempfile.TemporaryDirectory() as data:
        library = Library(DataFolder(Path(data)))
        for folder in folders(paths):
            files = [(folder / "trace.json.gz", folder.name), *[(f, f.name) for f in sorted(folder.glob("nvml.jsonl*"))]]
            lead = analyse(ingest_into_runs(library.folder, files, name=folder.name).runs[0], library).lead
            if lead is None or lead.telemetry is None or lead.work is None or lead.telemetry.sawtooth.period_s is None:
                continue
            law, tooth = by_telemetry(lead.work, lead.telemetry), lead.telemetry.sawtooth
            assert tooth.period_s is not None
            best = next((item for item in lead.best.evidence if item.source == "telemetry"), None)
            if not isinstance(law, StepTimeEvidence) or best is None or not best.steps_per_period or law.ms is None:
                yield f"| {folder.name} | {1e3 * tooth.period_s:.4g} | not used | {_span(law)} | – | – |"
                continue
            truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
            clocks = [
                f"{name} {ms:.4g} ({law.ms / ms - 1:+.1%}; {(best.ms or 0.0) / ms - 1:+.1%})"
                for name, ms in clocks_ms(truth, best.steps_per_period)
            ]
            period = f"{1e3 * tooth.period_s:.4g}"
            yield f"| {folder.name} | {period} | {best.steps_per_period} | {_span(law)} | {_span(best)} | {', '.join(clocks)} |"
        library.close()


def _span(evidence: StepTimeEvidence | str) -> str:
    if isinstance(evidence, str) or evidence.ms is None or evidence.high_ms is None:
        return "–"
    return f"{evidence.ms:.4g} ({evidence.low_ms:.4g} to {evidence.high_ms:.4g})"


def of_loops(paths: list[str]) -> dict[str, list[Sampled | None]]:
    """Return the results by the loop's name; None if the period gives no step time."""
    rng, results = np.random.default_rng(1), {}
    for folder in folders(paths):
        truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
        steps = np.array(truth.get("step_s_pipelined_host", []))
        used = (truth.get("nvml_mean") or {}).get("gpu_util", 100.0)
        if len(steps) >= MIN_STEPS and used < MAX_UTILIZATION:
            steps = steps[int(WARM_UP * len(steps)) :]
            results[folder.name] = [
                _sampled(steps * mean_s / steps.mean(), used / 100 * mean_s, float(rng.uniform(0.01, 0.1)))
                for mean_s in STEPS_S
            ]
    return results


def _sampled(steps_s: F64, work_s: float, first_s: float) -> Sampled | None:
    """Return the step time by the period of the first half of the steps."""
    count = min(len(steps_s) // 2, MAX_STEPS)
    own, later = steps_s[:count], steps_s[count:]
    starts = np.concatenate([[0.0], np.cumsum(own)])
    times = np.arange(first_s, starts[-1], 0.1)
    values = sampled_work(starts[:-1], starts[:-1] + np.minimum(work_s, own), times, times - 0.1)
    tooth = find_sawtooth(START_NS + (times * 1e9).astype(np.int64), values)
    mean_ms = 1e3 * float(own.mean())
    law = StepTimeEvidence("telemetry", mean_ms, mean_ms / (1 + LAW_ERROR), mean_ms * (1 + LAW_ERROR))
    if not is_trustworthy(tooth, law.low_ms) or tooth.period_s is None or tooth.error_s is None or tooth.cycles is None:
        return None
    if (number := steps_of_period(1e3 * tooth.period_s, law)) is None:
        return None
    drift = host_drift(tooth.cycles * tooth.period_s)
    return Sampled(tooth.period_s / number, tooth.error_s / tooth.period_s, drift, float(own.mean()), float(later.mean()))


def summary(loops: dict[str, list[Sampled | None]]) -> Iterator[str]:
    """Yield the errors against both halves, and how many intervals contain them."""
    cases = [case for item in loops.values() for case in item]
    used = [case for case in cases if case is not None]
    several = sum(any(case is not None for case in item) for item in loops.values())
    yield f"The period gives the step time in {len(used)} of {len(cases)} cases, of {several} of {len(loops)} loops."
    if not used:
        return
    yield from ("", "| against | median, 90 %, worst error | intervals |", "|---|---|---|")
    for name, errors, widths in (
        ("the sampled steps", [item.step_s / item.own_s - 1 for item in used], [item.error for item in used]),
        ("later steps", [item.step_s / item.later_s - 1 for item in used], [np.hypot(item.error, item.drift) for item in used]),
    ):
        off = sorted(map(abs, errors))
        inside = sum(1 / (1 + width) <= 1 / (1 + error) <= 1 + width for error, width in zip(errors, widths, strict=True))
        yield f"| {name} | {_quantile(off, 0.5)}, {_quantile(off, 0.9)}, {off[-1]:.1%} | {inside} of {len(used)} |"


def _quantile(ordered: Sequence[float], share: float) -> str:
    return f"{ordered[min(int(share * len(ordered)), len(ordered) - 1)]:.1%}"


def main(paths: list[str]) -> None:
    paths = paths or [str(path) for path in ("sample_traces", "tests/recordings", "tests/recordings_after")]
    print(
        "| recording | period, ms | steps | kernel time ÷ utilization, ms | with the period, ms | clocks, ms (errors of both) |"
    )
    print("|---|---:|---:|---|---|---|")
    for line in of_recordings(paths):
        print(line, flush=True)
    print("", *summary(of_loops(paths)), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
