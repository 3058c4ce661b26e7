"""Sentences about the use of busy time: the MFU, what lowers it, and the basis of its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.run.verdict import Column, parts_of
from sawtooth.app import format as fmt
from sawtooth.app.charts.efficiency import PartKey, PeakPart
from sawtooth.app.words import categories, lost_time
from sawtooth.app.words.causes import COMMUNICATION
from sawtooth.app.words.run import is_by_dtype, is_lower_bound, mfu_peak, step_range

MIN_MFU_DIFFERENCE = 0.01  # Share of the MFU. Values that differ by less look equal.
MIN_DTYPE_RATIO = 1.05  # Ratio of the MFU at the operators' dtypes to the MFU. Above it, the cost of wider dtypes is shown.
MIN_ROW_SHARE = 0.01  # Share of the step. Smaller parts are added up in one row.
ROUNDING = 1e-9  # Sums of floating-point numbers may differ by this share of the step.
MAX_LIMITED_CLOCK = 0.98  # Share of the rated clock. A smaller reduction is not mentioned.
MIN_CLOCK_LOSS = 0.005  # Share of the peak's clock. A smaller difference is rounding.

BECAUSE = {  # The main loss relative to the peak; ``mfu_headline`` inserts its share of a step.
    "idle": "the GPU is idle for {} of each step",
    "exposed_memcpy": "copies that are not overlapped take {} of each step",
    "exposed_comm": "exposed communication takes {} of each step",
    "other_kernels": "non-matrix kernels take {} of each step",
    "dtype": "matrix products not in 16 bit cost {} of each step",
    "clock": "a low clock costs {} of each step",
    "slow_kernels": "slow matrix kernels cost {} of each step",
    "rest": "many small losses take {} of each step",
}
HELPS = {  # Advice for parts that are not lost time.
    "other_kernels": "Fuse or remove them: torch.compile, fused optimizers and losses.",
    "dtype": "Compute in bf16 (autocast), or allow TF32.",
    "clock": "Raise the power limit or improve the cooling. The Telemetry page shows the reason.",
    "slow_kernels": "Use larger and aligned shapes, or fused attention. See the operators below.",
}
COMPUTE_IN_BF16 = "Compute in bf16 (autocast)."  # The advice if TF32 is already in use.
PRECISION_FIRST = (
    "Lower the precision first, which changes these kernels. Then use larger and aligned shapes, or fused attention."
)
MAX_WIDE_SHARE = 0.5  # Share of the FLOPs. If wide dtypes have more, the first advice is to lower the precision.
# Categories with rows of their own, and operations that are not kernels.
NOT_OTHER_KERNELS = ("gemm", "conv", "attention", "communication", "memcpy", "memset")
MAX_CATEGORIES = 2  # Kernel categories that are named.


def peak_parts(rank: RankResult, metrics: Mapping[str, Reading], column: Column) -> list[PeakPart]:
    """Return the parts of a step: the time needed at the peak, and each loss relative to the peak.

    The parts sum to the step. Idle time, copies and communication come from the ledger, as on Idle. ``metrics`` must be of ``column``. The list is empty if
    the MFU is not known.
    """
    mfu, known_parts = metrics["mfu"].value, parts_of(rank, column)
    step = sum(part.ms for part in known_parts)
    if mfu is None or not step:
        return []
    waits = {"idle": 0.0, "exposed_memcpy": 0.0, "exposed_comm": 0.0}
    for part in known_parts:
        if part.lost:
            waits["idle"] += part.ms - part.transfer_ms
            waits["exposed_comm" if (part.cause or part.owner) in COMMUNICATION else "exposed_memcpy"] += part.transfer_ms
    compute = max(step - sum(waits.values()), 0.0)
    clock = metrics["mfu_factor_clock"].value or 1.0
    peak = min(mfu * step, compute)
    busy, flop_share = (metrics[f"mfu_factor_{key}"].value for key in ("busy", "flop_kernels"))
    flop_kernels = compute if busy is None or flop_share is None else min(max(flop_share * busy * step, peak), compute)
    peak_at_dtype = (metrics["mfu_at_dtype"].value or 0.0) * step
    dtype = min(peak_at_dtype, flop_kernels) - peak if peak_at_dtype > MIN_DTYPE_RATIO * peak else 0.0
    below_peak = flop_kernels - peak - dtype
    by_clock = min((peak + dtype) * (1 / clock - 1), below_peak) if clock < 1 - MIN_CLOCK_LOSS else 0.0
    times: dict[PartKey, float] = {
        "idle": waits["idle"], "exposed_memcpy": waits["exposed_memcpy"], "exposed_comm": waits["exposed_comm"],
        "other_kernels": compute - flop_kernels, "dtype": dtype, "clock": by_clock, "slow_kernels": below_peak - by_clock,
    }  # fmt: skip
    shown_parts: dict[PartKey, float] = {key: ms for key, ms in times.items() if ms >= MIN_ROW_SHARE * step}
    shown_parts |= {"rest": max(step - peak - sum(shown_parts.values()), 0.0), "peak": peak}
    return [PeakPart(key, ms, ms / step) for key, ms in shown_parts.items() if ms > ROUNDING * step or key == "peak"]


def why_idle_differs(rank: RankResult, parts: Sequence[PeakPart], column: Column) -> str | None:
    """Return why the idle time differs from the lost time on other pages; None if both look equal."""
    idle = sum(part.ms for part in parts if part.key == "idle")
    lost = lost_time.total_ms(lost_time.rows(rank, column))
    if not idle or fmt.duration_ms(idle) == fmt.duration_ms(lost):
        return None
    return f"Idle is time without any GPU operation. With copies and communication that are not overlapped, {fmt.duration_ms(lost)} is lost, as on the Idle page."


def largest_wait(rank: RankResult, key: PartKey, column: Column) -> tuple[lost_time.LostTimeRow, float] | None:
    """Return the main cause of idle time, exposed copies or exposed communication, and its ms.

    It is None for other parts.
    """
    if key not in ("idle", "exposed_memcpy", "exposed_comm"):
        return None
    times = {
        row: row.ms - row.transfer_ms if key == "idle" else row.transfer_ms
        for row in lost_time.rows(rank, column)
        if row.owner and (key == "idle" or (row.key in COMMUNICATION) == (key == "exposed_comm"))
    }
    longest = max(times, key=times.__getitem__, default=None)
    return None if longest is None or not times[longest] else (longest, times[longest])


def largest_share(rank: RankResult, part: PeakPart, column: Column, largest_operator: str = "") -> tuple[str, str]:
    """Return the largest share of a part in words, and advice against this share.

    ``largest_operator`` is the product, convolution or attention that exceeds its time at the peak by most.
    """
    if (wait := largest_wait(rank, part.key, column)) is not None:
        row, ms = wait
        return ("" if row.key == part.key else f"{row.label}: {fmt.duration_ms(ms)}"), row.helps
    details = {"slow_kernels": largest_operator, "dtype": _dtypes(rank), "other_kernels": _categories(rank)}
    helps = COMPUTE_IN_BF16 if (part.key, details["dtype"]) == ("dtype", "TF32") else HELPS.get(part.key, "")
    flops = _flops_by_dtype(rank)
    wide_flops = sum(flops.get(dtype, 0.0) for dtype in ("fp32", "tf32"))
    if part.key == "slow_kernels" and wide_flops > MAX_WIDE_SHARE * sum(flops.values()):
        helps = PRECISION_FIRST
    return details.get(part.key, ""), helps


def _flops_by_dtype(rank: RankResult) -> Mapping[str, float]:
    return rank.facts.flops.by_dtype if rank.facts.flops is not None else {}


def _dtypes(rank: RankResult) -> str:
    """Return the dtypes above 16 bit, the one with the most FLOPs first."""
    flops = _flops_by_dtype(rank)
    by_flops = sorted(flops, key=flops.__getitem__, reverse=True)
    return ", ".join(dtype.upper() for dtype in by_flops if dtype not in ("bf16", "fp16"))


def _categories(rank: RankResult) -> str:
    """Return the longest categories of other kernels with their times per step."""
    rows = rank.categories[~rank.categories["category"].isin(NOT_OTHER_KERNELS)].nlargest(MAX_CATEGORIES, "ns")
    steps = len(rank.counted) or 1
    return ", ".join(
        f"{categories.in_words(category)} {fmt.duration_ns(ns / steps)}"
        for category, ns in zip(rows["category"], rows["ns"], strict=True)
    )


def largest_loss(parts: Sequence[PeakPart]) -> PeakPart | None:
    """Return the largest loss relative to the peak; None without a loss."""
    return max((part for part in parts if part.key != "peak"), key=lambda part: part.ms, default=None)


def mfu_headline(
    metrics: Mapping[str, Reading], parts: Sequence[PeakPart], *, profiled: bool = False
) -> tuple[str, str | None]:
    """Return the MFU with the main reason why it is not higher, and a line with the time at the peak.

    ``profiled`` means that the numbers are of the profiled steps, although the run's own step is known.
    """
    mfu = fmt.reading("mfu", metrics["mfu"])
    mfu = mfu if mfu.startswith("<") else f"{_trust_sign(metrics['mfu'])}{mfu}"
    largest, condition = largest_loss(parts), " under the profiler" if profiled else ""
    if largest is None:
        return f"MFU is {mfu}{condition}.", None
    peak = mfu_peak(metrics)
    peak = f"the GPU's dense {peak}" if peak == "16-bit peak" else f"the {peak}"
    step_ms = sum(part.ms for part in parts)
    least_ms = sum(part.ms for part in parts if part.key == "peak")
    below = f"At {peak}, the products of each {fmt.duration_ms(step_ms)} step would take {fmt.part_ms(step_ms, least_ms)}."
    if largest.key == "dtype":
        below += f" At the peak of its operators' dtypes, MFU is {fmt.share(metrics['mfu_at_dtype'].value or 0.0)}."
    return f"MFU is {mfu}{condition}, because {BECAUSE[largest.key].format(fmt.share(largest.share))}.", below


def _trust_sign(reading: Reading) -> str:
    """Return the sign before a number that is not fully trusted; "" for a bound, which has its own sign."""
    return "" if reading.trust == "ok" or reading.bound is not None else "≈\u00a0"


def rates(metrics: Mapping[str, Reading]) -> str:
    """Return the achieved rate and the utilizations that differ from the MFU."""
    mfu = metrics["mfu"].value or 0.0
    differing_keys = [
        key for key in ("mfu_at_dtype", "hfu") if abs((metrics[key].value or mfu) - mfu) > MIN_MFU_DIFFERENCE * mfu
    ]
    shown_keys = [key for key in ("achieved_tflops", *differing_keys) if metrics[key].value is not None]
    sentences = [f"{METRICS[key].label}: {_trust_sign(metrics[key])}{fmt.reading(key, metrics[key])}." for key in shown_keys]
    return " ".join(sentences)


def clock_of_the_peak(metrics: Mapping[str, Reading]) -> str:
    """Return the measured SM clock relative to that of the peak, or "" if it is not known."""
    clock = metrics["mfu_factor_clock"]
    return f"SM clock: {clock.notes[-1].rstrip('.')}." if clock.value is not None and clock.trust == "ok" else ""


def throttled(result: RunResult) -> str:
    """Return a clause with the GPU's clock under the power limit, or ""."""
    clock = result.metrics["mfu_factor_clock"]
    is_limited = any("power_limit" in finding.explains.topics for finding in result.findings)
    if not is_limited or clock.value is None or clock.trust != "ok" or clock.value > MAX_LIMITED_CLOCK:
        return ""
    return f" at {fmt.share(clock.value)} of its rated clock (power limit)"


RECORD_SHAPES = "with torch.profiler.profile(record_shapes=True) as profiler:"
MARK_STEPS = "for batch in loader:\n    train_step(batch)\n    profiler.step()  # or an NVTX range around each step"


def what_mfu_lacks(metrics: Mapping[str, Reading]) -> tuple[str, str | None]:
    """Return what is missing for the MFU, and the code that records it; None if no code does."""
    if metrics["step_time_ms"].value is None:
        return "Steps are not marked, so there is no time of a step.", MARK_STEPS
    if metrics["flops_per_step"].value is None:
        return "The FLOPs of a step are not known.", RECORD_SHAPES
    return "The GPU's peak is not known. Enter it under “Your measurements”.", None


def without_tensor_cores(ms: float, is_negligible: bool, per: str) -> str:
    """Return how long products, convolutions and attention run without tensor cores.

    ``is_negligible`` says whether ``ms`` is a negligible part of their time. ``per`` is a phrase such as "per step".
    """
    if not ms:
        return "Every matrix product, convolution and attention uses tensor cores"
    if is_negligible:
        return f"Products, convolutions and attention use tensor cores, all but {fmt.duration_ms(ms)} {per}"
    return f"Products, convolutions and attention run {fmt.duration_ms(ms)} {per} without tensor cores"


def mfu_doubt(metrics: Mapping[str, Reading]) -> str | None:
    """Return a sentence that the step time behind the MFU is inferred; None if the step time is measured."""
    mfu = metrics["mfu"]
    if mfu.value is None or mfu.trust == "ok":
        return None
    return "The step time behind these numbers is inferred, not measured."


def card_note(key: str, metrics: Mapping[str, Reading], rank: RankResult) -> str | None:
    """Return the note below a metric's card on the Verdict, or None."""
    if key == "best_step_time_ms":
        return step_range(rank)
    note = {"mfu": _mfu_note, "tensor_core_time_share": _tensor_note, "gpu_busy_share": _busy_note}.get(key)
    return note(metrics) if note is not None else None


def _mfu_note(metrics: Mapping[str, Reading]) -> str | None:
    """Return the note below the MFU: the achieved rate."""
    if (achieved := metrics["achieved_tflops"]).value is None:
        return None
    prefix = "a lower bound: " if is_lower_bound(metrics) else ""
    note = f"{prefix}{fmt.reading('achieved_tflops', achieved)} achieved"
    return f"of the {mfu_peak(metrics)}; {note}" if is_by_dtype(metrics) else note


def _tensor_note(metrics: Mapping[str, Reading]) -> str | None:
    """Return the note below the tensor-core share: its basis, the unknown part, the measured value."""
    parts = ["of compute time"]
    unknown, measured = metrics["tensor_core_unknown_share"], metrics["tensor_active_measured"]
    if unknown.value:
        parts.append(f"{fmt.share(unknown.value)} unknown")
    if measured.value is not None:
        parts.append(f"pipe measured {fmt.reading('tensor_active_measured', measured)} active")
    return ", ".join(parts)


def _busy_note(metrics: Mapping[str, Reading]) -> str | None:
    """Return the note below GPU busy: NVML's utilization."""
    nvml = metrics["nvml_gpu_util_mean"]
    return f"as profiled; NVML {fmt.reading('nvml_gpu_util_mean', nvml)}" if nvml.value is not None else "as profiled"
