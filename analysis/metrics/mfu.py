"""FLOPs and MFU: the step's FLOP rate as a share of the peak."""

from __future__ import annotations

from dataclasses import dataclass

from sawtooth.analysis.knowledge.flops import FP32_UNCERTAIN
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.metrics.metric import DeviceMeasurements, Metric
from sawtooth.analysis.metrics.reading import Bound, Reading, Trust, lowest_trust, missing
from sawtooth.analysis.units import percent

FULL_COVERAGE = 0.95  # Below this share of kernel time with known FLOPs, their sum is only a lower bound of the model's FLOPs.
MIN_COVERAGE = 0.05  # Below this share, even a lower bound is useless.
FROM_USER = "The user gave the FLOPs per step."
APPROXIMATED = (
    "6 × parameters × tokens, which the user gave, because the trace hides shapes. Attention's own products are not included."
)
RECORD_SHAPES = (
    "Profile with `record_shapes=True`. If a compiled region or a CUDA graph hides shapes, set the run's FLOPs per step."
)
NO_SHAPES = f"No shapes of matrix products, convolutions or attention are recorded. {RECORD_SHAPES}"
TOO_FEW = "Shapes are recorded for only {:.2g} % of the time of matrix products, convolutions and attention."
NARROW = ("fp8", "fp4", "int8")  # Their peaks are above the 16-bit peak, so only these dtypes can raise MFU above 1.
MAX_MFU = 8.0  # An MFU above this is impossible: 4-bit operators reach six times the 16-bit peak.
BY_DTYPE = "of the operators' dtypes"  # In the note of an MFU whose peak is not the 16-bit peak.
FASTEST_CLOCK = 1.1  # Boost clocks are up to 8 % above the clock at which a peak is quoted.
ABOVE_PEAK = "Above the GPU's peak, which is impossible: the FLOPs, the dtypes, the step time or the peak is wrong."
ABOVE_16_BIT_PEAK = "Above 100 % because 8-bit or 4-bit operators can exceed the 16-bit peak."
LOWER_BOUND = "A lower bound"  # Start of a note if FLOPs are missing.
UPPER_BOUND = "An upper bound"
MAX_UNCERTAIN_SHARE = 0.02  # FP32 products on unknown units hardly change the MFU if they need less than this share of the step's time at peak speed.
UNITS_UNKNOWN = "of the FLOPs are FP32 products that may have run in TF32; they are compared with the FP32 peak."
NOT_SEEN = "No recomputation was seen, so HFU equals MFU."
NOT_VISIBLE = f"{LOWER_BOUND}: no shapes are recorded, so recomputation is not visible."


def flop_coverage(measured: DeviceMeasurements) -> Reading:
    """Return the share of the time of GEMM, convolution and attention kernels whose FLOPs are known."""
    flops = measured.facts.flops
    if not measured.counted:
        return missing("There are no steps in which to count FLOPs.")
    if not flops or not flops.kernel_ns:
        return missing("No kernel of the counted steps was recognised as a GEMM, a convolution or attention.")
    return Reading(flops.covered_ns / flops.kernel_ns)


def flops_per_step(measured: DeviceMeasurements) -> Reading:
    """Return the FLOPs per step: the user's number, else from shapes, else from parameters and tokens.

    The user's parameters and tokens are used if shapes cover less than ``FULL_COVERAGE`` of the kernel time.
    """
    user, flops, coverage = measured.user, measured.facts.flops, flop_coverage(measured).value
    if user.flops_per_step is not None:
        return Reading(user.flops_per_step, notes=(FROM_USER,))
    if user.parameters is not None and user.tokens_per_step is not None and (coverage or 0.0) < FULL_COVERAGE:
        return Reading(6 * user.parameters * user.tokens_per_step, trust="caution", notes=(APPROXIMATED,))
    if not measured.counted:
        return missing("There are no steps in which to count FLOPs.")
    if not flops or not flops.operators:
        return missing(NO_SHAPES)
    if coverage is not None and coverage < MIN_COVERAGE:
        return missing(f"{TOO_FEW.format(100 * coverage)} {RECORD_SHAPES}")
    value = flops.flops / measured.counted
    if coverage is not None and coverage < FULL_COVERAGE:
        note = f"{LOWER_BOUND}: FLOPs are known for {percent(coverage)} of GEMM, convolution and attention time."
        return Reading(value, trust="caution", notes=(note,), bound="least")
    return Reading(value)


@dataclass(frozen=True)
class FlopRate:
    """FLOPs and time of a step, and the peak in TFLOP/s; ``peak_of`` names the peak's dtype or source."""

    flops: float
    step_ms: float
    peak: float
    peak_of: str
    trust: Trust
    notes: tuple[str, ...]
    bound: Bound | None

    @property
    def doubts(self) -> tuple[str, ...]:
        """The notes that explain a trust below "ok"."""
        return () if self.trust == "ok" else self.notes

    @property
    def tflops(self) -> float:
        """The achieved rate in TFLOP/s."""
        return self.flops / self.step_ms / 1e9

    @property
    def mfu(self) -> float:
        """The achieved rate as a share of the peak."""
        return self.tflops / self.peak


def rate_of(measured: DeviceMeasurements) -> FlopRate | str:
    """Return the parts of MFU, or a sentence that explains why a part is unknown."""
    count, best = flops_per_step(measured), measured.best
    if count.value is None:
        return count.why_missing or "unknown"
    if not best.ms:
        return best.reading.why_missing or "The step takes no time."
    peak = _peak(measured)
    if isinstance(peak, str):
        return peak
    tflops, peak_name = peak
    notes = (*count.notes, *best.reading.notes, f"Peak {tflops:g} TFLOP/s dense, {peak_name}.")
    return FlopRate(count.value, best.ms, tflops, peak_name, lowest_trust(count.trust, best.reading.trust), notes, count.bound)


def _peak(measured: DeviceMeasurements) -> tuple[float, str] | str:
    """Return the peak in TFLOP/s and its dtype, or a sentence that explains why it is unknown.

    Operators of ``NARROW`` dtypes can exceed the 16-bit peak. If there are any, the peak is the mean rate of all FLOPs if each
    operator ran at the peak of its dtype.
    """
    if measured.user.peak_tflops is not None:
        return measured.user.peak_tflops, "as given by the user"
    gpu = measured.gpu
    if gpu is None:
        return "This GPU is not in the hardware table. Set its dense 16-bit peak in TFLOP/s."
    if not gpu.peak_16bit_tflops:
        return f"The hardware table has no 16-bit tensor peak for {gpu.name}."
    flops = measured.facts.flops
    if flops is None or not _has_narrow_dtypes(measured):
        return gpu.peak_16bit_tflops, "16 bit"
    seconds = sum(count / _peak_of(dtype, gpu) for dtype, count in flops.by_dtype.items())
    return sum(flops.by_dtype.values()) / seconds, f"{BY_DTYPE} ({', '.join(flops.by_dtype)})"


def _peak_of(dtype: str, gpu: GpuPeaks) -> float:
    """Return a dtype's peak in TFLOP/s; the 16-bit peak if the table has none for it."""
    return gpu.peak_tflops("fp32" if dtype == FP32_UNCERTAIN else dtype) or gpu.peak_16bit_tflops


def achieved_rate(measured: DeviceMeasurements) -> Reading:
    """Return the achieved rate in TFLOP/s; it does not need a known peak."""
    rate = rate_of(measured)
    if isinstance(rate, FlopRate):
        return Reading(rate.tflops, trust=rate.trust, notes=rate.notes, bound=rate.bound)
    count, best = flops_per_step(measured), measured.best
    if count.value is None or not best.ms:
        return missing(rate)
    return Reading(
        count.value / best.ms / 1e9, trust=lowest_trust(count.trust, best.reading.trust), notes=count.notes, bound=count.bound
    )


def mfu(measured: DeviceMeasurements) -> Reading:
    """Return the model FLOPs utilization; above 1, it is unusable unless narrow dtypes explain it."""
    rate = rate_of(measured)
    if isinstance(rate, str):
        return missing(rate)
    if rate.mfu <= 1:
        return Reading(rate.mfu, trust=rate.trust, notes=rate.notes, bound=rate.bound)
    if _has_narrow_dtypes(measured):
        return Reading(rate.mfu, trust="caution", notes=(*rate.notes, ABOVE_16_BIT_PEAK), bound=rate.bound)
    wrong = "Above 1: the FLOPs, the step time or the peak is wrong."
    return Reading(rate.mfu, trust="unusable", notes=(*rate.notes, wrong))


def _has_narrow_dtypes(measured: DeviceMeasurements) -> bool:
    flops = measured.facts.flops
    return flops is not None and any(count for dtype, count in flops.by_dtype.items() if dtype in NARROW)


def mfu_at_dtype(measured: DeviceMeasurements) -> Reading:
    """Return MFU relative to the peak of each operator's own dtype."""
    rate, gpu, flops = rate_of(measured), measured.gpu, measured.facts.flops
    if isinstance(rate, str):
        return missing(rate)
    if not {FROM_USER, APPROXIMATED}.isdisjoint(flops_per_step(measured).notes):
        return missing("The user gave the FLOPs, so their dtypes are not known.")
    if gpu is None or not flops:
        return missing("This GPU's peaks by dtype are not known.")
    peaks = {dtype: gpu.peak_tflops("fp32" if dtype == FP32_UNCERTAIN else dtype) for dtype in flops.by_dtype}
    absent = [dtype for dtype, peak in peaks.items() if peak is None]
    if absent:
        return missing(f"The hardware table has no peak of {gpu.name} for {', '.join(absent)}.")
    seconds = sum(count / ((peaks[dtype] or 0.0) * 1e12) for dtype, count in flops.by_dtype.items())
    used = ", ".join(f"{dtype} {peak:g}" for dtype, peak in peaks.items())
    share = seconds / measured.counted / (rate.step_ms / 1e3)
    notes = (f"The peaks are {used} TFLOP/s.",)
    if share > FASTEST_CLOCK:
        return Reading(share, trust="unusable", notes=(ABOVE_PEAK, *notes))
    unsure = flops.by_dtype.get(FP32_UNCERTAIN, 0.0)
    if unsure / ((peaks.get(FP32_UNCERTAIN) or 1.0) * 1e12) > MAX_UNCERTAIN_SHARE * seconds:
        note = f"{UPPER_BOUND}: {percent(unsure / sum(flops.by_dtype.values()))} {UNITS_UNKNOWN}"
        return Reading(share, trust="unusable", notes=(note, *notes), high=share, bound="most")
    return Reading(share, trust=rate.trust, notes=(*rate.doubts, *notes), bound=rate.bound)


def hfu(measured: DeviceMeasurements) -> Reading:
    """Return MFU including the recomputation of activation checkpointing."""
    rate, flops = rate_of(measured), measured.facts.flops
    if isinstance(rate, str):
        return missing(rate)
    if not measured.counted:
        return missing("There are no steps in which to count FLOPs.")
    if not flops or not flops.operators:
        return Reading(rate.mfu, trust=lowest_trust(rate.trust, "caution"), notes=(NOT_VISIBLE, *rate.notes), bound="least")
    share = rate.mfu * (1 + flops.recomputed_flops / measured.counted / rate.flops)
    notes = rate.notes if flops.recomputed_flops else (NOT_SEEN,)
    if share <= 1:
        return Reading(share, trust=rate.trust, notes=notes, bound=rate.bound)
    if _has_narrow_dtypes(measured):
        return Reading(share, trust="caution", notes=(*notes, ABOVE_16_BIT_PEAK), bound=rate.bound)
    return Reading(share, trust="unusable", notes=(ABOVE_PEAK, *notes))


METRICS = (
    Metric(
        key="flops_per_step", label="FLOPs per step", unit="FLOP", better="neither",
        definition="Floating-point operations of matrix products, convolutions and attention per counted step, without recomputation.",
        source="Recorded shapes and PyTorch's own formulas, or the user's number.",
        compute=flops_per_step,
        doubted_by=("lost_launches",),
    ),
    Metric(
        key="flop_coverage", label="FLOP coverage", unit="share", better="higher",
        definition="Share of GEMM, convolution and attention kernel time whose FLOPs are known.",
        source="Recorded shapes. Below 95 %, the MFU is a lower bound.",
        compute=flop_coverage,
        high=1,
    ),
    Metric(
        key="mfu", label="MFU", unit="share", better="higher",
        definition="FLOPs per step ÷ (best step time × the device's dense 16-bit tensor peak). With 8-bit or 4-bit operators: ÷ the peak of each operator's dtype.",
        source="flops_per_step, best_step_time_ms, hardware.toml.",
        compute=mfu,
        high=MAX_MFU,
        doubted_by=("lost_launches", "step_of_profile"),
        card=2,
        good=0.40,  # Llama 3's report states 38 to 43 % for H100.
    ),
    Metric(
        key="mfu_at_dtype", label="MFU at dtype", unit="share", better="higher",
        definition="As MFU, but each operator's FLOPs are compared with the dense peak of its own dtype.",
        source="Operator dtypes, hardware.toml.",
        compute=mfu_at_dtype,
        high=MAX_MFU,
        doubted_by=("lost_launches", "step_of_profile"),
    ),
    Metric(
        key="hfu", label="HFU", unit="share", better="higher",
        definition="As MFU, but including the FLOPs of recomputed operators (activation checkpointing).",
        source="Forward operators repeated inside backward.",
        compute=hfu,
        high=MAX_MFU,
        doubted_by=("lost_launches", "step_of_profile"),
    ),
    Metric(
        key="achieved_tflops", label="Achieved FLOP rate", unit="TFLOP/s", better="higher",
        definition="FLOPs per step ÷ best step time.",
        source="flops_per_step, best_step_time_ms.",
        compute=achieved_rate,
        doubted_by=("lost_launches", "step_of_profile"),
    ),
)  # fmt: skip
