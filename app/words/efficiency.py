"""How well the busy time works, in sentences: MFU, what holds it down, and what its numbers rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.app import format as fmt
from sawtooth.app.words.run import by_own_dtypes, is_lower_bound

SAME_SHARE = 0.01  # of the MFU: a share that differs by less reads the same
FACTOR_LOSSES = {  # what a small factor of MFU means
    "mfu_factor_busy": "the GPU works only {} of the time",
    "mfu_factor_flop_kernels": "only {} of the busy time goes to products, convolutions and attention",
    "mfu_factor_clock": "the clock is {} of the one the peak is quoted at",
    "mfu_factor_efficiency": "matrix products, convolutions and attention run at {} of that peak",
}
OTHER_DTYPES = 1.5  # times the MFU: then wider dtypes cost more than the kernels do


def mfu_sentence(metrics: Mapping[str, Reading], lowest: str | None) -> str:
    """Return the MFU with the factor that holds it down most."""
    mfu = fmt.reading("mfu", metrics["mfu"])
    sure = metrics["mfu"].trust == "ok" or mfu.startswith("<")
    about = "at least " if is_lower_bound(metrics) else "" if sure else "≈\u00a0"
    if lowest is None:
        return f"The run reaches {about}{mfu} of the GPU's dense 16-bit peak."
    if (own := by_own_dtypes(metrics)) is not None:
        return (
            f"The run reaches {about}{own} of the peak of its operators' dtypes, which is {mfu} of the GPU's dense 16-bit peak."
        )
    value = fmt.reading(lowest, metrics[lowest])
    own_peak = metrics["mfu_at_dtype"].value or 0.0
    if lowest == "mfu_factor_efficiency" and own_peak > OTHER_DTYPES * (metrics["mfu"].value or 0.0):
        return (
            f"The run reaches {about}{mfu} of the GPU's dense 16-bit peak, and {fmt.share(own_peak)} of the peak of its operators' dtypes: "
            "most is lost because matrix products, convolutions and attention do not compute in 16 bit."
        )
    return f"The run reaches {about}{mfu} of the GPU's dense 16-bit peak; most is lost because {FACTOR_LOSSES[lowest].format(value)}."


RECORD_SHAPES = "with torch.profiler.profile(record_shapes=True) as profiler:"
MARK_STEPS = "for batch in loader:\n    train_step(batch)\n    profiler.step()  # or an NVTX range around each step"


def what_mfu_lacks(metrics: Mapping[str, Reading]) -> tuple[str, str | None]:
    """Return what of MFU is not known, and the code that records it (None where no code does)."""
    if metrics["step_time_ms"].value is None:
        return "Steps are not marked, so there is no time of a step.", MARK_STEPS
    if metrics["flops_per_step"].value is None:
        return "The FLOPs of a step are not known.", RECORD_SHAPES
    return "The GPU's peak is not known: give it under “Your measurements”.", None


def utilizations(metrics: Mapping[str, Reading]) -> list[str]:
    """Return which metrics say how well the peak is used: MFU and what is achieved, and the others where they say something else."""
    mfu = metrics["mfu"].value or 0.0
    others = [key for key in ("mfu_at_dtype", "hfu") if abs((metrics[key].value or mfu) - mfu) > SAME_SHARE * mfu]
    return ["mfu", "achieved_tflops", *others]


def mfu_doubt(metrics: Mapping[str, Reading]) -> str | None:
    """Return once that MFU and all that rests on the same step time is not exact; None where it is measured. The metric's card says how it was inferred, on hover."""
    mfu = metrics["mfu"]
    if mfu.value is None or mfu.trust == "ok":
        return None
    return "The step time behind these numbers is inferred, not measured."


def factor_title(metrics: Mapping[str, Reading], factors: Sequence[str]) -> str:
    """Return the finding of the chart of MFU's factors: what each leaves of the peak, one after the other."""
    left, shown = 1.0, [fmt.share(1.0)]
    for key in factors:
        left *= metrics[key].value or 0.0
        shown.append(fmt.share(left))
    return f"What is left of the peak: {' → '.join(shown)}"
