"""Sentences about how well the busy time is used: MFU, what lowers it, and the basis of its numbers."""

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
from sawtooth.app.words.run import mfu_peak

SAME_SHARE = 0.01  # Share of the MFU. Values that differ by less look equal.
OTHER_DTYPES = 1.05  # Ratio to the MFU above which the cost of wider dtypes is shown.
MIN_ROW_SHARE = 0.01  # Share of the step. Smaller parts are added up in one row.
ROUNDING = 1e-9  # Sums of floating-point numbers may differ by this share of the step.
LOWER_CLOCK = 0.98  # Share of the rated clock. A smaller reduction is not mentioned.
NOTABLE = 0.005  # Share of the peak's clock. A smaller difference is rounding.

LOSES = {  # the main loss relative to the peak; ``mfu_sentence`` inserts its time
    "idle": "the GPU is idle for {}",
    "exposed_memcpy": "copies that no computation overlaps take {}",
    "exposed_comm": "communication that no computation overlaps takes {}",
    "other_kernels": "kernels other than products, convolutions and attention take {}",
    "dtype": "products, convolutions and attention do not compute in 16 bit, which costs {}",
    "clock": "the clock is below the clock of the quoted peak, which costs {}",
    "slow_kernels": "products, convolutions and attention are slower than the peak by {}",
}
HELPS = {  # advice for parts that are not lost time
    "other_kernels": "Fuse or remove them: torch.compile, fused optimizers and losses.",
    "dtype": "Compute in bf16 (autocast), or allow TF32.",
    "clock": "Raise the power limit or improve the cooling: the Telemetry page shows the reason.",
    "slow_kernels": "Use larger and aligned shapes, or fused attention: see the operators below.",
}
IN_TF32 = "Compute in bf16 (autocast)."  # TF32 is already in use
PRECISION_FIRST = (
    "Lower the precision first, which changes these kernels. Then use larger and aligned shapes, or fused attention."
)
MOSTLY = 0.5  # Share of the FLOPs. If wide dtypes have more, lower precision is the first advice.
FLOP_CATEGORIES = ("gemm", "conv", "attention")
# Parts with rows of their own, and operations that are not kernels.
NO_KERNELS = (*FLOP_CATEGORIES, "communication", "memcpy", "memset")
NAMED = 2  # Number of kernel categories that have rows of their own.


def peak_parts(rank: RankResult, metrics: Mapping[str, Reading], column: Column) -> list[PeakPart]:
    """Return the parts of a step: the time needed at the peak, and each loss relative to it.

    The parts sum to the step; empty parts are left out. Idle time, copies and communication come from the ledger, as on Idle.
    ``metrics`` are of the same ``column``. Empty if the MFU is not known.
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
    own_peak = (metrics["mfu_at_dtype"].value or 0.0) * step
    dtype = min(own_peak, flop_kernels) - peak if own_peak > OTHER_DTYPES * peak else 0.0
    other_kernels_ms = flop_kernels - peak - dtype
    slower = min((peak + dtype) * (1 / clock - 1), other_kernels_ms) if clock < 1 - NOTABLE else 0.0
    times: dict[PartKey, float] = {
        "idle": waits["idle"], "exposed_memcpy": waits["exposed_memcpy"], "exposed_comm": waits["exposed_comm"],
        "other_kernels": compute - flop_kernels, "dtype": dtype, "clock": slower, "slow_kernels": other_kernels_ms - slower,
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
    return f"Idle is time without any GPU operation. With copies and communication that nothing overlaps, {fmt.duration_ms(lost)} is lost, as on the Idle page."


def largest_wait(rank: RankResult, key: PartKey, column: Column) -> tuple[lost_time.LostTimeRow, float] | None:
    """Return the main cause of idle time, exposed copies or communication, with its ms, else None."""
    if key not in ("idle", "exposed_memcpy", "exposed_comm"):
        return None
    times = {
        row: row.ms - row.transfer_ms if key == "idle" else row.transfer_ms
        for row in lost_time.rows(rank, column)
        if row.owner and (key == "idle" or (row.key in COMMUNICATION) == (key == "exposed_comm"))
    }
    first = max(times, key=times.__getitem__, default=None)
    return None if first is None or not times[first] else (first, times[first])


def largest_share(rank: RankResult, part: PeakPart, column: Column, largest_operator: str = "") -> tuple[str, str]:
    """Return the largest share of a part in words, and advice against it.

    ``largest_operator`` is the product, convolution or attention with the largest time above its minimum.
    """
    if (wait := largest_wait(rank, part.key, column)) is not None:
        row, ms = wait
        return ("" if row.key == part.key else f"{row.label}: {fmt.duration_ms(ms)}"), row.helps
    details = {"slow_kernels": largest_operator, "dtype": _dtypes(rank), "other_kernels": _categories(rank)}
    helps = IN_TF32 if (part.key, details["dtype"]) == ("dtype", "TF32") else HELPS.get(part.key, "")
    flops = _flops_of_dtypes(rank)
    wide = sum(flops.get(dtype, 0.0) for dtype in ("fp32", "tf32"))
    if part.key == "slow_kernels" and wide > MOSTLY * sum(flops.values()):
        helps = PRECISION_FIRST
    return details.get(part.key, ""), helps


def _flops_of_dtypes(rank: RankResult) -> Mapping[str, float]:
    return rank.facts.flops.by_dtype if rank.facts.flops is not None else {}


def _dtypes(rank: RankResult) -> str:
    flops = _flops_of_dtypes(rank)
    return ", ".join(
        dtype.upper() for dtype in sorted(flops, key=flops.__getitem__, reverse=True) if dtype not in ("bf16", "fp16")
    )


def _categories(rank: RankResult) -> str:
    rows = rank.categories[~rank.categories["category"].isin(NO_KERNELS)].nlargest(NAMED, "ns")
    per = len(rank.counted) or 1
    return ", ".join(
        f"{categories.named(category)} {fmt.duration_ns(ns / per)}"
        for category, ns in zip(rows["category"], rows["ns"], strict=True)
    )


def largest_loss(parts: Sequence[PeakPart]) -> PeakPart | None:
    """Return the part that keeps most of a step from the peak; None if there is none."""
    return max((part for part in parts if part.key != "peak"), key=lambda part: part.ms, default=None)


def mfu_headline(sentence: str) -> tuple[str, str | None]:
    """Return a sentence of ``mfu_sentence`` as a short headline and the line below it."""
    reaches, _, loses = sentence.removesuffix(".").partition(": ")
    reaches, _, also = reaches.partition(", and ")
    below = [f"{loses[0].upper()}{loses[1:]}." if loses else "", f"It reaches {also}." if also else ""]
    return f"{reaches}.", " ".join(filter(None, below)) or None


def mfu_sentence(metrics: Mapping[str, Reading], parts: Sequence[PeakPart]) -> str:
    """Return the MFU and the main loss relative to the peak."""
    mfu = fmt.reading("mfu", metrics["mfu"])
    mfu_prefix = "" if mfu.startswith("<") else _trust_sign(metrics["mfu"])
    peak = mfu_peak(metrics)
    peak = f"GPU's dense {peak}" if peak == "16-bit peak" else peak
    reaches, most = f"The run reaches {mfu_prefix}{mfu} of the {peak}", largest_loss(parts)
    if most is None:
        return f"{reaches}."
    step = f"each {fmt.duration_ms(sum(part.ms for part in parts))} step"
    if most.key == "dtype":
        reaches += f", and {fmt.share(metrics['mfu_at_dtype'].value or 0.0)} of the peak of its operators' dtypes"
    return f"{reaches}: {LOSES[most.key].format(f'{fmt.duration_ms(most.ms)} of {step}')}."


def _trust_sign(reading: Reading) -> str:
    """Return the sign before a number that is not fully trusted; "" for a bound, which has its own sign."""
    return "" if reading.trust == "ok" or reading.bound is not None else "≈\u00a0"


def rates_and_clock(metrics: Mapping[str, Reading]) -> str:
    """Return the achieved rate, the utilizations that differ from the MFU, and the SM clock."""
    mfu = metrics["mfu"].value or 0.0
    others = [key for key in ("mfu_at_dtype", "hfu") if abs((metrics[key].value or mfu) - mfu) > SAME_SHARE * mfu]
    shown_keys = [key for key in ("achieved_tflops", *others) if metrics[key].value is not None]
    sentences = [f"{METRICS[key].label}: {_trust_sign(metrics[key])}{fmt.reading(key, metrics[key])}." for key in shown_keys]
    clock = metrics["mfu_factor_clock"]
    if clock.value is not None and clock.trust == "ok":
        sentences.append(f"SM clock: {clock.notes[-1].rstrip('.')}.")
    return " ".join(sentences)


def throttled(result: RunResult) -> str:
    """Return a clause with the GPU's clock under the power limit; "" if the limit does not lower it."""
    clock = result.metrics["mfu_factor_clock"]
    capped = any("power_limit" in finding.explains.topics for finding in result.findings)
    if not capped or clock.value is None or clock.trust != "ok" or clock.value > LOWER_CLOCK:
        return ""
    return f" at {fmt.share(clock.value)} of its rated clock (power limit)"


RECORD_SHAPES = "with torch.profiler.profile(record_shapes=True) as profiler:"
MARK_STEPS = "for batch in loader:\n    train_step(batch)\n    profiler.step()  # or an NVTX range around each step"


def what_mfu_lacks(metrics: Mapping[str, Reading]) -> tuple[str, str | None]:
    """Return what is missing for the MFU, and the code that records it (None if no code does)."""
    if metrics["step_time_ms"].value is None:
        return "Steps are not marked, so there is no time of a step.", MARK_STEPS
    if metrics["flops_per_step"].value is None:
        return "The FLOPs of a step are not known.", RECORD_SHAPES
    return "The GPU's peak is not known: give it under “Your measurements”.", None


def without_tensor_cores(ms: float, hardly: bool, per: str) -> str:
    """Return how long products, convolutions and attention run without tensor cores.

    ``hardly`` means that this is a negligible part of their time.
    """
    if not ms:
        return "Every matrix product, convolution and attention uses tensor cores"
    if hardly:
        return f"Products, convolutions and attention use tensor cores, all but {fmt.duration_ms(ms)} {per}"
    return f"Products, convolutions and attention run {fmt.duration_ms(ms)} {per} without tensor cores"


def mfu_doubt(metrics: Mapping[str, Reading]) -> str | None:
    """Return a sentence that the MFU's step time is inferred; None if it is measured."""
    mfu = metrics["mfu"]
    if mfu.value is None or mfu.trust == "ok":
        return None
    return "The step time behind these numbers is inferred, not measured."
