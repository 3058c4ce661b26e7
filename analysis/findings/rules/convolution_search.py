"""cuDNN searches for convolution algorithms inside the run.

What it checks
    Convolutions of the counted steps that launch many kernels, and in which the host waits for the GPU. In such a convolution,
    cuDNN tries algorithms one after another and times each. Other convolutions launch one to four kernels.
Why it costs time
    With ``cudnn.benchmark``, the search runs for every new input shape. It waits for the GPU after each trial and takes
    hundreds of milliseconds in total.
What to do
    Keep shapes the same (crop, pad, drop the last partial batch), or turn the search off: ``torch.backends.cudnn.benchmark =
    False``.
When it is wrong
    The profiled steps are the first ones of the run, in which cuDNN searches once for each shape. Profile later steps. No
    rule advises turning the search on, because a trace shows only the times of algorithms that were tried. With cuDNN 9, the
    search changed a ResNet step by 0.1 % on an H200, in bf16 channels-last and in TF32 channels-first.
References
    https://docs.pytorch.org/docs/stable/backends.html#torch.backends.cudnn.torch.backends.cudnn.benchmark
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
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
    """Yield a finding if convolutions that search cost a relevant share of the step."""
    searches = searching_convolutions(context)
    search_ms = context.scaled_to_run(searches.ms_per_step)
    if not searches.count_per_step or context.is_negligible(search_ms):
        return
    waits_ms = context.lost_ms("launch_bound", "host_sync", "allocator", "python_host", owner="idle")
    yield Evidence(
        Advice(
            f"cuDNN searches for algorithms in {in_number(searches.count_per_step, 'convolution')} per step, which takes the host {in_words(search_ms)}",
            Action(
                "Keep",
                "input shapes the same from step to step",
                ", or turn the search off: torch.backends.cudnn.benchmark = False.",
            ),
            note="Not predicted: without the search, cuDNN still plans each convolution for every new shape, in about a millisecond.",
            risk="Without the search, a heuristic chooses the algorithms. For a few shapes, its choice is slower.",
            changes=CHANGES,
        ),
        lost_ms=min(search_ms, waits_ms),  # A part of the search overlaps with GPU work, so it is no lost time.
        cost_ms=search_ms,
        confidence="high",
        rows=searches.rows(),
        spans=searches.spans(),
    )


RULE = Rule(
    "convolution-search",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("launch_bound",), called="cuDNN's search for convolution algorithms"),
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
)
