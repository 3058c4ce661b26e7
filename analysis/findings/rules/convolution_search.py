"""cuDNN searches for convolution algorithms inside the run.

What it checks
    Convolutions of the counted steps that launch many kernels where one operator needs one to four, and inside which the host waits for the GPU:
    cuDNN tries algorithms, one after another, and times each.
Why it costs time
    With ``cudnn.benchmark`` the search runs for every input shape that is new. It waits for the GPU after each trial, hundreds of milliseconds in all.
What to do
    Keep shapes the same (crop, pad, drop the last partial batch), or turn the search off: ``torch.backends.cudnn.benchmark = False``.
When it is wrong
    The first steps of a run search once for each shape, and then never again: profile later ones.
    A convolution by Fourier transforms launches many kernels at every step, and waits for none: the rule is quiet.
    The other direction, switching the search on, has no rule: a trace cannot show what an algorithm that was not tried would take, and with
    cuDNN 9 it changed a step of a ResNet by 0.1 % on an H200, in bf16 channels-last as in TF32 channels-first.
References
    https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cudnn.torch.backends.cudnn.benchmark
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.convolution_searches import searching_convolutions
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_number, in_words

CHANGES = (
    CodeChange(
        "PyTorch", "torch.backends.cudnn.benchmark = True", "torch.backends.cudnn.benchmark = False   # image sizes vary"
    ),
    CodeChange(
        "PyTorch",
        "DataLoader(images_of_any_size, …)",
        "DataLoader(images_padded_to_a_few_sizes, …, drop_last=True)",
    ),
    CodeChange("Lightning", "Trainer(benchmark=True)", "Trainer(benchmark=False)"),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding when convolutions that search cost a part that is worth naming of the step."""
    searches = searching_convolutions(context)
    if not searches.count or context.is_trifle(searches.ms):
        return
    yield Evidence(
        Advice(
            f"cuDNN searches for algorithms in {in_number(searches.count, 'convolution')} a step, which takes the host {in_words(searches.ms)}",
            Action(
                "Keep",
                "input shapes the same from step to step",
                ", or turn the search off: torch.backends.cudnn.benchmark = False.",
            ),
            note="Not predicted: without the search cuDNN still plans every new shape, about a millisecond a convolution.",
            risk="Without the search cuDNN chooses by a heuristic, which a few shapes are slower with.",
            changes=CHANGES,
        ),
        lost_ms=_of_run(context, searches.ms),
        cost_ms=searches.ms,
        confidence="high",
        rows=searches.rows(),
        places=searches.places(),
    )


def _of_run(context: RuleContext, ms: float) -> float:
    """Return what ``ms`` of a profiled step is of the run's own: the rest of the step stays, however much quicker it is without the profiler."""
    profiled, run = context.rank.best.profiled.value, context.step_ms
    return ms * min(run / profiled, 1.0) if profiled and run else ms


RULE = Rule(
    "convolution-search",
    measure,
    reads=OF_TRACE,
    explains=Explains(("launch_bound",), called="cuDNN's search for convolution algorithms"),
    requires=("steps",),
    bar=FEW_LINES,
)
