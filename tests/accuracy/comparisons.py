"""Print the verdicts of comparisons of recordings next to the stopwatch's ratio, as a table.

    python -m tests.accuracy.comparisons [FOLDER …] [--data FOLDER] [--both]     (default: the bundled and the test recordings)

A pair is a recording whose truth.json names another one in ``fixed_by``. Each pair is compared with and without telemetry,
and in both directions. Below the Markdown table are the numbers of true changes that were found, of wrong directions, and of
intervals that contained the stopwatch's ratio. Two recordings of one scenario, in two folders, are compared with each other
too. For them, every *faster* or *slower* is a false alarm. *The change did it* means medium or high confidence. The truth is
the stopwatch before the profile; with ``--both``, it is the mean of the stopwatches before and after the profile.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

from sawtooth.analysis.compare.comparison_side import Side, side_of
from sawtooth.analysis.compare.significance.certainty import Verdict
from sawtooth.analysis.compare.significance.decision import verdict
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import RECORDED_AFTER, RECORDINGS, SAMPLES

# Factors. For each, the table has the number of true changes of at least this size that were found.
CHANGES = (1.15, 1.3, 2.0, 3.0)
MIRRORED = {
    "faster": "slower",
    "slower": "faster",
    "faster_size_unknown": "slower_size_unknown",
    "slower_size_unknown": "faster_size_unknown",
}


@dataclass(frozen=True)
class Judged:
    """One comparison: the stopwatch's ratio of A to B and the verdicts in both directions.

    ``telemetry`` says that telemetry was used, and ``host`` that the host limits the step of a side.
    """

    a: str
    b: str
    true: float
    a_to_b: Verdict
    b_to_a: Verdict
    telemetry: bool
    host: bool = False

    @property
    def claimed(self) -> bool:
        """Return whether the verdict names the change as the cause, with medium or high confidence."""
        return self.a_to_b.shown and self.a_to_b.confidence != "low"

    @property
    def size(self) -> float:
        """Return the slower side's time ÷ the faster side's."""
        return max(self.true, 1 / self.true)

    @property
    def right(self) -> bool:
        """Return whether the verdict has the true direction."""
        return self.a_to_b.word == ("faster" if self.true > 1 else "slower")

    @property
    def wrong(self) -> bool:
        """Return whether the direction is wrong, or the change is larger than the stated maximum."""
        if self.a_to_b.answer == "no_change":
            return self.size - 1 > (self.a_to_b.largest_change or 0.0)
        return self.a_to_b.shown and not self.right

    @property
    def mirrors(self) -> bool:
        """Return whether swapped sides give the mirrored verdict."""
        return self.b_to_a.answer == MIRRORED.get(self.a_to_b.answer, self.a_to_b.answer)

    @property
    def in_interval(self) -> bool | None:
        """Return whether the interval contains the stopwatch's ratio; None if it is open."""
        low, high = self.a_to_b.ratio or (None, None)
        return None if low is None or high is None else low <= self.true <= high


@dataclass(frozen=True)
class JudgedInterval:
    """An interval: whether it contained the stopwatch's value, its high ÷ low, and its source."""

    in_interval: bool
    width: float
    telemetry: bool
    host: bool


def folders(paths: Sequence[str]) -> list[Path]:
    """Return the recordings' folders: those in ``paths``, else all of this repository."""
    roots = [Path(root) for root in paths] or [SAMPLES, RECORDINGS, RECORDED_AFTER]
    return [folder for root in roots for folder in sorted(root.iterdir()) if watch(folder) is not None]


def watch(folder: Path, *, both: bool = False) -> float | None:
    """Return the stopwatch's step time of a recording, s; None for a folder without one.

    With ``both``, it is the mean of the stopwatches before and after the profile.
    """
    path = folder / "truth.json"
    truth = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    before, after = truth.get("step_s_pipelined"), truth.get("step_s_after_profile")
    return (before + after) / 2 if both and before and after else before


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
    """Return the pairs of recordings of one unchanged loop.

    Both recordings have the same name, the same planted trouble and the same work per step.
    """
    truths = {folder: json.loads((folder / "truth.json").read_text(encoding="utf-8")) for folder in recordings}
    loops = {folder: (folder.name, truth.get("planted"), truth.get("flops_per_step")) for folder, truth in truths.items()}
    return [(a, b) for a, b in itertools.combinations(recordings, 2) if loops[a] == loops[b]]


def side(library: Library, folder: Path, *, telemetry: bool) -> Side:
    """Return the recording as a side of a comparison, from its traces alone or with telemetry."""
    files = sorted(folder.glob("*.sawtooth")) or [
        *sorted(folder.glob("*trace.json.gz")),
        *sorted([*folder.glob("nvml*.jsonl*"), *folder.glob("telemetry.jsonl*")]),
    ]
    run = ingest_into_runs(library.folder, [(file, f"{folder.name}/{file.name}") for file in files], name=folder.name).runs[0]
    return side_of([analyse(run if telemetry else msgspec.structs.replace(run, recordings=run.traces), library)], library)


def judged(
    chosen: Sequence[tuple[Path, Path]], side_at: Callable[[Path, bool], Side], *, both: bool = False
) -> Iterator[Judged]:
    """Yield the verdicts of each pair, from traces alone and with telemetry."""
    for (a, b), telemetry in itertools.product(chosen, (False, True)):
        before, after = (side_at(folder, telemetry).measured for folder in (a, b))
        true = (watch(a, both=both) or 0.0) / (watch(b, both=both) or 1.0)
        host = any(run.host_bound for run in (*before, *after))
        yield Judged(a.name, b.name, true, verdict(before, after), verdict(after, before), telemetry, host)


def row(one: Judged) -> str:
    low, high = one.a_to_b.ratio or (None, None)
    upper = f"up to {high:.2f} (no lower limit)" if high is not None else "open"
    interval = upper if low is None else f"{low:.2f} to {high:.2f}" if high is not None else f"from {low:.2f} (no upper limit)"
    marks = (
        " **wrong**" * one.wrong + " **changes if swapped**" * (not one.mirrors) + " **outside**" * (one.in_interval is False)
    )
    return f"| {one.a} → {one.b} | {_basis(one.telemetry)} | {one.true:.2f} | {one.a_to_b.answer}{marks} | {interval} |"


def summary(all_judged: Sequence[Judged]) -> Iterator[str]:
    """Yield the counts of found changes, wrong directions, and intervals that contain the ratio."""
    for telemetry in (False, True):
        chosen_pairs = [one for one in all_judged if one.telemetry == telemetry]
        contained = [one.in_interval for one in chosen_pairs if one.in_interval is not None]
        yield (
            f"{'With telemetry' if telemetry else 'Traces alone'}: {len(chosen_pairs)} pairs. Right direction: {_calls(chosen_pairs)}. {sum(one.wrong for one in chosen_pairs)} of "
            f"{sum(one.a_to_b.answer != 'cannot_tell' for one in chosen_pairs)} answers are wrong. {sum(not one.mirrors for one in chosen_pairs)} change if A and B are swapped. "
            f"{sum(contained)} of {len(contained)} closed intervals contain the stopwatch's ratio."
        )
        for host in (False, True):
            yield f"  The {_limit(host)} limits the step. Right direction: {_calls([one for one in chosen_pairs if one.host == host])}."


def _calls(judged: Sequence[Judged]) -> str:
    """Return how many true changes have the right direction, such as "25 of 25 of 2 × or more"."""
    sizes = [(size, [one for one in judged if one.size >= size]) for size in CHANGES]
    return ", ".join(
        f"{sum(one.right for one in large)} of {len(large)} of {size:g} × or more" for size, large in sizes if large
    )


def of_step(run: MeasuredSteps, ms: float, *, telemetry: bool) -> Iterator[JudgedInterval]:
    """Yield a step time's interval, judged by the stopwatch's ``ms``, if it is closed."""
    if run.low_ms is not None and run.high_ms is not None:
        yield JudgedInterval(run.low_ms <= ms <= run.high_ms, run.high_ms / run.low_ms, telemetry, run.host_bound)


def of_ratio(one: Judged) -> Iterator[JudgedInterval]:
    """Yield a ratio's interval, judged by the stopwatches' ratio, if it is closed."""
    low, high = one.a_to_b.ratio or (None, None)
    if one.in_interval is not None and low and high:
        yield JudgedInterval(one.in_interval, high / low, one.telemetry, one.host)


def intervals(of: str, found: Sequence[JudgedInterval]) -> Iterator[str]:
    """Yield the share of intervals that contain the stopwatch's value, by source and limit of the step."""
    for telemetry, host in itertools.product((False, True), (False, True)):
        chosen_pairs = [item for item in found if (item.telemetry, item.host) == (telemetry, host)]
        if chosen_pairs:
            width = statistics.median(item.width for item in chosen_pairs)
            yield f"| {of} | {_basis(telemetry)} | {_limit(host)} | {rate(sum(item.in_interval for item in chosen_pairs), len(chosen_pairs))} | {width:.2f} |"


def alarms(unchanged: Sequence[Judged]) -> Iterator[str]:
    """Yield the table of false alarms among recordings with nothing changed."""
    yield from ("| from | limit of the step | *faster* or *slower* | *the change did it* |", "|---|---|--:|--:|")
    for telemetry, host in itertools.product((False, True), (False, True)):
        chosen_pairs = [one for one in unchanged if (one.telemetry, one.host) == (telemetry, host)]
        shown, claimed = sum(one.a_to_b.shown for one in chosen_pairs), sum(one.claimed for one in chosen_pairs)
        if chosen_pairs:
            yield f"| {_basis(telemetry)} | {_limit(host)} | {rate(shown, len(chosen_pairs))} | {rate(claimed, len(chosen_pairs))} |"


def _basis(telemetry: bool) -> str:
    return "telemetry" if telemetry else "traces"


def _limit(host: bool) -> str:
    return "host" if host else "GPU"


def rate(count: int, of: int) -> str:
    """Return a count as a share with its 95 % interval (Wilson), such as "1 of 33 (0.5 to 15 %)"."""
    if not of:
        return "0 of 0"
    z, share = 1.96, count / of
    middle, half = share + z * z / (2 * of), z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    low, high = (max(round(end / (1 + z * z / of), 6), 0.0) + 0.0 for end in (middle - half, middle + half))
    return f"{count} of {of} ({100 * low:.2g} to {100 * high:.0f} %)"


def main(paths: Sequence[str], data: Path, *, both: bool) -> None:
    library, recordings = Library(DataFolder(data)), folders(paths)

    @cache
    def side_at(folder: Path, telemetry: bool) -> Side:
        return side(library, folder, telemetry=telemetry)

    print("| pair | from | stopwatch, × | verdict | 95 % interval of the ratio |", "|---|---|--:|---|---|", sep="\n")
    found = []
    for one in judged(pairs(recordings), side_at, both=both):
        found.append(one)
        print(row(one), flush=True)
    print("", *summary(found), sep="\n")
    steps = [
        item
        for folder, telemetry in itertools.product(recordings, (False, True))
        for item in of_step(
            side_at(folder, telemetry).measured[0], 1e3 * (watch(folder, both=both) or 0.0), telemetry=telemetry
        )
    ]
    print(
        "",
        "| interval of | from | limit of the step | contain the stopwatch's value | median width (upper ÷ lower end) |",
        "|---|---|---|--:|--:|",
        sep="\n",
    )
    print(*intervals("step time", steps), *intervals("ratio", [item for one in found for item in of_ratio(one)]), sep="\n")
    unchanged = list(judged(twice(recordings), side_at, both=both))
    print("\nNothing changed:\n", *alarms(unchanged), "", sep="\n")
    for one in unchanged:
        print(
            f"  {one.a}, {_basis(one.telemetry)}: {one.a_to_b.answer} ({one.a_to_b.confidence}), stopwatches {one.true:.2f} ×"
        )
    library.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--both", action="store_true", help="the truth is the mean of both stopwatches")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        main(arguments.folders, arguments.data or Path(scratch), both=arguments.both)
