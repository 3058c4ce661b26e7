"""The four factors of MFU: busy share, FLOP-kernel share, clock, and efficiency of these kernels."""

from __future__ import annotations

from dataclasses import dataclass

from sawtooth.analysis.metrics.metric import DeviceMeasurements, Metric
from sawtooth.analysis.metrics.mfu import NARROW, OUTRUN, FlopRate, rate_of
from sawtooth.analysis.metrics.reading import Reading, Trust, missing, worst
from sawtooth.analysis.units import in_mhz, percent

# Reasons why a factor may be above 100 %.
BOOSTS = "Above 100 % because the GPU runs faster than the clock that its peak is quoted at."
LONGER_THAN_THE_STEP = (
    "Above 100 %: the profiled GPU works longer than the run's step takes, so the two did other work or ran at other clocks."
)
TOO_EFFICIENT = "Above 100 %: attention that skips what its mask hides is counted whole; else the clock, the step time or the peak is wrong."


@dataclass(frozen=True)
class _Factors:
    """The four shares whose product is MFU, and the source of the clock's share."""

    rate: FlopRate
    busy: float
    flop_kernels: float
    clock: float
    clock_note: str | None

    @property
    def efficiency(self) -> float:
        return self.rate.mfu / (self.busy * self.flop_kernels * self.clock)


def _factors(measured: DeviceMeasurements) -> _Factors | str:
    """Return the factors of MFU, or a sentence that explains what is unknown."""
    rate, flops = rate_of(measured), measured.facts.flops
    if isinstance(rate, str):
        return rate
    if not measured.counted or not measured.busy_ns or measured.works_ms == 0 or not flops or not flops.union_ns:
        return "No GEMM, convolution or attention kernel is known in the steady window."
    works_ms = measured.busy_ns / measured.counted / 1e6 if measured.works_ms is None else measured.works_ms
    # Both shares use the same busy time, because a profiled collective may wait for another rank during most of the profile.
    flop_kernels = min(flops.union_ns / measured.counted / 1e6 / works_ms, 1.0)
    sampled, gpu = measured.sampled, measured.gpu
    mhz = sampled.means.get("clock_sm_mhz") if sampled else None
    clock, note = 1.0, None
    if sampled and mhz and gpu and gpu.quoted_clock_mhz:
        clock, note = mhz / gpu.quoted_clock_mhz, _clocks(mhz, gpu.quoted_clock_mhz, sampled.clock_note)
    return _Factors(rate, works_ms / rate.step_ms, flop_kernels, clock, note)


def _clocks(mhz: float, quoted_mhz: float, time_in_words: str) -> str:
    above = mhz / quoted_mhz - 1
    relation = f", {percent(above)} above the" if above >= 0.005 else " of the"
    return f"{in_mhz(mhz)}{relation} {in_mhz(quoted_mhz)} that the peak is quoted at; mean over {time_in_words}."


def busy_factor(measured: DeviceMeasurements) -> Reading:
    """Return the share of the step in which the GPU works."""
    factors = _factors(measured)
    if isinstance(factors, str):
        return missing(factors)
    replayed = measured.works_ms is not None and measured.best.source != "profile"
    note = (
        f"Busy time per step {'in the replay without the profiler' if replayed else 'as profiled'} ÷ the step time of the MFU."
    )
    return _above_one(Reading(factors.busy, trust=factors.rate.trust, notes=(note,)), LONGER_THAN_THE_STEP, "caution")


def flop_kernel_factor(measured: DeviceMeasurements) -> Reading:
    """Return the share of busy time in FLOP kernels."""
    factors = _factors(measured)
    if isinstance(factors, str):
        return missing(factors)
    return Reading(factors.flop_kernels, trust=factors.rate.trust, notes=factors.rate.notes)


def clock_factor(measured: DeviceMeasurements) -> Reading:
    """Return the mean clock as a share of the clock for which the peak is quoted."""
    factors = _factors(measured)
    if isinstance(factors, str):
        return missing(factors)
    if factors.clock_note is None:
        note = "The clock is not known from telemetry, so the clock of the quoted peak is used."
        return Reading(1.0, trust="caution", notes=(note,))
    return _above_one(Reading(factors.clock, notes=(factors.clock_note,)), BOOSTS)


def efficiency_factor(measured: DeviceMeasurements) -> Reading:
    """Return the efficiency of FLOP kernels at their actual clock."""
    factors = _factors(measured)
    if isinstance(factors, str):
        return missing(factors)
    gpu, flops = measured.gpu, measured.facts.flops
    by_dtype = flops.by_dtype if flops is not None else {}
    peaks = {d: peak for d in by_dtype if gpu and (peak := gpu.peak_tflops(d)) and peak != factors.rate.peak}
    others = "".join(f"; the peak of {dtype} is {peak:g}" for dtype, peak in peaks.items())
    notes = (f"Compared with MFU's peak, {factors.rate.peak:g} TFLOP/s dense ({factors.rate.peak_of}){others}.",)
    reason = OUTRUN if any(dtype in NARROW for dtype in by_dtype) else TOO_EFFICIENT
    return _above_one(Reading(factors.efficiency, trust=factors.rate.trust, notes=notes), reason, "caution")


def _above_one(factor: Reading, reason: str, trust: Trust = "ok") -> Reading:
    """Return a factor with the reason as its first note if it is above 100 %."""
    if factor.value is None or factor.value <= 1:
        return factor
    return Reading(factor.value, trust=worst(factor.trust, trust), notes=(reason, *factor.notes))


METRICS = (
    Metric(
        key="mfu_factor_busy", label="Busy share of MFU", unit="share", better="higher",
        definition="Busy time per step ÷ the step time of the MFU.",
        source="Ledger, step time.",
        compute=busy_factor,
        doubted_by=("lost_launches", "step_of_profile"),
    ),
    Metric(
        key="mfu_factor_flop_kernels", label="FLOP-kernel share", unit="share", better="higher",
        definition="Union of all GEMM, convolution and attention kernels per step ÷ the busy time per step of the busy share.",
        source="Kernel categories, ledger.",
        compute=flop_kernel_factor,
        high=1,
    ),
    Metric(
        key="mfu_factor_clock", label="Clock share", unit="share", better="higher",
        definition="Mean SM clock ÷ the clock the peak is quoted at; 1 with a note if telemetry does not show it. Under a power cap the clock that NVML reports was "
        "measured 6 to 10 % above the one that the SMs ran at (H200); the difference then lies in the efficiency.",
        source="Telemetry, hardware.toml.",
        compute=clock_factor,
        high=4,  # no clock is four times the rated one
    ),
    Metric(
        key="mfu_factor_efficiency", label="FLOP-kernel efficiency", unit="share", better="higher",
        definition="What is left of MFU after the other three factors: how near those kernels come to the peak while they run.",
        source="Quotient.",
        compute=efficiency_factor,
        doubted_by=("lost_launches", "step_of_profile"),
    ),
)  # fmt: skip
