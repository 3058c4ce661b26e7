"""The four factors of MFU: GPU busy, matrix-kernel time, SM clock, and matrix-kernel efficiency.

Matrix kernels, or FLOP kernels, are GEMM, convolution and attention kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from sawtooth.analysis.metrics.metric import DeviceMeasurements, Metric
from sawtooth.analysis.metrics.mfu import ABOVE_16_BIT_PEAK, NARROW, FlopRate, rate_of
from sawtooth.analysis.metrics.reading import Reading, Trust, lowest_trust, missing
from sawtooth.analysis.units import in_mhz

# Reasons why a factor may be above 100 %.
BOOSTS = "Above 100 %, because the GPU's peak is quoted at a lower clock."
LONGER_THAN_THE_STEP = "Above 100 %: the GPU's work in a profiled step takes longer than the run's step. Profile and run differ in work or in clock."
TOO_EFFICIENT = "Above 100 %: the FLOPs of masked attention are counted in full although kernels skip masked parts, or the clock, the step time or the peak is wrong."


@dataclass(frozen=True)
class _Factors:
    """The four factors whose product is MFU; ``clock_note`` is None without a clock in telemetry."""

    rate: FlopRate
    busy: float
    flop_kernels: float
    clock: float
    clock_note: str | None

    @property
    def efficiency(self) -> float:
        """The quotient of MFU and the other three factors."""
        return self.rate.mfu / (self.busy * self.flop_kernels * self.clock)


def _factors(measured: DeviceMeasurements) -> _Factors | str:
    """Return the factors of MFU, or a sentence that explains which input is unknown."""
    rate, flops = rate_of(measured), measured.facts.flops
    if isinstance(rate, str):
        return rate
    if not measured.counted or not measured.busy_ns or measured.works_ms == 0 or not flops or not flops.union_ns:
        return "No GEMM, convolution or attention kernel is known in the steady window."
    works_ms = measured.busy_ns / measured.counted / 1e6 if measured.works_ms is None else measured.works_ms
    # The busy share and the FLOP-kernel share are relative to the same busy time. The profile's own busy time may consist
    # mostly of collectives that wait for another rank.
    flop_kernels = min(flops.union_ns / measured.counted / 1e6 / works_ms, 1.0)
    sampled, gpu = measured.sampled, measured.gpu
    mhz = sampled.means.get("clock_sm_mhz") if sampled else None
    clock, note = 1.0, None
    if sampled and mhz and gpu and gpu.quoted_clock_mhz:
        clock, note = mhz / gpu.quoted_clock_mhz, _clock_note(mhz, gpu.quoted_clock_mhz, sampled.clock_note)
    return _Factors(rate, works_ms / rate.step_ms, flop_kernels, clock, note)


def _clock_note(mhz: float, quoted_mhz: float, time_in_words: str) -> str:
    return f"The mean SM clock is {in_mhz(mhz)} over {time_in_words}. The peak is quoted at {in_mhz(quoted_mhz)}."


def busy_factor(measured: DeviceMeasurements) -> Reading:
    """Return the GPU's busy time per step as a share of the step time."""
    factors = _factors(measured)
    if isinstance(factors, str):
        return missing(factors)
    replayed = measured.works_ms is not None and measured.best.source != "profile"
    source = "estimated without the profiler" if replayed else "as profiled"
    note = f"The busy time per step ({source}) as a share of the step time."
    return _above_one(
        Reading(factors.busy, trust=factors.rate.trust, notes=(*factors.rate.doubts, note)), LONGER_THAN_THE_STEP, "caution"
    )


def flop_kernel_factor(measured: DeviceMeasurements) -> Reading:
    """Return the share of busy time in which a FLOP kernel runs."""
    factors = _factors(measured)
    if isinstance(factors, str):
        return missing(factors)
    return Reading(factors.flop_kernels, trust=factors.rate.trust, notes=factors.rate.notes)


def clock_factor(measured: DeviceMeasurements) -> Reading:
    """Return the mean clock as a share of the clock at which the peak is quoted."""
    factors = _factors(measured)
    if isinstance(factors, str):
        return missing(factors)
    if factors.clock_note is None:
        note = "Telemetry does not show the clock, so the clock at which the peak is quoted is assumed."
        return Reading(1.0, trust="caution", notes=(note,))
    return _above_one(Reading(factors.clock, notes=(factors.clock_note,)), BOOSTS)


def efficiency_factor(measured: DeviceMeasurements) -> Reading:
    """Return the FLOP kernels' rate as a share of the peak at their actual clock."""
    factors = _factors(measured)
    if isinstance(factors, str):
        return missing(factors)
    gpu, flops = measured.gpu, measured.facts.flops
    by_dtype = flops.by_dtype if flops is not None else {}
    peaks = {d: peak for d in by_dtype if gpu and (peak := gpu.peak_tflops(d)) and peak != factors.rate.peak}
    other_peaks = "".join(f" The peak of {dtype} is {peak:g} TFLOP/s." for dtype, peak in peaks.items())
    notes = (f"The peak of the MFU is {factors.rate.peak:g} TFLOP/s dense ({factors.rate.peak_of}).{other_peaks}",)
    reason = ABOVE_16_BIT_PEAK if any(dtype in NARROW for dtype in by_dtype) else TOO_EFFICIENT
    return _above_one(
        Reading(factors.efficiency, trust=factors.rate.trust, notes=(*factors.rate.doubts, *notes)), reason, "caution"
    )


def _above_one(factor: Reading, reason: str, trust: Trust = "ok") -> Reading:
    """Return a factor; above 100 %, with ``reason`` as its first note and at most the trust ``trust``."""
    if factor.value is None or factor.value <= 1:
        return factor
    return Reading(factor.value, trust=lowest_trust(factor.trust, trust), notes=(reason, *factor.notes))


METRICS = (
    Metric(
        key="mfu_factor_busy", label="MFU factor: GPU busy", unit="share", better="higher",
        definition="Busy time per step ÷ the step time of the MFU.",
        source="Ledger, step time.",
        compute=busy_factor,
        doubted_by=("lost_launches", "step_of_profile"),
    ),
    Metric(
        key="mfu_factor_flop_kernels", label="MFU factor: matrix-kernel time", unit="share", better="higher",
        definition="Union of all GEMM, convolution and attention kernels per step ÷ the busy time per step of the busy share.",
        source="Kernel categories, ledger.",
        compute=flop_kernel_factor,
        high=1,
    ),
    Metric(
        key="mfu_factor_clock", label="MFU factor: SM clock", unit="share", better="higher",
        definition="Mean SM clock ÷ the clock at which the peak is quoted; 1 with a note if telemetry does not show the clock. Under a power cap on an H200, NVML "
        "reports a clock 6 to 10 % above the SMs' actual clock. The efficiency factor is then too low by this difference.",
        source="Telemetry, hardware.toml.",
        compute=clock_factor,
        high=4,  # No clock is four times the rated one.
    ),
    Metric(
        key="mfu_factor_efficiency", label="MFU factor: matrix-kernel efficiency", unit="share", better="higher",
        definition="MFU ÷ the other three factors: the rate of GEMM, convolution and attention kernels while they run, as a share of the peak at their clock.",
        source="MFU and its other factors.",
        compute=efficiency_factor,
        doubted_by=("lost_launches", "step_of_profile"),
    ),
)  # fmt: skip
