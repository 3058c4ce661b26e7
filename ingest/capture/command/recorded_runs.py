"""The runs to pack from a recording's folder: one run, or one per profile if profiles were repeated.

The first run has all step marks. A later run has the marks near its profile, so that two runs can be compared over many steps, not only
over the few profiled steps. Standard library only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from sawtooth.ingest.capture.command.hook import BOUNDARY_SUFFIX
from sawtooth.ingest.capture.command.parts import STEP_INFIX
from sawtooth.ingest.capture.command.without_optimizer import timed_profile
from sawtooth.ingest.capture.in_process import profile_cost
from sawtooth.ingest.capture.marks import MARK
from sawtooth.ingest.loop import batch_files
from sawtooth.ingest.loop.command import SEVERAL_TRAINED
from sawtooth.ingest.loop.leading_optimizer import LeadingOptimizer

# A later run has a quarter of the steps between its profile and the previous one, on each side of its profile.
NEAR_DIVISOR = 4
STEP_SETTING = "step"  # The runs of one training differ in this setting.
MIN_TRAINING_STEPS = 10  # A process with fewer steps does not count as a training.
LEFT_OUT = (
    "{count} " + SEVERAL_TRAINED + " ({steps:,} of {all:,} steps in all). "
    "If you can start them separately, use sawtooth run for each."
)

Sources = list[tuple[Path, dict[str, Any]]]


@dataclass
class RecordedRun:
    """A run to pack: the step before its profile, its files with their manifest entries, and its facts."""

    step: int = 0
    sources: Sources = field(default_factory=list)
    facts: dict[str, float | str] = field(default_factory=dict)


def runs_to_pack(folder: Path) -> list[RecordedRun]:
    """Return the runs to pack, in the order of their profiles.

    The training is all ranks of a job, or else the process with the most steps.
    """
    marks = _marks_files(folder)
    ranked = [path for path in marks if path.stem.startswith("marks-rank")]
    by_step: dict[int, RecordedRun] = {}
    for path in sorted(ranked) or marks[:1]:
        for run in _process_runs(folder, path):
            by_step.setdefault(run.step, RecordedRun(run.step)).sources.extend(run.sources)
    runs = [by_step[step] for step in sorted(by_step)]
    timed_profiles = sorted(folder.glob(f"{timed_profile.KIND}-*.json"), key=_size)
    if timed_profiles and not any(is_loop(path) for path in marks):  # Without a loop, the run has the largest timed profile.
        runs = [RecordedRun(sources=[(timed_profiles[-1], {"source_name": "trace.json.gz", "kind": "trace"})])]
    telemetry = folder / "telemetry.jsonl"
    if telemetry.exists() and (runs or _has_samples(telemetry)):
        runs = runs or [RecordedRun()]
        runs[0].sources.append((telemetry, {"source_name": "telemetry.jsonl", "kind": "telemetry"}))
    with contextlib.suppress(Exception):  # A recording is useful even without the loader's times.
        if runs and (loading := batch_files.read_loading(folder, _training_pid(marks[:1]))) is not None:
            runs[0].facts.update(batch_files.loader_facts(loading))
    return runs


def _has_samples(telemetry: Path) -> bool:
    """Return whether the sampler wrote a sample of a GPU or of the host, which it does after one second."""
    with telemetry.open("rb") as lines:
        return any(b'"h":' in line or (b'"g":[' in line and b'"g":[]' not in line) for line in lines)


def is_loop(marks: Path) -> bool:
    """Return whether a file of marks has two steps or more."""
    return loop_extent(marks)[0] > 1


def run_messages(folder: Path) -> list[str]:
    """Return messages about the recorded process and the cost of its profile."""
    return [*left_out_message(folder), *profile_cost.cost_messages(folder)]


def left_out_message(folder: Path) -> list[str]:
    """Return the message that only one of several trainings was recorded; [] if there was only one."""
    marks = _marks_files(folder)
    steps = [loop_extent(path)[0] for path in marks if _trains(path) or not _trains(marks[0])]
    steps = [count for count in steps if count >= MIN_TRAINING_STEPS]
    if len(steps) < 2 or any(path.stem.startswith("marks-rank") for path in marks):
        return []
    return [LEFT_OUT.format(count=len(steps), steps=steps[0], all=sum(steps))]


def _marks_files(folder: Path) -> list[Path]:
    """Return the files of step marks: first the files of an optimizer's loop, and larger before smaller.

    A process without an optimizer may evaluate the model that other processes train. If a process has two files, the file of the
    optimizer is skipped, because that optimizer stepped at most once.
    """
    by_size = sorted(folder.glob("marks-*.jsonl"), key=_size, reverse=True)
    by_boundaries = {
        path.with_stem(path.stem.removesuffix(BOUNDARY_SUFFIX)) for path in by_size if path.stem.endswith(BOUNDARY_SUFFIX)
    }
    return sorted((path for path in by_size if path not in by_boundaries), key=_trains, reverse=True)


def _trains(marks: Path) -> bool:
    """Return whether an optimizer made the steps in a file of marks, and enough of them for a training."""
    return not marks.stem.endswith(BOUNDARY_SUFFIX) and loop_extent(marks)[0] >= MIN_TRAINING_STEPS


def _training_pid(marks: Sequence[Path]) -> int | None:
    """Return the PID in the name of the first file of marks; None for a rank, whose file has no PID."""
    process = marks[0].stem.removeprefix("marks-").removesuffix(BOUNDARY_SUFFIX) if marks else ""
    return int(process) if process.isdecimal() else None


def _size(path: Path) -> int:
    return path.stat().st_size


def loop_extent(marks: Path) -> tuple[int, float]:
    """Return the number of loop steps in a file of marks, and the seconds from the first to the last step."""
    loop, times = LeadingOptimizer(), []
    with marks.open("rb") as lines:
        for mark in filter(None, map(MARK.search, lines)):
            if loop.note_step(int(mark[4])):
                times.append(int(mark[2]))
    return loop.steps, (times[-1] - times[0]) / 1e9 if times else 0.0


def _process_runs(folder: Path, marks: Path) -> list[RecordedRun]:
    """Return a run for each profile of the process with the file ``marks``, or one run without a profile."""
    file_infix = marks.stem.removeprefix("marks-")
    process = file_infix.removesuffix(BOUNDARY_SUFFIX)
    rank = {"rank": int(process.removeprefix("rank"))} if process.startswith("rank") else {}
    trace_name, marks_name = (process, f"marks-{process}") if rank else ("trace", "marks")
    trace = folder / f"trace-{file_infix}.json"
    traces = [trace] if trace.exists() else []
    traces += sorted(folder.glob(f"trace-{file_infix}{STEP_INFIX}*.json"), key=_step_before)
    if len(traces) <= 1:
        steps, parts = [0], [marks]
    else:
        steps = [_step_before_first(marks), *map(_step_before, traces[1:])]
        parts = _split(marks, steps)
    runs = []
    for number, (step, part) in enumerate(zip(steps, parts, strict=True)):
        sources: Sources = []
        if number < len(traces):
            sources.append((traces[number], {"source_name": f"{trace_name}.json.gz", "kind": "trace", **rank}))
        sources.append((part, {"source_name": f"{marks_name}.jsonl", "kind": "marks", **rank}))
        runs.append(RecordedRun(step, sources))
    return runs


def _step_before(trace: Path) -> int:
    """Return the last step before a repeated profile, from the name of its trace."""
    return int(trace.stem.rpartition(STEP_INFIX)[2])


def _step_before_first(marks: Path) -> int:
    """Return the last step of the loop before the first profile."""
    loop = LeadingOptimizer()
    with marks.open("rb") as lines:
        for mark in filter(None, map(MARK.search, lines)):
            if mark[3] == b"profile":
                break
            loop.note_step(int(mark[4]))
    return max(loop.steps - 1, 0)


def _split(marks: Path, steps: list[int]) -> list[Path]:
    """Return one file of marks for each profile. The first file has all marks.

    A later file has the head and the steps near its profile. Marks of other optimizers stay with the marks of the leading optimizer.
    """
    parts = [marks]
    for previous_step, step in pairwise(steps):
        near = (step - previous_step) // NEAR_DIVISOR
        parts.append(marks.with_suffix(f".{step}.jsonl"))
        loop = LeadingOptimizer()
        with marks.open("rb") as lines, parts[-1].open("wb") as out:
            out.write(next(lines, b""))
            for line in lines:
                if mark := MARK.search(line):
                    loop.note_step(int(mark[4]))
                if step - near < loop.steps - 1 <= step + near:
                    out.write(line)
    return parts
