"""FLOPs, MFU and the four factors whose product it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from analysis.hardware import Gpu
from analysis.metrics import Reading, Trust, missing
from analysis.step_time import BestStepTime
from ingest.schema import UserFacts

FULL_COVERAGE = 0.95  # below this the shapes of too many FLOP kernels are hidden to call the sum the model's
GIVEN = "FLOPs per step as given by the user."
APPROXIMATED = (
    "6 × parameters × tokens as given by the user, since the trace hides shapes; attention's own products are not in it."
)
NARROW = ("fp8", "fp4", "int8")  # dtypes whose peak is above the 16-bit one: only they can lift MFU above 1
# Why a factor may be above 100 %.
OUTRUN = "Above 100 % because 8-bit or 4-bit operators outrun the 16-bit peak."
BOOSTS = "Above 100 % because the GPU runs faster than the clock that its peak is quoted at."
LONGER_THAN_THE_STEP = (
    "Above 100 %: the profiled GPU works longer than the run's step takes, so the two did other work or ran at other clocks."
)
TOO_EFFICIENT = "Above 100 %: attention that skips what its mask hides is counted whole; else the clock, the step time or the peak is wrong."
_TRUST: list[Trust] = ["ok", "caution", "unusable"]


@dataclass(frozen=True)
class Clock:
    """Mean SM clock while the run was steady, and where that was measured."""

    mhz: float
    note: str


def readings(
    flops: dict[str, Any] | None,
    gpu: Gpu | None,
    best: BestStepTime,
    busy_ns: int,
    counted: int,
    user: UserFacts,
    clock: Clock | None = None,
    busy_ms: float | None = None,
) -> dict[str, Reading]:
    """Return the FLOP and MFU metrics of one device.

    ``flops`` is the derived summary of the device (see ``flop_counts.device_flops``), ``busy_ns`` the busy time of the steady window and
    ``counted`` its number of steps. ``busy_ms`` is the busy time of a step in the run that ``best`` times, None where that is the profile's.
    """
    count, coverage = _flops_per_step(flops, counted, user)
    out = {"flops_per_step": count, "flop_coverage": coverage}
    peak, why = _peak(gpu, user)
    if count.value is None or best.ms is None or peak is None:
        reason = count.why_missing or (best.reading.why_missing if best.ms is None else why) or "unknown"
        keys = ("achieved_tflops", "mfu", "mfu_at_dtype", "hfu")
        out.update({key: missing(reason) for key in keys})
        if count.value is not None and best.ms is not None:
            out["achieved_tflops"] = Reading(count.value / best.ms / 1e9, trust=_worst(count, best.reading))
        out.update({f"mfu_factor_{k}": missing(reason) for k in ("busy", "flop_kernels", "clock", "efficiency")})
        return out
    trust = _worst(count, best.reading)
    notes = (*best.reading.notes, *count.notes, f"Peak {peak:g} TFLOP/s dense, 16 bit.")
    achieved = count.value / best.ms / 1e9
    mfu = achieved / peak
    out["achieved_tflops"] = Reading(achieved, trust=trust, notes=notes)
    out["mfu"] = _explained(Reading(mfu, trust=trust, notes=notes), flops)
    out["mfu_at_dtype"] = _at_dtype(flops, gpu, best, counted, count, trust)
    out["hfu"] = _hfu(flops, mfu, count.value, counted, trust, notes)
    out.update(_factors(mfu, flops, best, busy_ns, counted, clock, gpu, trust, busy_ms))
    return out


def _worst(*parts: Reading) -> Trust:
    return max((p.trust for p in parts), key=_TRUST.index)


def _flops_per_step(flops: dict[str, Any] | None, counted: int, user: UserFacts) -> tuple[Reading, Reading]:
    coverage = missing("No GEMM, convolution or attention kernel ran in the counted steps.")
    if flops and flops["kernel_ns"]:
        coverage = Reading(flops["covered_ns"] / flops["kernel_ns"])
    if user.flops_per_step is not None:
        return Reading(user.flops_per_step, notes=(GIVEN,)), coverage
    if user.parameters is not None and user.tokens_per_step is not None and (coverage.value or 0.0) < FULL_COVERAGE:
        return Reading(6 * user.parameters * user.tokens_per_step, trust="caution", notes=(APPROXIMATED,)), coverage
    if not counted:
        return missing("There are no steps to divide by."), coverage
    if not flops or not flops["operators"]:
        return missing(
            "No shapes of matrix products, convolutions or attention are recorded. Profile with `record_shapes=True`; where a compiled "
            "region or a CUDA graph hides them, give the FLOPs per step of the run."
        ), coverage
    value = flops["flops"] / counted
    if coverage.value is not None and coverage.value < FULL_COVERAGE:
        note = f"A lower bound: shapes are known for {coverage.value:.0%} of GEMM, convolution and attention time."
        return Reading(value, trust="caution", notes=(note,)), coverage
    return Reading(value), coverage


def _peak(gpu: Gpu | None, user: UserFacts) -> tuple[float | None, str | None]:
    if user.peak_tflops is not None:
        return user.peak_tflops, None
    if gpu is None:
        return None, "This GPU is not in the hardware table: give its dense 16-bit peak in TFLOP/s."
    peak = gpu.peak_16bit_tflops
    return (peak, None) if peak else (None, f"The hardware table has no 16-bit tensor peak for {gpu.name}.")


def _explained(mfu: Reading, flops: dict[str, Any] | None) -> Reading:
    if mfu.value is None or mfu.value <= 1:
        return mfu
    narrow = sum(v for k, v in (flops or {}).get("by_dtype", {}).items() if k in NARROW)
    if narrow:
        return Reading(mfu.value, trust="caution", notes=(*mfu.notes, OUTRUN))
    return Reading(
        mfu.value,
        trust="unusable",
        notes=(*mfu.notes, "Above 1 without 8-bit operators: the FLOPs, the step time or the peak is wrong."),
    )


def _at_dtype(
    flops: dict[str, Any] | None, gpu: Gpu | None, best: BestStepTime, counted: int, per_step: Reading, trust: Trust
) -> Reading:
    if not {GIVEN, APPROXIMATED}.isdisjoint(per_step.notes):
        return missing("The FLOPs are the user's, whose dtypes are not known.")
    if gpu is None or not flops or best.ms is None:
        return missing("The peaks of this GPU's dtypes are not known.")
    seconds, absent = 0.0, []
    for dtype, count in flops["by_dtype"].items():
        peak = gpu.peak_tflops(dtype)
        if peak is None:
            absent.append(dtype)
        else:
            seconds += count / (peak * 1e12)
    if absent:
        return missing(f"The hardware table has no peak of {gpu.name} for {', '.join(absent)}.")
    used = ", ".join(f"{d} {gpu.peak_tflops(d):g}" for d in flops["by_dtype"])
    return Reading(seconds / counted / (best.ms / 1e3), trust=trust, notes=(f"Peaks in TFLOP/s: {used}.",))


def _hfu(flops: dict[str, Any] | None, mfu: float, count: float, counted: int, trust: Trust, notes: tuple[str, ...]) -> Reading:
    again = (flops or {}).get("recomputed_flops")
    if again is None:
        return missing("Recomputation is visible only where shapes and autograd's operators are recorded.")
    if not again:
        return Reading(mfu, trust=trust, notes=("No recomputation was seen: equal to MFU.",))
    return Reading(mfu * (1 + again / counted / count), trust=trust, notes=notes)


def _factors(
    mfu: float,
    flops: dict[str, Any] | None,
    best: BestStepTime,
    busy_ns: int,
    counted: int,
    clock: Clock | None,
    gpu: Gpu | None,
    trust: Trust,
    busy_ms: float | None,
) -> dict[str, Reading]:
    keys = ("busy", "flop_kernels", "clock", "efficiency")
    if not counted or not busy_ns or not flops or not flops["union_ns"] or not best.ms:
        reason = "No GEMM, convolution or attention kernel is known in the steady window."
        return {f"mfu_factor_{key}": missing(reason) for key in keys}
    replayed = busy_ms is not None and best.source == "estimate"
    busy = (busy_ns / counted / 1e6 if busy_ms is None else busy_ms) / best.ms
    busy_note = (
        f"Busy time per step {'in the replay without the profiler' if replayed else 'as profiled'} ÷ the step time of the MFU."
    )
    kernels = flops["union_ns"] / busy_ns
    share, note = 1.0, "No telemetry tells the clock: taken as the clock the peak is quoted at."
    if clock and gpu and gpu.quoted_clock_mhz:
        share, note = clock.mhz / gpu.quoted_clock_mhz, f"{clock.mhz:.0f} MHz of {gpu.quoted_clock_mhz:.0f} MHz; {clock.note}"
    efficiency = mfu / (busy * kernels * share)
    dtypes = ", ".join(f"{d} {gpu.peak_tflops(d):g}" for d in flops["by_dtype"] if gpu and gpu.peak_tflops(d))
    narrow = any(dtype in NARROW for dtype in flops["by_dtype"])
    return {
        "mfu_factor_busy": _above_one(Reading(busy, trust=trust, notes=(busy_note,)), LONGER_THAN_THE_STEP, "caution"),
        "mfu_factor_flop_kernels": Reading(kernels, trust=trust),
        "mfu_factor_clock": _above_one(Reading(share, trust="ok" if clock else "caution", notes=(note,)), BOOSTS),
        "mfu_factor_efficiency": _above_one(
            Reading(efficiency, trust=trust, notes=(f"Dense peaks in TFLOP/s: {dtypes}.",) if dtypes else ()),
            OUTRUN if narrow else TOO_EFFICIENT,
            "caution",
        ),
    }


def _above_one(factor: Reading, why: str, trust: Trust = "ok") -> Reading:
    """Return a factor with the reason first where it is above 100 %, which no reader expects."""
    if factor.value is None or factor.value <= 1:
        return factor
    return Reading(factor.value, trust=max(factor.trust, trust, key=_TRUST.index), notes=(why, *factor.notes))
