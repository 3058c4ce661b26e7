"""Choose the best step time: the strongest evidence decides, other evidence affects its trust.

Evidence is not averaged. The order is: the user's stopwatch, the run's own step marks, telemetry (kernel time and dispatch ÷
utilization), the trace alone. Exception: the profile comes before telemetry if the GPU limits the profiled steps and telemetry
confirms them, because the profile measured its steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from sawtooth.analysis.metrics.device_facts import StepEstimate
from sawtooth.analysis.metrics.loader_rate import Feeding
from sawtooth.analysis.metrics.pauses import Pauses, ProfileData, Round, rounds_confirmed_by
from sawtooth.analysis.metrics.reading import Reading, Trust, missing
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES, StepSource
from sawtooth.analysis.metrics.step_time_evidence import (
    FLOOR_MARGIN,
    GPU_BOUND,
    SAMPLE_IT,
    StepTimeEvidence,
    StepWork,
    by_trace,
    by_user,
    limited_by_host,
    much_longer,
    of_slower_host,
    with_host_drift,
)
from sawtooth.analysis.units import in_words
from sawtooth.ingest.loop.step_parts import StepParts

MAX_PROFILE_DIFFERENCE = 0.05  # If profile and estimate differ by less, the profile is used, because it was measured.
MAX_EVIDENCE_DIFFERENCE = 0.08  # Evidence agrees if it differs by less than this, which is telemetry's own error.
# Loading in the run takes at least this share of the profiled loading: batches differ, and the page cache warms.
MIN_LOADED = 0.8
# Telemetry with a larger ratio high ÷ low is not used: the trace's interval of a host-limited run is as narrow.
TOO_WIDE = 2.25
NO_STEPS = "The trace has no steps: no ProfilerStep, optimizer step or repeated annotation, and the host repeats no work."
OPENING_STEP = "The first profiled step is one of the few counted steps. It may include warm-up, which cannot be recognised in so few steps."
ONE_STEP = "Only one step is profiled. It may include warm-up, and it does not show how steps vary."
MAY_BE_GPU = f"The GPU may limit the step: kernels and their dispatch take {{floor}}, which the interval includes. {SAMPLE_IT}"


@dataclass(frozen=True)
class BestStepTime:
    """The run's step time (``reading``) and its source.

    * ``profiled``: the median of the profiled device steps. ``mean_ms``: their mean. ``estimate``: the replay's step time.
    * ``evidence``: all evidence, the strongest first. ``floor_ms``: the GPU's time for a step's kernels with their dispatch.
    * ``represented``: False if the run's steps take longer than its profiled steps. The trace then lacks a part of the step.
    * ``feeding``: the loader workers' time per step, None if not timed. ``round``: the loop's rounds. ``parts``: its marked step's.
    * ``pipeline_ms``: the shortest step that the stages of the job's pipeline allow, 0 without a pipeline.
    """

    source: StepSource
    reading: Reading
    profiled: Reading
    estimate: Reading
    mean_ms: float | None
    evidence: tuple[StepTimeEvidence, ...] = ()
    floor_ms: float | None = None
    represented: bool = True
    feeding: Feeding | None = None
    round: Round | None = None
    parts: StepParts | None = None
    pipeline_ms: float = 0.0

    @property
    def ms(self) -> float | None:
        """The best step time in ms."""
        return self.reading.value

    @property
    def pauses(self) -> tuple[Pauses, ...]:
        """The pauses between the loop's steps; empty if the step time is not from marks.

        Two kinds are left out. If marked steps are shorter than their kernels, a pause of unknown reason may be a wait for
        launched work. Evaluations before each round are part of the rounds.
        """
        pauses = next((w.pauses for w in self.evidence if w.source == self.source), ())
        waits = self.floor_ms is not None and self.ms is not None and self.ms < FLOOR_MARGIN * self.floor_ms
        contradicted = {*(["unknown"] if waits else ()), *(["evaluation"] if self.round and self.round.evaluates else ())}
        return tuple(pause for pause in pauses if pause.reason not in contradicted)

    @property
    def gpu_may_limit(self) -> bool:
        """Whether the step may be as short as the GPU's own work, so that a faster host may gain nothing."""
        return self.floor_ms is not None and self.reading.low is not None and self.reading.low <= self.floor_ms


NO_TIME = "The profiled steps end at the same time on the device, so their operations have wrong times."
_NOTHING = missing(NO_STEPS)
# Marks with shorter steps than this share of the kernels' time are not used: a short loop's only wait for the GPU was a pause.
LAUNCHES_ONLY = 0.5
NO_STEP_TIME = BestStepTime("profile", _NOTHING, _NOTHING, missing("There are no steps to estimate."), None)


def choose_step_time(
    steps: pd.DataFrame,
    estimate: StepEstimate | None,
    user_ms: float | None,
    *,
    work: StepWork | None = None,
    telemetry: StepTimeEvidence | None = None,
    marks: StepTimeEvidence | None = None,
    fed: Feeding | None = None,
) -> BestStepTime:
    """Choose the run's step time.

    ``steps`` is the derived table, ``estimate`` the replay's. ``work`` is the GPU's work in a step; without it, the trace gives no
    interval. ``fed`` is the loader workers' time per step.
    """
    profiled, durations = _profiled_times(steps)
    mean_ms = float(durations.mean()) if len(durations) else None
    est = _estimate(estimate, profiled)
    trace = floor = None
    if work is not None and work.kernel_ns > 0 and len(durations):
        trace, floor = by_trace(work, durations.tolist(), est.value), work.occupied_ns / 1e6
    if trace is not None and est.value is not None:
        est = replace(_with_note(est, *trace.notes), low=trace.low_ms, high=trace.high_ms)
    user = by_user(user_ms) if user_ms is not None else None
    if telemetry is not None and _impossible(telemetry, work):
        telemetry = None
    if marks is not None and marks.ms is not None and floor is not None and marks.ms < LAUNCHES_ONLY * floor:
        marks = None
    known_work = work if floor is not None else None
    if marks is not None and known_work is not None and limited_by_host(marks, known_work):
        marks = with_host_drift(marks)
    ranked = [item for item in (user, marks, _above_kernel_time(telemetry, known_work), trace) if item is not None]
    source, reading = _strongest(ranked, _by_profile(profiled, est, mean_ms, trace), durations.tolist(), floor)
    rounds = _rounds(marks, durations.tolist(), work, floor) if source == "marks" else None
    chosen = BestStepTime(
        source=source,
        reading=_with_note(_with_others(source, reading, ranked), *([rounds.sentence] if rounds else ())),
        profiled=profiled,
        estimate=est,
        mean_ms=mean_ms,
        evidence=tuple(ranked),
        floor_ms=floor,
        represented=not much_longer(source, reading, est, mean_ms, fed) or of_slower_host(marks, source, est, mean_ms, rounds),
        feeding=fed,
        round=rounds,
        parts=marks.parts if marks is not None and source == "marks" else None,
    )
    if (
        floor is not None
        and STEP_SOURCES[source].of_trace
        and chosen.gpu_may_limit
        and not _bound_by_gpu(durations.tolist(), floor)
    ):
        chosen = replace(chosen, reading=_with_note(chosen.reading, MAY_BE_GPU.format(floor=in_words(floor))))
    return chosen


def _rounds(
    marks: StepTimeEvidence | None, profiled_ms: Sequence[float], work: StepWork | None, floor: float | None
) -> Round | None:
    """Return the rounds of the run's loop, from its marks, checked against the profile."""
    if marks is None or marks.round is None:
        return None
    if work is None:
        return rounds_confirmed_by(marks.round, ProfileData(profiled_ms))
    loads = work.hidden_loader or work.waits_ns > 0
    return rounds_confirmed_by(marks.round, ProfileData(profiled_ms, work.waits_ns / 1e6, loads, floor))


def _profiled_times(steps: pd.DataFrame) -> tuple[Reading, pd.Series]:
    """Return the median of the counted steps, and their times in ms (empty if the times are wrong)."""
    counted = steps[steps["counted"]]
    durations = (counted["end_ns"] - counted["start_ns"]) / 1e6
    if not len(durations):
        return _NOTHING, durations
    if not durations.median() > 0:
        return missing(NO_TIME), durations.iloc[:0]
    opening = "cycle" in steps and bool((steps["counted"] & ~steps["cycle"].duplicated()).any())
    notes = (ONE_STEP,) if len(durations) == 1 else (OPENING_STEP,) if opening else ()
    return Reading(float(durations.median()), trust="caution" if notes else "ok", notes=notes), durations


def _with_note(reading: Reading, *notes: str) -> Reading:
    return replace(reading, notes=(*reading.notes, *notes))


def _strongest(
    ranked: list[StepTimeEvidence], by_profile: tuple[StepSource, Reading], profiled_ms: Sequence[float], floor: float | None
) -> tuple[StepSource, Reading]:
    """Return source and reading of the strongest evidence, which is the trace if nothing is stronger."""
    for evidence in ranked:
        if evidence.ms is None or evidence.source == "estimate":
            continue
        if evidence.source == "telemetry":
            source, reading = by_profile
            if (
                source == "profile"
                and reading.value
                and floor
                and _bound_by_gpu(profiled_ms, floor)
                and evidence.contains(reading.value)
            ):
                return source, _narrow(reading, evidence)
            if (evidence.width or float("inf")) > TOO_WIDE and reading.value is not None:
                continue
        trust: Trust = "caution" if evidence.source == "telemetry" else "ok"
        return evidence.source, Reading(evidence.ms, None, trust, evidence.notes, evidence.low_ms, evidence.high_ms)
    return by_profile


def _bound_by_gpu(profiled_ms: Sequence[float], floor: float) -> bool:
    return bool(len(profiled_ms)) and max(profiled_ms) <= GPU_BOUND * floor


def _narrow(reading: Reading, evidence: StepTimeEvidence) -> Reading:
    """Return the profile's reading with the intersection of its interval and telemetry's."""
    high = evidence.high_ms if reading.high is None else min(reading.high, evidence.high_ms or reading.high)
    return replace(reading, low=max(reading.low or 0.0, evidence.low_ms), high=high)


def _impossible(telemetry: StepTimeEvidence, work: StepWork | None) -> bool:
    """Return whether telemetry's step is shorter than the step's loading and GPU work together.

    NVML's utilization is too high near 0 %, which makes such a step too short.
    """
    if telemetry.ms is None or work is None or not work.loading_least_ns:
        return False
    return telemetry.ms * 1e6 < MIN_LOADED * (work.occupied_ns + work.loading_least_ns)


def _above_kernel_time(telemetry: StepTimeEvidence | None, work: StepWork | None) -> StepTimeEvidence | None:
    """Return telemetry's evidence with its interval's low end raised to the kernels' time."""
    if telemetry is None or telemetry.ms is None or work is None:
        return telemetry
    return replace(telemetry, low_ms=min(max(telemetry.low_ms, FLOOR_MARGIN * work.least_ns / 1e6), telemetry.ms))


def _by_profile(
    profiled: Reading, est: Reading, mean_ms: float | None, trace: StepTimeEvidence | None
) -> tuple[StepSource, Reading]:
    """Return source and reading if only the trace is used: the profile or the estimate."""
    if mean_ms is None or profiled.value is None:
        return "profile", profiled
    low, high, extra = (trace.low_ms, trace.high_ms, trace.notes) if trace is not None else (None, None, ())
    if est.value is None:
        note = f"As profiled, including the profiler's own cost. {est.why_missing}"
        return "profile", Reading(mean_ms, None, "caution", (note, *extra), low, high)
    if abs(est.value - mean_ms) <= MAX_PROFILE_DIFFERENCE * mean_ms:
        note = f"Mean of the profiled steps; the estimate without the profiler ({in_words(est.value, 4)}) agrees within 5 %."
        return "profile", Reading(
            mean_ms, None, profiled.trust, (note, *profiled.notes, *extra), _lowest(low, mean_ms), _highest(high, mean_ms)
        )
    note = "Estimated without the profiler's cost."
    return "estimate", Reading(est.value, None, "caution", (note, *est.notes), low, high)


def _lowest(low: float | None, value: float) -> float | None:
    return None if low is None else min(low, value)


def _highest(high: float | None, value: float) -> float | None:
    return None if high is None else max(high, value)


def _with_others(source: StepSource, reading: Reading, ranked: list[StepTimeEvidence]) -> Reading:
    """Return the reading with a note on each other evidence, and lower trust if evidence disagrees."""
    own_source: StepSource = "estimate" if source == "profile" else source
    if reading.value is None or reading.low is None:
        return reading
    chosen = StepTimeEvidence(own_source, reading.value, reading.low, reading.high)
    notes, trust = list(reading.notes), reading.trust
    for other in ranked:
        if other.source == own_source:
            continue
        value = in_words(other.ms, 4) if other.ms is not None else f"at least {in_words(other.low_ms, 4)}"
        name = (words := STEP_SOURCES[other.source].name)[0].upper() + words[1:]
        if not chosen.agrees(other):
            notes.append(
                f"{name} ({value}) and {STEP_SOURCES[own_source].name} ({in_words(reading.value, 4)}) disagree beyond their intervals."
            )
            # The trace is the weakest evidence, so it does not lower a measurement's trust.
            if other.source != "estimate" and trust == "ok":
                trust = "caution"
        elif other.ms is None or chosen.contains(other.ms) or abs(other.ms / reading.value - 1) <= MAX_EVIDENCE_DIFFERENCE:
            notes.append(f"{name} agrees: {value}.")
        else:
            upper_end = f"to {in_words(other.high_ms)}" if other.high_ms is not None else "or more"
            notes.append(f"{name}: {value}, with an interval of {in_words(other.low_ms)} {upper_end}.")
    return replace(reading, notes=tuple(notes), trust=trust)


def _estimate(estimate: StepEstimate | None, profiled: Reading) -> Reading:
    if profiled.value is None:
        return missing("There are no steps to estimate.")
    if estimate is None:
        return missing("This trace was not replayed.")
    if estimate.step_ns is None:
        return missing(estimate.why_missing or "The replay could not reproduce this trace.")
    return Reading(estimate.step_ns / 1e6, trust="caution", notes=estimate.notes)
