"""Trust of each metric, lowered by defects and repairs of the recording."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
import pandas as pd

from sawtooth.analysis.metrics.device_facts import DeviceFacts
from sawtooth.analysis.metrics.metric import Doubt
from sawtooth.analysis.metrics.reading import Reading, with_caution
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.analysis.units import in_words, percent

ORPHANS_CAUTION = 0.05  # Share of GPU time without a launch. Above it, the error is larger than the errors of other numbers.
MAX_ORPHANS = 0.50  # If more of the GPU time has no launch, the steps of most operations are unknown.
UNKNOWN_CAUTION = 0.10  # This share of undecided compute time changes the tensor-core share by up to ten percentage points.
GRAPH_CAUTION = 0.50  # If graphs launch more of the GPU time, attribution by operator covers less than half of it.

WAITS_CAUTION = 0.05  # If a rank may wait for more than this share of the step, its profiled step time is doubtful.
MAY_WAIT = ("comm_wait", "unattributed")  # Causes of exposed communication that may be a wait instead of a transfer.
DECIDES_MEAN = 0.10  # One step determines the mean if the mean of the other steps differs by more than this share.
DROPPED = ": the profiler dropped host events"
LOST_MARKS = "Some steps were recorded without their marks: the counted steps may differ from them."
SINGLE_STEP = "The profile has only one usable step, so it does not show how steps vary."
BEGUN_BEFORE = "The start of the only step is not marked, so the recording may lack a part of it."


@dataclass(frozen=True)
class Diagnostic:
    """An import problem or limit of the recording; ``severity`` is info, data_loss or error."""

    key: str
    severity: str
    sentence: str
    count: int


class Ranked(Protocol):
    """The part of a rank's result that this module needs."""

    @property
    def rank(self) -> int | None:
        """Rank of the process."""

    @property
    def device(self) -> int:
        """Device ordinal."""

    @property
    def facts(self) -> DeviceFacts:
        """Derived facts of the device."""


def apply(
    metrics: dict[str, Reading],
    facts: DeviceFacts,
    *,
    truncated: bool,
    begun_before: bool = False,
    outlier_doubts: Mapping[Doubt, str] = MappingProxyType({}),
) -> dict[str, Reading]:
    """Return ``metrics`` with trust lowered by the recording's defects, and a note on each defect.

    Each metric's ``doubted_by`` lists the doubts that lower its trust. ``truncated`` means that the recorded file ended early.
    ``begun_before`` means that the only step may have begun before the recording. ``outlier_doubts`` comes from
    ``doubts_of_outlier``.
    """
    result = dict(metrics)
    share = facts.orphan_share
    if share > ORPHANS_CAUTION:
        note = f"{percent(share)} of GPU time has no launch in the trace: the profiler dropped events."
        result = _lower_trust(result, "lost_launches", note)
        if share > MAX_ORPHANS:
            result = {key: with_caution(reading, note) for key, reading in result.items()}
    elif facts.orphan > ORPHANS_CAUTION * (facts.orphan + facts.launches):
        note = f"{facts.orphan:,} GPU operations have no launch in the trace, so they are in no step."
        result["kernel_launches_per_step"] = with_caution(result["kernel_launches_per_step"], note)
    if facts.lost_marks:
        result = {key: with_caution(reading, LOST_MARKS) for key, reading in result.items()}
    for doubt, note in outlier_doubts.items():
        result = _lower_trust(result, doubt, note)
    if begun_before:
        result = {key: with_caution(reading, BEGUN_BEFORE) for key, reading in result.items()}
    if truncated:
        note = "The trace file ends early; the numbers describe only the part that it contains."
        result = {key: with_caution(reading, note) for key, reading in result.items()}
    unknown = result["tensor_core_unknown_share"].value
    if unknown is not None and unknown > UNKNOWN_CAUTION:
        note = f"It is unknown whether {percent(unknown)} of the compute time uses tensor cores; the true share may be higher by as much."
        result = _lower_trust(result, "undecided_kernels", note)
    return result


def doubts_of_outlier(steps: pd.DataFrame, idle_ns: Mapping[int, int], source: str) -> dict[Doubt, str]:
    """Return doubts about means that one counted step decides, with a note for each doubt.

    ``idle_ns`` is the GPU's idle time by step. ``source`` is the source of the run's step time.
    """
    counted = steps[steps["counted"]]
    ns = (counted["end_ns"] - counted["start_ns"]).to_numpy(np.float64)
    timed = ns > 0  # A step may do nothing on the device.
    if len(ns) < 2:
        return {"one_step_idle": SINGLE_STEP} if len(ns) == 1 else {}
    if not timed.any():
        return {}
    busy = ns - np.array([idle_ns.get(step, 0) for step in counted["step"].tolist()], np.float64)
    doubts: dict[Doubt, str] = {}
    mean, without = ns.mean(), (ns.sum() - ns) / (len(ns) - 1)
    outlier = int(np.abs(without - mean).argmax())
    if abs(without[outlier] - mean) > DECIDES_MEAN * mean:
        shortest, longest = in_words(ns.min() / 1e6), in_words(ns.max() / 1e6)
        middle = f"median; their mean is {in_words(mean / 1e6)}" if len(ns) > 2 else "mean"
        doubts["one_step"] = f"The {len(ns)} profiled steps take {shortest} to {longest}. This is their {middle}."
        if source == "profile":
            doubts["step_of_profile"] = doubts["one_step"]
    if timed.sum() < 2:
        return doubts | {"one_step_idle": f"Only one of {len(ns)} profiled steps takes time on the GPU."}
    ns, busy = ns[timed], busy[timed]
    share, without = busy.sum() / ns.sum(), (busy.sum() - busy) / (ns.sum() - ns)
    outlier = int(np.abs(without - share).argmax())
    if abs(without[outlier] - share) > DECIDES_MEAN * share:
        doubts["one_step_idle"] = (
            f"The GPU is busy for {percent(busy[outlier] / ns[outlier])} of one profiled step, and for {percent(without[outlier])} of the other {'step' if len(ns) == 2 else f'{len(ns) - 1} steps'}. This is the mean over their time."
        )
    return doubts


def _lower_trust(metrics: dict[str, Reading], doubt: Doubt, note: str) -> dict[str, Reading]:
    return {
        key: with_caution(reading, note) if doubt in METRICS[key].doubted_by else reading for key, reading in metrics.items()
    }


def unsure_of_waits(metrics: dict[str, Reading], waits_ms: float, source: str) -> dict[str, Reading]:
    """Return ``metrics`` with lower trust in the step time if the profiled rank waited for others.

    ``waits_ms`` is this wait per step. The replay of one rank keeps the recorded lengths of collectives. They include the
    profiler's cost on another rank's host, so profile and estimate may agree although both are wrong.
    """
    step = metrics["best_step_time_ms"].value
    if source != "profile" or not step or waits_ms <= WAITS_CAUTION * step:
        return metrics
    note = (
        f"In {in_words(waits_ms)} of each step the GPU only communicates. It may wait for a rank that the profiler slows, "
        "so the run's step may be shorter."
    )
    return _lower_trust(metrics, "step_of_profile", note)


def diagnostics_of(ranks: Iterable[Ranked]) -> list[Diagnostic]:
    """Return the limits that the analysis found, such as GPUs left out, lost marks and graphs."""
    diagnostics: list[Diagnostic] = []
    for rank in ranks:
        facts = rank.facts
        rank_in_words = f"device {rank.device}" if rank.rank is None else f"rank {rank.rank}, device {rank.device}"
        if left_out := facts.gpus_left_out:
            sentence = f"{left_out} further GPUs of this trace are not analysed, because they have the fewest operations. Only the Timeline shows them."
            diagnostics.append(Diagnostic("gpus_left_out", "data_loss", sentence, left_out))
        if facts.unmarked_steps:
            sentence = (
                f"{facts.unmarked_steps} of the steps have no mark. Each is assumed to fill the time between its neighbours."
            )
            diagnostics.append(Diagnostic("marks_lost", "info", sentence, facts.unmarked_steps))
        if facts.lost_marks:
            diagnostics.append(Diagnostic("steps_without_marks", "data_loss", LOST_MARKS, facts.lost_marks))
        if facts.carried_over:
            sentence = (
                f"{facts.carried_over:,} GPU operations ({in_words(facts.carried_over_ns / 1e6)}) on {rank_in_words} were launched before the "
                "recording began. They count as busy time, but belong to no step."
            )
            diagnostics.append(Diagnostic("carried_over", "info", sentence, facts.carried_over))
        if facts.orphan:
            sentence = (
                f"{facts.orphan:,} GPU operations ({in_words(facts.orphan_ns / 1e6)}) on {rank_in_words} have no launch in the trace"
                f"{DROPPED if facts.orphan_share < 1 else ''}. They count as busy time, but not as part of a step."
            )
            diagnostics.append(Diagnostic("orphans", "data_loss", sentence, facts.orphan))
        if facts.graph_share > GRAPH_CAUTION:
            sentence = (
                f"CUDA graphs launched {percent(facts.graph_share)} of the GPU time on {rank_in_words}. They hide operators and shapes, "
                "so operators and FLOPs are known only for the rest."
            )
            diagnostics.append(Diagnostic("graph_launched", "info", sentence, 1))
    return diagnostics
