"""Sweeps: several runs that differ in one setting (batch size, workers, prefetch, precision), and the setting to choose.

Settings come from the runs' manifests: ``settings``, and tags written ``key=value``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.settings import settings_of
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.schema import Manifest

NEAR_BEST = 0.03  # below 3 % two recordings of one program differ by themselves: the smaller setting is as good
MEMORY_LIMIT = 0.95  # fragmentation and one longer sequence fill the last twentieth
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Point:
    """One run of a sweep. ``throughput`` is per second, of what ``Sweep.unit`` says; ``memory_share`` is of the device's memory."""

    run: RunResult
    value: str
    number: float | None
    throughput: Reading
    memory_share: float | None

    def reading(self, key: str) -> Reading:
        """Return a metric of the run."""
        return self.run.metrics[key]


@dataclass(frozen=True)
class Sweep:
    """Runs by setting, ascending. ``sweet_spot`` is the index of the point to choose, None where no throughput is known; ``why`` says why."""

    setting: str
    unit: str
    points: tuple[Point, ...]
    sweet_spot: int | None
    why: str
    others: tuple[str, ...] = ()


def varied(manifests: Sequence[Manifest]) -> list[str]:
    """Return the settings that not all of the runs share, in alphabetical order."""
    every = [settings_of(manifest) for manifest in manifests]
    keys = {key for settings in every for key in settings}
    return sorted(key for key in keys if len({settings.get(key) for settings in every}) > 1)


def device_memory(run: RunResult, library: Library) -> int | None:
    """Return the memory of the run's leading device in bytes, None where its recording does not tell."""
    if run.lead is None:
        return None
    with library.open(run.lead.recording_id) as recording:
        rows = recording.rows("SELECT max(memory_bytes) FROM devices WHERE device = ?", [run.lead.device])
    return int(rows[0][0]) if rows[0][0] else None


def sweep(runs: Sequence[RunResult], setting: str | None = None, memory_bytes: Mapping[str, int | None] | None = None) -> Sweep:
    """Arrange ``runs`` by the setting in which they differ. ``memory_bytes`` holds each run's device memory by run id.

    Raises UsageError for fewer than two runs, none or several differing settings (name one then), or a run without the setting.
    """
    if len(runs) < 2:
        raise UsageError("A sweep needs at least two runs.")
    differing = varied([run.manifest for run in runs])
    if setting is None:
        if not differing:
            raise UsageError("These runs differ in no recorded setting. Give each one, such as the tag batch_size=64.")
        if len(differing) > 1:
            raise UsageError(f"These runs differ in {', '.join(differing)}. Name the setting to sweep over.")
        setting = differing[0]
    lacking = [run.manifest.name for run in runs if setting not in settings_of(run.manifest)]
    if lacking:
        has, it = ("has", "it") if len(lacking) == 1 else ("have", "them")
        raise UsageError(f"{', '.join(lacking)} {has} no setting {setting!r}. Add the tag {setting}=… to {it}.")
    unit = _unit(runs)
    points = sorted((_point(run, setting, unit, (memory_bytes or {}).get(run.manifest.id)) for run in runs), key=_order)
    spot, why = _sweet_spot(points, setting, unit)
    return Sweep(
        setting=setting,
        unit=unit,
        points=tuple(points),
        sweet_spot=spot,
        why=why,
        others=tuple(key for key in differing if key != setting),
    )


def _unit(runs: Sequence[RunResult]) -> str:
    """Return what is counted per second: samples or tokens where every run says how many a step holds, else steps."""
    facts = [run.manifest.facts for run in runs]
    if all(fact.samples_per_step for fact in facts):
        return "samples"
    if all(fact.tokens_per_step for fact in facts):
        return "tokens"
    return "steps"


def _point(run: RunResult, setting: str, unit: str, memory_bytes: int | None) -> Point:
    value = settings_of(run.manifest)[setting]
    number = float(value) if _NUMBER.fullmatch(value) else None
    facts = run.manifest.facts
    per_step = {"samples": facts.samples_per_step, "tokens": facts.tokens_per_step, "steps": 1.0}[unit]
    step = run.metrics["best_step_time_ms"]
    throughput = (
        Reading(1000 * per_step / step.value, trust=step.trust, notes=step.notes)
        if step.value and per_step
        else missing(step.why_missing or "The step time is not known.")
    )
    peak = run.metrics["peak_memory_bytes"].value
    return Point(run, value, number, throughput, peak / memory_bytes if peak is not None and memory_bytes else None)


def _order(point: Point) -> tuple[bool, float, str, str]:
    return (point.number is None, point.number if point.number is not None else math.inf, point.value, point.run.manifest.id)


def _sweet_spot(points: Sequence[Point], setting: str, unit: str) -> tuple[int | None, str]:
    """Choose the smallest value within 3 % of the best throughput that leaves memory free."""
    known = [(i, p.throughput.value) for i, p in enumerate(points) if p.throughput.value is not None]
    if not known:
        return None, "No run's step time is known."
    fits = [(i, value) for i, value in known if (points[i].memory_share or 0.0) <= MEMORY_LIMIT]
    if not fits:
        return None, f"Every run uses more than {MEMORY_LIMIT:.0%} of the GPU's memory."
    best_index, best = max(fits, key=lambda fit: fit[1])
    full = [points[i].value for i, value in known if (i, value) not in fits and value > best]
    left_out = f" {', '.join(full)} would be faster but fills the memory beyond {MEMORY_LIMIT:.0%}." if full else ""
    if all(point.number is not None for point in points):
        spot, value = next((i, v) for i, v in fits if v >= best * (1 - NEAR_BEST))
        if spot != best_index:
            why = (
                f"{setting} = {points[spot].value} gives {value:.4g} {unit}/s, within {NEAR_BEST:.0%} of the best "
                f"({best:.4g} at {points[best_index].value}): a larger value gives no measurable gain."
            )
            return spot, why + left_out
    why = f"{setting} = {points[best_index].value} gives the most: {best:.4g} {unit}/s."
    if best_index == len(points) - 1 and points[best_index].number is not None and len(points) > 1:
        why += " It is the largest value tried, so a larger one may give more."
    return best_index, why + left_out
