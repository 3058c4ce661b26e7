"""Sweeps: several runs that differ in one setting, and the best value of that setting.

Settings, such as batch size, workers, prefetch or precision, come from the manifests' ``settings`` and from tags
``key=value``. For the batch size, one run is enough if ``find_batch_size`` tried other sizes in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.units import percent, significant
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.loop.batch_rule import LARGEST_BATCH_SHARE, accumulated_gain, advised_below
from sawtooth.ingest.manifest import BatchTrial, Manifest

NEAR_BEST = 0.03  # Two recordings of one program differ by up to 3 %, so a smaller setting within 3 % of the best is as good.
MEMORY_LIMIT = 0.95  # Fragmentation and one longer sequence can fill the last 5 %.
BATCH = "batch_size"  # The setting whose values ``find_batch_size`` tries.
NO_MEMORY = "The batch did not fit into memory."
NOT_OF_A_TRIAL = "Not measured: this batch size was only timed."
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Point:
    """One run of a sweep, or one batch size that `find_batch_size` tried in a run.

    ``is_run`` is False for a size that was only tried. ``trial`` is the timing of this size, if the run tried it.
    ``throughput`` is per second in ``Sweep.unit``. ``memory_share`` is of the device's memory. ``accumulated`` is
    samples per second if gradients of this batch are accumulated to the largest batch of the sweep. It is None if the
    optimizer's share is not known.
    """

    run: RunResult
    value: str
    number: float | None
    throughput: Reading
    memory_share: float | None
    trial: BatchTrial | None = None
    is_run: bool = True
    accumulated: float | None = None

    def reading(self, key: str) -> Reading:
        """Return a metric of the run, or the reading of a batch size that was tried."""
        if self.is_run:
            return self.run.metrics[key]
        assert self.trial is not None
        value = {"best_step_time_ms": self.trial.step_ms, "peak_memory_bytes": self.trial.memory_bytes}.get(key)
        if value is None:
            return missing(NO_MEMORY if self.too_large else NOT_OF_A_TRIAL)
        spread = (self.trial.low_ms, self.trial.high_ms) if key == "best_step_time_ms" else (None, None)
        return Reading(value, low=spread[0], high=spread[1])

    @property
    def too_large(self) -> bool:
        """Whether the batch did not fit into memory."""
        return not self.is_run and self.trial is not None and self.trial.step_ms is None


@dataclass(frozen=True)
class BatchPrediction:
    """The predicted throughput of a batch of ``number`` samples, from a run with ``base`` samples.

    Throughput is per second with its interval. ``memory_bytes`` is the predicted peak of memory in use, None if the
    trace has no allocations. ``host_limits`` says that the host limits the step at that size. Then rely on the interval
    more than on the single number.
    """

    number: float
    base: float
    per_s: float
    low_per_s: float
    high_per_s: float
    step_ms: float
    memory_bytes: float | None
    host_limits: bool = False


@dataclass(frozen=True)
class Sweep:
    """Runs by setting, ascending; ``predicted`` are batch sizes, ascending.

    ``sweet_spot`` is the index of the recommended point, None if no throughput is known. ``why`` gives the reason.
    ``other_settings`` are further settings that differ between the runs.
    """

    setting: str
    unit: str
    points: tuple[Point, ...]
    sweet_spot: int | None
    why: str
    other_settings: tuple[str, ...] = ()
    predicted: tuple[BatchPrediction, ...] = ()


def varied_settings(manifests: Sequence[Manifest]) -> list[str]:
    """Return the settings whose values differ between the runs, in alphabetical order."""
    settings = [manifest.all_settings for manifest in manifests]
    keys = {key for values in settings for key in values}
    return sorted(key for key in keys if len({values.get(key) for values in settings}) > 1)


def value_of(manifest: Manifest, setting: str) -> str | None:
    """Return a run's value of a setting, or None if it has none.

    The batch size may also come from the run's samples per step.
    """
    samples = manifest.facts.samples_per_step
    return manifest.all_settings.get(setting) or (f"{samples:.12g}" if setting == BATCH and samples else None)


def device_memory(run: RunResult, library: Library) -> int | None:
    """Return the memory of the run's reported device in bytes, or None if its recording does not show it."""
    if run.lead is None:
        return None
    with library.open(run.lead.recording_id) as recording:
        rows = recording.rows("SELECT max(memory_bytes) FROM devices WHERE device = ?", [run.lead.device])
    return int(rows[0][0]) if rows[0][0] else None


def sweep(runs: Sequence[RunResult], setting: str | None = None, memory_bytes: Mapping[str, int | None] | None = None) -> Sweep:
    """Arrange ``runs`` by the setting in which they differ.

    ``memory_bytes`` is each run's device memory by run id. Raises UsageError for fewer than two runs, except for one run that
    tried batch sizes. Raises UsageError also if no setting or several settings differ and none is named, or if a run lacks the
    setting.
    """
    differing = varied_settings([run.manifest for run in runs])
    if setting is None and (len(runs) < 2 or BATCH in differing) and any(run.manifest.batches for run in runs):
        setting = BATCH
    if len(runs) < 2 and setting != BATCH:
        raise UsageError("A sweep needs at least two runs, or one with the batch sizes that find_batch_size tried.")
    if setting is None:
        if not differing:
            raise UsageError(
                "These runs differ in no recorded setting. Give each run a tag with its value, such as batch_size=64."
            )
        if len(differing) > 1:
            raise UsageError(f"These runs differ in {', '.join(differing)}. Name the setting to sweep over.")
        setting = differing[0]
    lacking = [run.manifest.name for run in runs if value_of(run.manifest, setting) is None]
    if lacking:
        has, pronoun = ("has", "it") if len(lacking) == 1 else ("have", "them")
        raise UsageError(f"{', '.join(lacking)} {has} no setting {setting!r}. Add the tag {setting}=… to {pronoun}.")
    unit = "samples" if setting == BATCH else _unit(runs)
    memory = memory_bytes or {}
    points = [_point(run, setting, unit, memory.get(run.manifest.id)) for run in runs]
    if setting == BATCH:
        points = _with_trials(points, memory)
    points.sort(key=_order)
    spot, reason = _sweet_spot(points, setting, unit)
    reason = " ".join(filter(None, (reason, _limit(points))))
    return Sweep(
        setting=setting,
        unit=unit,
        points=tuple(points),
        sweet_spot=spot,
        why=reason,
        other_settings=tuple(key for key in differing if key != setting),
    )


def _unit(runs: Sequence[RunResult]) -> str:
    """Return the unit of throughput: samples or tokens if every run states their number, else steps."""
    facts = [run.manifest.facts for run in runs]
    if all(fact.samples_per_step for fact in facts):
        return "samples"
    if all(fact.tokens_per_step for fact in facts):
        return "tokens"
    return "steps"


def _point(run: RunResult, setting: str, unit: str, memory_bytes: int | None) -> Point:
    value = value_of(run.manifest, setting) or ""
    number = float(value) if _NUMBER.fullmatch(value) else None
    per_step = _per_step(run, unit) or number  # For the batch size, the value itself is the number of samples.
    step = run.metrics["best_step_time_ms"]
    throughput = (
        Reading(1000 * per_step / step.value, trust=step.trust, notes=step.notes)
        if step.value and per_step
        else missing(step.why_missing or "The run does not say how many samples a step has.")
    )
    peak = run.metrics["peak_memory_bytes"].value
    return Point(run, value, number, throughput, peak / memory_bytes if peak is not None and memory_bytes else None)


def _per_step(run: RunResult, unit: str) -> float | None:
    """Return the number of ``unit`` per step, or None if the run does not state it."""
    facts = run.manifest.facts
    return {"samples": facts.samples_per_step, "tokens": facts.tokens_per_step, "steps": 1.0}[unit]


def _with_trials(points: list[Point], memory: Mapping[str, int | None]) -> list[Point]:
    """Return the runs' points together with the batch sizes that were tried.

    For a run's own batch size, the run is a better measurement than a trial.
    """
    numbers = {point.number for point in points}
    result = []
    for point in points:
        by_size = {trial.batch: trial for trial in point.run.manifest.batches}
        own_trial = by_size.pop(point.number or 0.0, None)  # The remaining trials become points.
        result.append(replace(point, trial=own_trial))
        samples = point.run.manifest.facts.samples_per_step
        samples_per_unit = samples / point.number if samples and point.number else 1.0
        for size, trial in by_size.items():
            if size not in numbers:
                numbers.add(size)
                result.append(_of_trial(point.run, trial, samples_per_unit, memory.get(point.run.manifest.id)))
    top = max(_fitting_sizes(result), default=0.0)
    return [replace(point, accumulated=_accumulated_throughput(point, top)) for point in result]


def _fitting_sizes(points: Sequence[Point]) -> list[float]:
    """Return the batch sizes whose throughput is known."""
    return [point.number for point in points if point.throughput.value is not None and point.number]


def _of_trial(run: RunResult, trial: BatchTrial, samples_per_unit: float, memory_bytes: int | None) -> Point:
    """Return the point of a batch size that was tried.

    ``samples_per_unit`` is the number of samples per step for each unit of the batch size. It is 2 if the batch size is per GPU and
    there are two GPUs.
    """
    throughput = Reading(1000 * samples_per_unit * trial.batch / trial.step_ms) if trial.step_ms else missing(NO_MEMORY)
    share = trial.memory_bytes / memory_bytes if trial.memory_bytes and memory_bytes else None
    return Point(run, f"{trial.batch:g}", trial.batch, throughput, share, trial, is_run=False)


def _accumulated_throughput(point: Point, top: float) -> float | None:
    """Return the throughput if gradients of the point's size are accumulated to ``top`` samples.

    The optimizer then steps once for all of them. Returns None if the throughput is not known.
    """
    step, trial, number = point.reading("best_step_time_ms").value, point.trial, point.number
    if step is None or trial is None or trial.optimizer_ms is None or not number or number > top or not point.throughput.value:
        return None
    return point.throughput.value * accumulated_gain(number, step, trial.optimizer_ms, top)


def _limit(points: Sequence[Point]) -> str:
    """Return a sentence with the batch size that fits, the one that does not, and the recommended limit.

    The sentence is empty if no size was too large.
    """
    largest_fitting = max(_fitting_sizes(points), default=None)
    smallest_too_large = min((point.number for point in points if point.too_large and point.number), default=None)
    if largest_fitting is None or smallest_too_large is None or smallest_too_large <= largest_fitting:
        return ""
    return (
        f"{largest_fitting:g} fits into memory and {smallest_too_large:g} does not. "
        f"Use at most {advised_below(largest_fitting):g}, to keep {percent(1 - LARGEST_BATCH_SHARE)} free."
    )


def _order(point: Point) -> tuple[bool, float, str, str]:
    return (point.number is None, point.number if point.number is not None else math.inf, point.value, point.run.manifest.id)


def _sweet_spot(points: Sequence[Point], setting: str, unit: str) -> tuple[int | None, str]:
    """Choose the smallest value within 3 % of the best throughput that leaves memory free.

    Values that are not numbers have no order, so the best is chosen. A point whose memory is not known counts as fitting. A
    single point has no sweet spot.
    """
    rates = [(i, p.throughput.value) for i, p in enumerate(points) if p.throughput.value is not None]
    if not rates:
        return None, "No run's step time is known."
    if len(points) == 1:
        return None, f"{setting} = {points[0].value} gives {significant(rates[0][1], 4)} {unit}/s; no other value was measured."
    fits = [(i, value) for i, value in rates if (points[i].memory_share or 0.0) <= MEMORY_LIMIT]
    if not fits:
        return None, f"Every run uses more than {percent(MEMORY_LIMIT)} of the GPU's memory."
    best_index, best = max(fits, key=lambda fit: fit[1])
    over_limit = [points[i].value for i, value in rates if (i, value) not in fits and value > best]
    left_out = (
        f" {', '.join(over_limit)} would be faster but {'fills' if len(over_limit) == 1 else 'fill'} the memory beyond {percent(MEMORY_LIMIT)}."
        if over_limit
        else ""
    )
    if all(point.number is not None for point in points):
        spot, value = next((i, v) for i, v in fits if v >= best * (1 - NEAR_BEST))
        if spot != best_index:
            reason = (
                f"{setting} = {points[spot].value} gives {significant(value, 4)} {unit}/s, within {percent(NEAR_BEST)} of the best "
                f"({significant(best, 4)} at {points[best_index].value}): a larger value gives no measurable gain."
            )
            return spot, reason + left_out
    reason = f"{setting} = {points[best_index].value} gives the most: {significant(best, 4)} {unit}/s."
    if best_index == len(points) - 1 and points[best_index].number is not None:
        reason += " It is the largest value tried, so a larger one may give more."
    return best_index, reason + left_out
