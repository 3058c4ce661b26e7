"""The batch is too small for this GPU.

What it checks
    A launch-bound step on a GPU with mostly free memory. The batch must go through the model at once, and the loader must keep up.
Why it costs time
    The host needs the same time to launch a step for any batch size. A larger batch gives each launch more work.
What to do
    Raise the batch size until the GPU is busy or its memory is in use, and tune the learning rate again. Or accumulate less.
When it is wrong
    The optimization needs this batch size, or you need low latency. Then launch fewer kernels (CUDA graph, torch.compile).
References
    https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sawtooth.analysis.findings.batch.code import larger_batch_code
from sawtooth.analysis.findings.batch.launches import launch_limited_batch
from sawtooth.analysis.findings.batch.step import NOT_PREDICTED, batch_sentence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import LARGER_BATCH
from sawtooth.analysis.run.model import Action, Explains
from sawtooth.analysis.units import in_memory, in_words


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield an info finding if launches cost a relevant share and much of the memory is unused."""
    larger = launch_limited_batch(context)
    if larger is None or context.step_ms is None:
        return
    trains = len(context.launches.launched_in_backward()) > 0
    training_risk = "A larger batch changes the optimization, and may need another learning rate"
    risk = training_risk if trains else "Each request waits for the rest of its batch"
    batch_factor = 2 ** max(int(math.log2(larger.rate)), 1)
    yield Evidence(
        Advice(
            f"Launching a step takes the CPU {in_words(context.step_ms)}; the GPU needs {in_words(larger.gpu_ms)} and has {in_memory(larger.free_bytes)} free",
            Action("Raise", "the batch size", f": {larger.gain_clause}."),
            note=f"A step takes the same time for more samples. {batch_sentence(larger.predictions) or NOT_PREDICTED}",
            risk=f"{risk}. A larger batch takes more memory.",
            changes=larger_batch_code(context.run, batch_factor),
        ),
        severity="info",
        rows=[*(batch.row() for batch in larger.predictions), *context.gap_evidence("launch_bound")],
        samples_per_second_times=larger.rate,
        cost_ms=context.lost_ms("launch_bound"),
    )


RULE = Rule(
    "small-batch",
    measure,
    reads=TRACE_SOURCES | {"allocations", "telemetry"},
    explains=Explains(("launch_bound", "python_host"), topics=frozenset({"memory"})),
    requires=("steps",),
    threshold=LARGER_BATCH,
)
