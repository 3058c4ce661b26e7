"""Two profiles of one training at different steps, and why the later steps are slower."""

from __future__ import annotations

from fractions import Fraction

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.app import format as fmt
from sawtooth.app.theme import colour_of

STEP = "step"  # The setting that distinguishes the runs of `sawtooth run --every`.
MIN_MAIN_SHARE = 0.5  # Share of the change. A part with less is not its main reason.
USUAL_REASONS = {  # Why a part of the step grows during a training, by cause or owner.
    "allocator": "memory is allocated and freed again and again, for example by torch.cuda.empty_cache(), or because little is free.",
    "data_wait": "the loader falls behind, for example because a cache is full, or because files are stored elsewhere.",
    "python_host": "Python takes longer, for example because lists or logs grow, or because garbage is collected.",
    "host_compute": "operators on the CPU take longer, for example because another program takes its cores.",
    "launch_bound": "the host launches later, for example because another program takes its cores.",
    "host_sync": "the host waits for the GPU more often.",
    "compilation": "code is compiled again, for example because shapes change.",
    "tensor_core_compute": "kernels take longer, for example because of larger shapes or lower clocks.",
    "other_compute": "kernels take longer, for example because of larger shapes or lower clocks.",
}


def step_names(comparison: Comparison) -> tuple[str, str] | None:
    """Return the sides' names by their steps, such as "step 1,000" and "step 40,000".

    It is None for different trainings.
    """
    sides = []
    for side in (comparison.a, comparison.b):
        manifest = side.runs[0].manifest
        step = manifest.settings.get(STEP, "")
        if len(side.runs) != 1 or not step.isdecimal():
            return None
        sides.append((manifest.notes, int(step)))
    (notes_a, step_a), (notes_b, step_b) = sides
    return (f"step {step_a:,}", f"step {step_b:,}") if notes_a == notes_b and step_a != step_b else None


def why_longer(comparison: Comparison) -> str | None:
    """Return which part makes the later step longer, and the usual reason.

    None if the later step is not certain to be longer, or if no part has most of the change.
    """
    change = comparison.best.change_ms
    if comparison.verdict.word != "slower" or not change or step_names(comparison) is None or not comparison.waterfall_run:
        return None
    part = max(comparison.waterfall_run, key=lambda row: row.change_ms)
    if part.change_ms < MIN_MAIN_SHARE * Fraction(change):
        return None
    label = colour_of(part.owner, part.cause).label
    reason = USUAL_REASONS.get(part.cause or part.owner, "")
    if finding := next(
        (new_finding for new_finding in comparison.findings_new if part.cause in new_finding.explains.causes), None
    ):
        reason = f"{finding.title}. {finding.fix}"
    amount = fmt.signed(fmt.duration_ms(float(part.change_ms)), 1.0)
    return f"Most of the change is {label}, {amount} per step{': ' + reason if reason else '.'}"
