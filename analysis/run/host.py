"""The host's work in a run whose traces have no GPU work."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sawtooth.analysis.derive.host_only import LOADS_INLINE
from sawtooth.analysis.metrics.pauses import ProfileData, Round, rounds_confirmed_by, with_doubt
from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, by_user
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.units import in_words
from sawtooth.ingest.loop.step_parts import StepParts

SLOWED_RATIO = 1.5  # Profiled step ÷ the run's step. At a larger ratio, profiled times are not shown next to the run's times.
UNPROFILED_IS_SHORTER = "As profiled: the profiler slows the host, so the run's step is shorter."
OF_A_RHYTHM = 1.25  # Times the median step. Longer steps are slow, and a mean above it is more than jitter.
MIN_SLOW = 2  # One slow step may be a warm-up or chance.
RHYTHM = "Mean of the profiled steps: {slow} of {steps} take {takes} on average, the others about {typical}."
UNMARKED = "At {places}, the trace has time without a step mark. The step time does not include it."
ONE_SLOW = "Median: one of the {steps} profiled steps takes {takes}, and the mean is {mean}. Profile more steps to see how often this happens."
NO_STEPS = "The trace has no steps: call profiler.step() after each, or put an NVTX range around it under Nsight Systems."


@dataclass(frozen=True)
class HostOperator:
    """An operator's own time on the host and its calls, per step."""

    name: str
    ms: float
    calls: float


@dataclass(frozen=True)
class HostThread:
    """A thread's time inside operators, per step."""

    name: str
    ms: float


@dataclass(frozen=True)
class HostWork:
    """The host's time, ms per step (of the whole recording if ``steps`` is 0).

    ``loading_ms``, ``operators_ms`` and ``rest_ms`` divide the time of the loop's own thread: waiting for batches, inside
    operators, and the rest. ``communication_ms`` is the part of ``rest_ms`` in which a collective runs on the CPU, mostly
    ``collective``.

    ``step_ms`` are the profiled steps in order. ``loads_inline`` says that the loop's own process loads its batches. ``round``
    describes the loop's rounds, None if it has none. ``parts`` are set if the loop's marks show how long the run's steps wait: then
    the three times are those of the run's step, and ``outside_ms`` is its time that the profiled steps do not show.
    ``work_scale`` is the factor from profiled operators and rest to the run's. ``functions`` are the user's own functions as ``file.py(12): name``, with
    their ms outside operators and loading. They are empty where no Python calls were recorded.
    """

    steps: int
    step: Reading
    loading_ms: float
    operators_ms: float
    rest_ms: float
    operators: tuple[HostOperator, ...]
    threads: tuple[HostThread, ...]
    step_ms: tuple[float, ...] = ()
    loads_inline: bool = False
    functions: tuple[tuple[str, float], ...] = ()
    communication_ms: float = 0.0
    collective: str = ""
    round: Round | None = None
    parts: StepParts | None = None
    work_scale: float = 1.0

    @property
    def outside_ms(self) -> float:
        """The time of the run's step that the profiled steps do not show."""
        return self.parts.all_apart_ms if self.parts is not None else 0.0

    @property
    def first_ms(self) -> float:
        """The part of ``loading_ms`` for the first batches of epochs; 0 if not known."""
        return min(self.parts.first_ms, self.loading_ms) if self.parts is not None else 0.0

    @property
    def total_ms(self) -> float:
        """The loop's time that the parts sum to, ms: the run's step, a profiled step, or the recording."""
        return self.loading_ms + self.operators_ms + self.rest_ms + self.outside_ms

    @property
    def of_the_step(self) -> float:
        """The factor from the parts to a time in the run's step.

        It is 1 if it is not known, or if the parts are those of the run's step.
        """
        is_known = self.step.value and self.steps and self.total_ms and self.parts is None
        return self.step.value / self.total_ms if self.step.value and is_known else 1.0

    @property
    def of_the_profile(self) -> bool:
        """Whether the step time is of the profiled steps, so that the run's own is not known."""
        return UNPROFILED_IS_SHORTER in self.step.notes

    @property
    def slowed(self) -> float | None:
        """How many times as long the profiled steps are as the run's steps.

        None if their times are close enough to be shown together.
        """
        scale = self.of_the_step * self.work_scale
        return 1 / scale if 0 < scale * SLOWED_RATIO <= 1 else None

    @property
    def run_is_slower(self) -> float | None:
        """How many times as long the run's steps are as the profiled steps.

        None if their times are close enough to be shown together, or if the marks show the parts of the run's steps.
        """
        return self.of_the_step if self.of_the_step >= SLOWED_RATIO and not self.of_the_profile else None


def host_work(recording: Recording, user_ms: float | None, marks: StepTimeEvidence | None) -> HostWork | None:
    """Return the host's work in a trace; None where its derived file has no such facts."""
    rows = recording.rows("SELECT value FROM facts WHERE key = 'host_only'")
    work = json.loads(rows[0][0]) if rows else None
    if work is None:
        return None
    inline = recording.named(LOADS_INLINE)
    names = {row[0]: row[1] or f"thread {row[2]}" for row in recording.rows("SELECT thread_id, name, tid FROM threads")}
    rounds = _rounds(work, marks) if user_ms is None else None
    known_work = HostWork(
        steps=len(work["step_ns"]),
        step=_with_unmarked(_step(work["step_ns"], work.get("first_ns"), user_ms, marks, rounds), work.get("unmarked", 0)),
        loading_ms=work["loading_ns"] / 1e6,
        operators_ms=work["operators_ns"] / 1e6,
        rest_ms=work["rest_ns"] / 1e6,
        operators=tuple(HostOperator(name, ns / 1e6, calls) for name, ns, calls in work["operators"]),
        threads=tuple(HostThread(names.get(thread, f"thread {thread}"), ns / 1e6) for thread, ns in work["threads"]),
        step_ms=tuple(ns / 1e6 for ns in work["step_ns"]),
        loads_inline=bool(inline),
        functions=tuple((name, ns / 1e6) for name, ns in work.get("functions", ())),
        communication_ms=work.get("communication_ns", 0.0) / 1e6,
        collective=work.get("collective", ""),
        round=rounds,
    )
    return _in_the_run(known_work, marks) if marks is not None and user_ms is None else known_work


def _in_the_run(work: HostWork, marks: StepTimeEvidence) -> HostWork:
    """Return the work with the parts of the run's step, if its marks show the waits for batches.

    The rest of the step, without waits and without time outside the profiled steps, is divided in the profiled proportions.
    """
    parts = marks.parts
    if parts is None or not work.steps or marks.ms is None or (parts.waiting_ms is None and work.loading_ms):
        return work
    waiting_ms, rest_ms = parts.waiting_ms or 0.0, max(work.rest_ms - parts.profiled_start_ms, 0.0)
    operators_ms, left_out = work.operators_ms, {pause.reason for pause in marks.pauses if not pause.in_step}
    if "evaluation" in left_out:  # If the profile contains such a pause, the run's step does not include it either.
        operators_ms -= min(parts.profiled_apart_ms, operators_ms)
    elif left_out:
        rest_ms -= min(parts.profiled_apart_ms, rest_ms)
    works_ms = max(marks.ms - waiting_ms - parts.all_apart_ms, 0.0)
    scale = works_ms / (operators_ms + rest_ms) if operators_ms + rest_ms else 1.0
    return replace(
        work,
        loading_ms=waiting_ms,
        operators_ms=scale * operators_ms,
        rest_ms=scale * rest_ms,
        communication_ms=scale * min(work.communication_ms, rest_ms),
        parts=parts,
        work_scale=scale,
    )


def _rounds(work: Any, marks: StepTimeEvidence | None) -> Round | None:
    """Return the loop's rounds, from its marks and from how long a profiled step waits for batches."""
    if marks is None or marks.round is None:
        return None
    loading_ms = work["loading_ns"] / 1e6
    return rounds_confirmed_by(marks.round, ProfileData([ns / 1e6 for ns in work["step_ns"]], loading_ms, loading_ms > 0))


def _with_unmarked(step: Reading, places: int) -> Reading:
    """Return the step time with a note on time without a step mark, if it was measured in the trace."""
    if not places or step.low is not None or step.value is None:
        return step
    return replace(step, trust="caution", notes=(UNMARKED.format(places=f"{places} place{'s' * (places > 1)}"), *step.notes))


def _step(
    step_ns: Sequence[int], first_ns: int | None, user_ms: float | None, marks: StepTimeEvidence | None, rounds: Round | None
) -> Reading:
    """Return the run's step time from the user's stopwatch, the loop's own marks, or the profiled steps.

    For profiled steps this is the median, or the mean if some steps are slow repeatedly.
    """
    evidence = by_user(user_ms) if user_ms is not None else marks
    if evidence is not None and evidence.ms is not None:
        notes = (*evidence.notes, rounds.sentence) if rounds is not None else evidence.notes
        reading = Reading(evidence.ms, low=evidence.low_ms, high=evidence.high_ms, notes=notes)
        return with_doubt(reading, evidence.pauses)
    if not step_ns:
        return missing(NO_STEPS)
    middle, all_steps_ns = statistics.median(step_ns), [*([first_ns] if first_ns is not None else ()), *step_ns]
    mean = statistics.fmean(all_steps_ns)
    slow = [ns for ns in all_steps_ns if ns > OF_A_RHYTHM * middle]
    if mean * OF_A_RHYTHM < middle:  # Most steps are slow.
        slow = [ns for ns in all_steps_ns if ns > mean]
        middle = statistics.fmean(ns for ns in all_steps_ns if ns <= mean)
    if len(slow) < MIN_SLOW or mean <= OF_A_RHYTHM * middle:
        uneven = mean > OF_A_RHYTHM * middle
        once = (
            (ONE_SLOW.format(steps=len(all_steps_ns), takes=in_words(slow[0] / 1e6), mean=in_words(mean / 1e6)),)
            if uneven
            else ()
        )
        return Reading(middle / 1e6, trust="caution", notes=(*once, UNPROFILED_IS_SHORTER))
    frequency = RHYTHM.format(
        slow=len(slow), steps=len(all_steps_ns), takes=in_words(statistics.fmean(slow) / 1e6), typical=in_words(middle / 1e6)
    )
    return Reading(mean / 1e6, trust="caution", notes=(frequency, UNPROFILED_IS_SHORTER))
