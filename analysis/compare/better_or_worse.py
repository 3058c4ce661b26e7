"""Word for a change of a metric or of a line of the audit, such as better or worse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sawtooth.analysis.compare.significance.change_interval import RUN_TO_RUN
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import METRICS

if TYPE_CHECKING:
    from sawtooth.analysis.compare.audit import AuditChange
    from sawtooth.analysis.compare.comparison import Comparison, MetricChange

RowWord = Literal[
    "better", "worse", "changed", "none", "not_measurable", "cannot_tell", "not_comparable", "profiles_alone", "unknown"
]  # fmt: skip
STEP = "best_step_time_ms"
NO_BETTER = 0.01  # Share of a value. A smaller change is not called better or worse, even if it is certain.
# A share counts as unchanged if it moves by less than half a point and by less than a tenth of itself.
SAME_POINTS, SAME_SHARE = 0.005, 0.1
MAX_UNKNOWN = 0.05  # Share of the computing time that may be in kernels whose tensor-core use is unknown.
# Metrics that are computed from the step time, and metrics that are computed from the counted operations.
RESTS_ON_STEP = ("mfu", "mfu_at_dtype", "hfu", "achieved_tflops", "mfu_factor_busy", "nvml_gpu_util_mean")
RESTS_ON_FLOPS = (
    "flops_per_step", "mfu", "mfu_at_dtype", "hfu", "achieved_tflops", "mfu_factor_efficiency", "mfu_factor_flop_kernels",
)  # fmt: skip
RESTS_IN_AUDIT = ("step_time_ms", "throughput", "utilization", "busy_share", "mfu", "hours_per_epoch", "cost_per_1000_steps")
# These metrics describe the profile by their definition.
OF_THE_PROFILE = ("gpu_busy_share", "gpu_idle_share", "step_time_ms", "sm_efficiency", "exposed_comm_share")
# Metrics of the trace itself, which no change to the training can improve.
OF_THE_RECORDING = ("flop_coverage", "tensor_core_unknown_share")
OF_A_STEP = (STEP, "step_time_ms", "step_time_unprofiled_est_ms", "hours_per_epoch", "cost_per_1000_steps")
# Metrics that a change is meant to improve. All others only describe the run.
RESULTS = (*OF_A_STEP, "throughput", "mfu", "hfu", "achieved_tflops")


def of_metric(comparison: Comparison, change: MetricChange) -> RowWord:
    """Return the word for a metric's change.

    A metric that is computed from the step time is as certain as the step time.
    """
    if not change.change:
        return "unknown" if change.change is None else "none"
    if "unusable" in (change.a.trust, change.b.trust):
        return "not_comparable"
    if change.key in RESTS_ON_FLOPS and comparison.partly_counted:
        return "not_comparable"
    if change.key == "tensor_core_time_share" and _tensor_core_use_unknown(comparison):
        return "not_comparable"
    from_step_time = change.key == STEP or change.key in RESTS_ON_STEP
    if _may_be_unchanged(
        comparison, change.key, (change.a, change.b), from_step_time=from_step_time, unit=METRICS[change.key].unit
    ):
        return _word_if_unchanged(comparison, (change.a, change.b), from_step_time=from_step_time)
    if comparison.disagreement is not None and change.key in OF_THE_PROFILE:
        return "profiles_alone"
    return _word_of_change(comparison, change.key, METRICS[change.key].better, (change.a, change.b))


def of_audit(comparison: Comparison, line: AuditChange) -> RowWord:
    """Return the word for the change of a line of the audit."""
    key = line.row.key
    if not line.change:
        return "unknown" if line.change is None else "none"
    if key in RESTS_ON_FLOPS and comparison.partly_counted:
        return "not_comparable"
    from_step_time = key in RESTS_IN_AUDIT or key.startswith("energy")
    if _may_be_unchanged(comparison, key, (line.a, line.b), from_step_time=from_step_time, unit=line.row.unit):
        return _word_if_unchanged(comparison, (line.a, line.b), from_step_time=from_step_time)
    return _word_of_change(comparison, key, line.row.better, (line.a, line.b))


def _may_be_unchanged(
    comparison: Comparison, key: str, readings: tuple[Reading, Reading], *, from_step_time: bool, unit: str
) -> bool:
    """Return whether two runs of one unchanged program may differ as much as these readings do.

    ``from_step_time`` says that the metric is computed from the step time.
    """
    a, b = (reading.value or 0.0 for reading in readings)
    largest = max(abs(a), abs(b))
    if unit == "share" and abs(b - a) < min(SAME_POINTS, SAME_SHARE * largest):
        return True
    if not from_step_time:
        return _may_be_equal(*readings)
    if comparison.verdict.shown or comparison.unrelated:
        return False
    if (key in RESTS_ON_FLOPS or key == "throughput") and comparison.leading.shown:
        return False
    visible = comparison.verdict.smallest_visible_share
    return key in OF_A_STEP or visible is None or abs(b - a) <= visible * largest


def _word_if_unchanged(comparison: Comparison, readings: tuple[Reading, Reading], *, from_step_time: bool) -> RowWord:
    """Return "cannot_tell" if the change has no upper limit, else "not_measurable"."""
    unbounded = any(reading.low is not None and reading.high is None for reading in readings)
    return "cannot_tell" if unbounded or (from_step_time and comparison.answer == "cannot_tell") else "not_measurable"


def _word_of_change(comparison: Comparison, key: str, better: str, readings: tuple[Reading, Reading]) -> RowWord:
    """Return the word for a change that is large enough to report.

    A metric that only describes the run is better or worse only if the run is better or worse. Otherwise the word is
    "changed".
    """
    value_a, value_b = (reading.value or 0.0 for reading in readings)
    if better == "neither" or comparison.unrelated or abs(value_b - value_a) < NO_BETTER * max(abs(value_a), abs(value_b)):
        return "changed"
    other_work = comparison.throughput is not None and (key in OF_A_STEP or key.startswith("energy"))
    if key in OF_THE_RECORDING or other_work:
        return "changed"
    word: RowWord = "better" if (value_b < value_a) == (better == "lower") else "worse"
    follows = {"faster": "better", "slower": "worse"}.get(comparison.leading.word)
    return word if key in RESULTS or key.startswith("energy") or word == follows else "changed"


def _tensor_core_use_unknown(comparison: Comparison) -> bool:
    """Return whether a side spends much time in kernels whose tensor-core use is not known."""
    runs = (run for side in (comparison.a, comparison.b) for run in side.runs)
    return any((run.metrics["tensor_core_unknown_share"].value or 0.0) > MAX_UNKNOWN for run in runs)


def _may_be_equal(a: Reading, b: Reading) -> bool:
    """Return whether two readings' intervals overlap.

    Without intervals, return whether the difference is within the usual variation between runs of one program.
    """
    if a.value is None or b.value is None:
        return False
    if a.low is not None and b.low is not None:
        return (a.high is None or b.low <= a.high) and (b.high is None or a.low <= b.high)
    return abs(b.value - a.value) < RUN_TO_RUN * max(abs(a.value), abs(b.value))
