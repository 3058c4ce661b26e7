"""DistributedDataParallel searches for unused parameters in each step.

What it checks
    The event ``torch.distributed.ddp.reducer::search_unused_parameters``, which ``find_unused_parameters=True`` leaves in each
    forward pass.
Why it costs time
    The host walks through the whole autograd graph before each backward pass, and the ranks reduce a map of the used
    parameters. If a parameter is unused, the host also waits for this map, which no CUDA graph can contain.
What to do
    Leave the argument out if each parameter gets a gradient in each step. PyTorch logs a warning if the search finds nothing in
    the first step. If the same parameters are unused in all steps, ``static_graph=True`` searches only once.
When it is wrong
    The unused parameters change from step to step, such as the parameters of experts or of skipped layers.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import WARNING_SHARE
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.replay.edits import AsGraph
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_words

SEARCH_EVENT = "torch.distributed.ddp.reducer::search_unused_parameters"
_SEARCHES = """
SELECT o.start_ns, o.start_ns + o.dur_ns AS end_ns FROM named_cpu_ops o
JOIN steps t ON t.device = ? AND t.counted AND o.start_ns >= t.host_start_ns AND o.start_ns < t.host_end_ns
WHERE o.name = ? ORDER BY o.dur_ns DESC, o.start_ns"""
MAX_ROWS = 5  # Of evidence.

CHANGES = (
    CodeChange(
        "PyTorch",
        "model = DistributedDataParallel(model, find_unused_parameters=True)",
        "model = DistributedDataParallel(model)   # static_graph=True if the same parameters are always unused",
    ),
    CodeChange("Lightning", 'Trainer(strategy="ddp_find_unused_parameters_true")', 'Trainer(strategy="ddp")'),
    CodeChange(
        "Transformers",
        "TrainingArguments(..., ddp_find_unused_parameters=True)",
        "TrainingArguments(..., ddp_find_unused_parameters=False)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if counted steps contain the search, a warning if a CUDA graph would gain much."""
    if not context.recording.named(f"^{SEARCH_EVENT}$"):
        return
    searches = context.recording.rows(_SEARCHES, [context.rank.device, SEARCH_EVENT])
    if not searches:
        return
    search_ms = sum(end - start for start, end in searches) / 1e6 / max(len(context.rank.counted), 1)
    yield Evidence(
        Advice(
            f"DistributedDataParallel searches for unused parameters in each step: {in_words(search_ms)} of the host's time",
            Action(
                "Turn",
                "find_unused_parameters off",
                " if each parameter gets a gradient in each step. If the same parameters are always unused, static_graph=True searches only once.",
            ),
            note="Not predicted: the search costs the step only the time in which the GPU waits for the host.",
            risk="If a parameter gets no gradient in a step, DistributedDataParallel stops the next step with an error.",
            changes=CHANGES,
        ),
        lost_ms=min(search_ms, context.lost_ms("launch_bound")),
        stated_ms=search_ms,
        severity="warning" if _would_graph_gain(context) else None,
        at_most="warning",
        confidence="high",
        rows=[{"name": SEARCH_EVENT, "start_ns": int(start), "end_ns": int(end)} for start, end in searches[:MAX_ROWS]],
    )


def _would_graph_gain(context: RuleContext) -> bool:
    """Return whether a step launched as one CUDA graph gains at least WARNING_SHARE, by the replay."""
    graph_ms = context.predict_ms([AsGraph()])
    return graph_ms is not None and context.share((context.step_ms or graph_ms) - graph_ms) >= WARNING_SHARE


RULE = Rule(
    "unused-parameter-search",
    measure,
    reads=TRACE_SOURCES,
    requires=("steps",),
)
