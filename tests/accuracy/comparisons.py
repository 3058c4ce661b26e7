"""Print what a comparison says of pairs of recordings beside the stopwatch's ratio, as a Markdown table.

    python -m tests.accuracy.comparisons [FOLDER …] [--data FOLDER]     (default: the bundled and the test recordings)

Pairs are the recordings whose truth.json names another one in ``fixed_by``. Each pair is compared from its traces alone and with telemetry, from A to B
and back. Below the table: how many true changes were called, wrong directions, and how many intervals of the ratio held the stopwatch's ratio. Recordings
of one scenario under two folders are compared with each other too: there every *faster* or *slower* is a false alarm.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from sawtooth.analysis.compare.comparison_side import Side, side_of
from sawtooth.analysis.compare.significance.certainty import Verdict
from sawtooth.analysis.compare.significance.decision import verdict
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import bring_in
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import RECORDED_AFTER, RECORDINGS, SAMPLES

CHANGES = (1.15, 1.3, 2.0, 3.0)  # times: how many true changes of at least this size are called
MIRRORED = {
    "faster": "slower",
    "slower": "faster",
    "faster_size_unknown": "slower_size_unknown",
    "slower_size_unknown": "faster_size_unknown",
}


@dataclass(frozen=True)
class Judged:
    """One comparison: the stopwatch's ratio of A to B, what was said of A to B and of B to A, and from what."""

    a: str
    b: str
    true: float
    said: Verdict
    back: Verdict
    telemetry: bool

    @property
    def size(self) -> float:
        """The slower side's time ÷ the faster side's."""
        return max(self.true, 1 / self.true)

    @property
    def right(self) -> bool:
        """Whether a change is called in its true direction."""
        return self.said.word == ("faster" if self.true > 1 else "slower")

    @property
    def wrong(self) -> bool:
        """Whether the direction is wrong, or a change is larger than the largest that was said to be possible."""
        if self.said.answer == "no_change":
            return self.size - 1 > (self.said.largest_change or 0.0)
        return self.said.shown and not self.right

    @property
    def mirrors(self) -> bool:
        """Whether swapping the sides says the same."""
        return self.back.answer == MIRRORED.get(self.said.answer, self.said.answer)

    @property
    def held(self) -> bool | None:
        """Whether the ratio's interval holds the stopwatch's ratio; None where it is open."""
        low, high = self.said.ratio or (None, None)
        return None if low is None or high is None else low <= self.true <= high


def folders(given: Sequence[str]) -> list[Path]:
    """Return the recordings' folders: those in ``given``, else all of this repository."""
    roots = [Path(root) for root in given] or [SAMPLES, RECORDINGS, RECORDED_AFTER]
    return [folder for root in roots for folder in sorted(root.iterdir()) if _watch(folder) is not None]


def _watch(folder: Path) -> float | None:
    """Return the stopwatch's step time of a recording, s; None for a folder that is none."""
    truth = folder / "truth.json"
    return json.loads(truth.read_text(encoding="utf-8")).get("step_s_pipelined") if truth.exists() else None


def pairs(recordings: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Return each recording with those that its truth names as its fix."""
    named = [json.loads((folder / "truth.json").read_text(encoding="utf-8")).get("fixed_by", []) for folder in recordings]
    return [
        (a, b)
        for a, fixes in zip(recordings, named, strict=True)
        for b in recordings
        if b.name in {fix["recording"] for fix in fixes}
    ]


def twice(recordings: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Return the pairs of recordings of one loop with nothing changed: the name, the planted trouble and the work of a step are the same."""
    truths = {folder: json.loads((folder / "truth.json").read_text(encoding="utf-8")) for folder in recordings}
    loops = {folder: (folder.name, truth.get("planted"), truth.get("flops_per_step")) for folder, truth in truths.items()}
    return [(a, b) for a, b in itertools.combinations(recordings, 2) if loops[a] == loops[b]]


def side(library: Library, folder: Path, *, telemetry: bool) -> Side:
    """Return the recording as a side of a comparison, from its traces alone or with telemetry."""
    files = sorted(folder.glob("*.sawtooth")) or [
        *sorted(folder.glob("*trace.json.gz")),
        *sorted([*folder.glob("nvml*.jsonl*"), *folder.glob("telemetry.jsonl*")]),
    ]
    run = bring_in(library.folder, [(file, f"{folder.name}/{file.name}") for file in files], name=folder.name).runs[0]
    return side_of([analyse(run if telemetry else msgspec.structs.replace(run, recordings=run.traces), library)], library)


def judged(chosen: Sequence[tuple[Path, Path]], side_at: Callable[[Path, bool], Side]) -> Iterator[Judged]:
    """Yield what is said of each pair, from traces alone and with telemetry."""
    for (a, b), telemetry in itertools.product(chosen, (False, True)):
        before, after = (side_at(folder, telemetry).measured for folder in (a, b))
        true = (_watch(a) or 0.0) / (_watch(b) or 1.0)
        yield Judged(a.name, b.name, true, verdict(before, after), verdict(after, before), telemetry)


def row(one: Judged) -> str:
    """Return a pair's row."""
    low, high = (f"{end:.2f}" if end is not None else "open" for end in one.said.ratio or (None, None))
    basis = "telemetry" if one.telemetry else "traces"
    marks = " **wrong**" * one.wrong + " **does not mirror**" * (not one.mirrors)
    return f"| {one.a} → {one.b} | {basis} | {one.true:.2f} | {one.said.answer}{marks} | {low} to {high} |"


def summary(said: Sequence[Judged]) -> Iterator[str]:
    """Yield, for traces alone and with telemetry, calls by the size of the true change, wrong directions and intervals held."""
    for telemetry in (False, True):
        mine = [one for one in said if one.telemetry == telemetry]
        calls = [
            f"{sum(one.right for one in large)} of {len(large)} of {size:g} ×"
            for size in CHANGES
            if (large := [one for one in mine if one.size >= size])
        ]
        held = [one.held for one in mine if one.held is not None]
        yield (
            f"{'With telemetry' if telemetry else 'Traces alone'}: {len(mine)} pairs; called {', '.join(calls)}; {sum(one.wrong for one in mine)} wrong of "
            f"{sum(one.said.answer != 'cannot_tell' for one in mine)} answers; {sum(not one.mirrors for one in mine)} do not mirror; the ratio's interval "
            f"held {sum(held)} of {len(held)}."
        )


def main(given: Sequence[str], data: Path) -> None:
    """Print the table, the counts, and the false alarms among recordings with nothing changed."""
    library, recordings = Library(DataFolder(data)), folders(given)

    @cache
    def side_at(folder: Path, telemetry: bool) -> Side:
        return side(library, folder, telemetry=telemetry)

    print("| pair | from | stopwatch, × | said | 95 % of the ratio |", "|---|---|--:|---|---|", sep="\n")
    said = []
    for one in judged(pairs(recordings), side_at):
        said.append(one)
        print(row(one), flush=True)
    print("", *summary(said), sep="\n")
    alike = list(judged(twice(recordings), side_at))
    print(f"\nNothing changed: {sum(one.said.shown for one in alike)} false alarms in {len(alike)} comparisons.")
    print(*(f"  {one.a}: {one.said.answer}, stopwatches {one.true:.2f} ×" for one in alike), sep="\n")
    library.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        main(arguments.folders, arguments.data or Path(scratch))
