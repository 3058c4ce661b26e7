"""Count the changes that comparisons report between runs in which nothing changed.

    python -m tests.accuracy.nothing_changed [FOLDER …] [--data FOLDER]     (default: the recordings with step marks)

The first and the second half of a run's steps before its profile are compared as two runs, by their step marks. Both halves
are from one process in which nothing changed, so every *faster* or *slower* is a false alarm. To simulate the power, every
time of the second half is divided by a factor. With ``--runs FOLDER``, the runs of that data folder with equal commands are
compared too. These are separate processes.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import math
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.compare.significance.certainty import Verdict
from sawtooth.analysis.compare.significance.decision import verdict
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps, scale
from sawtooth.analysis.metrics.step_time import LAUNCHES_ONLY
from sawtooth.analysis.metrics.step_time_evidence import with_host_drift
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.marked_loops import Mark
from sawtooth.analysis.telemetry.step_marks import by_marks
from sawtooth.ingest.schema import DataFolder
from tests.accuracy.comparisons import rate, side
from tests.support.paths import RECORDED_AFTER

FACTORS = (1.05, 1.1, 1.15, 1.3, 2.0)  # Speedups for which the power is simulated.
MARKS = "marks.jsonl.gz"


@dataclass(frozen=True)
class Pair:
    """Two parts of one program in which nothing changed, and the verdict on them."""

    name: str
    limit: str
    a: MeasuredSteps
    b: MeasuredSteps
    decided: Verdict

    @property
    def claimed(self) -> bool:
        """Return whether the verdict names the change as the cause, with more than low confidence."""
        return self.decided.shown and self.decided.confidence != "low"


def halves(folder: Path, complete: MeasuredSteps) -> Pair | None:
    """Return the halves of the steps before a recording's profile; None with too few steps."""
    with gzip.open(folder / MARKS, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    marks = [Mark(row["step"], row["t_ns"], row["phase"]) for row in rows if "step" in row]
    before = list(itertools.takewhile(lambda mark: mark.phase != "profile", marks))
    parts = []
    for name, part in zip("ab", (before[: len(before) // 2], before[len(before) // 2 :]), strict=True):
        evidence = by_marks(part)
        evidence = with_host_drift(evidence) if evidence is not None and complete.host_bound else evidence
        # While the queue fills, steps show the host's time for launches. The analysis of a run leaves these steps out too.
        if evidence is None or evidence.ms is None or evidence.ms < LAUNCHES_ONLY * (complete.works_ms or 0.0):
            return None
        parts.append(
            replace(
                complete,
                best_ms=evidence.ms,
                low_ms=evidence.low_ms,
                high_ms=evidence.high_ms,
                before_high_ms=evidence.before_high_ms,
                marked_ms=evidence.marked_ms,
                source="marks",
                recordings=(f"{folder.name} {name}",),
            )
        )
    a, b = parts
    return Pair(folder.name, "host" if complete.host_bound else "GPU", a, b, verdict([a], [b]))


def processes(data: Path) -> Iterator[Pair]:
    """Yield all pairs of runs of one command in a data folder, and the whole comparison's verdict."""
    with Library(DataFolder(data)) as library:
        runs = [run for run in library.folder.manifests() if run.recorded_command]
        sides = [side_of([result_of(run, library)], library) for run in runs]
    for a, b in itertools.combinations(sides, 2):
        if a.command == b.command:
            found = compare(a, b)
            yield Pair(" ".join(a.command[-2:]), "processes on the CPU", a.measured[0], b.measured[0], found.leading)


def table(found: Sequence[Pair]) -> Iterator[str]:
    """Yield the false alarms by what limits the step, and the simulated power."""
    kinds = sorted({pair.limit for pair in found})
    yield from (
        "| limit of the step | *faster* or *slower* | with medium or high confidence | median and 95 % of the ratio |",
        "|---|--:|--:|--:|",
    )
    for kind in kinds:
        of_kind = [pair for pair in found if pair.limit == kind]
        ratios = sorted(math.exp(abs(math.log((pair.a.best_ms or 1.0) / (pair.b.best_ms or 1.0)))) for pair in of_kind)
        spread = f"{ratios[len(ratios) // 2]:.3f}, {ratios[math.ceil(0.95 * len(ratios)) - 1]:.3f}"
        shown, claimed = sum(pair.decided.shown for pair in of_kind), sum(pair.claimed for pair in of_kind)
        yield f"| {kind} | {rate(shown, len(of_kind))} | {rate(claimed, len(of_kind))} | {spread} |"
    yield ""
    yield f"| limit of the step | {' | '.join(f'{factor:g} ×' for factor in FACTORS)} |"
    yield f"|---|{'--:|' * len(FACTORS)}"
    for kind in kinds:
        of_kind = [pair for pair in found if pair.limit == kind]
        yield f"| {kind} | {' | '.join(f'{called(of_kind, factor)} of {len(of_kind)}' for factor in FACTORS)} |"


def called(pairs: Iterable[Pair], factor: float) -> int:
    """Return the number of pairs that are called faster if every time of B is divided by ``factor``."""
    return sum(verdict([pair.a], [scale(pair.b, 1 / factor)]).word == "faster" for pair in pairs)


def main(paths: Sequence[str], data: Path, runs: Path | None) -> None:
    roots = [Path(root) for root in paths] or [RECORDED_AFTER]
    library = Library(DataFolder(data))
    recordings = [folder for root in roots for folder in sorted(root.iterdir()) if (folder / MARKS).exists()]
    found = [
        pair for folder in recordings if (pair := halves(folder, side(library, folder, telemetry=True).measured[0])) is not None
    ]
    library.close()
    found += processes(runs) if runs is not None else ()
    print(*table(found), "", sep="\n")
    for pair in found:
        if pair.decided.shown:
            print(
                f"* {pair.name}: {pair.decided.answer}, {pair.decided.confidence}, {(pair.a.best_ms or 0.0) / (pair.b.best_ms or 1.0):.3f} ×"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--runs", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        main(arguments.folders, arguments.data or Path(scratch), arguments.runs)
