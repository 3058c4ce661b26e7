"""Evaluation records a graph for a backward pass that never runs.

What it checks
    Forward operators with autograd's sequence numbers in steps without any backward operator or optimizer.
Why it costs time
    Every activation stays in memory until the step ends, and recording takes some host time.
What to do
    Run the evaluation under ``torch.inference_mode()`` (or ``no_grad``).
When it is wrong
    The backward pass runs outside the profiled steps, for example after several accumulated batches.
References
    https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.inference_mode.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_number

LAYERS = r"^aten::(conv[123]d|linear|layer_norm|batch_norm|scaled_dot_product_attention|embedding)$"
# Share of the layers with a sequence number. Under no_grad, casts of weights have such numbers, but layers have none.
MIN_NUMBERED_SHARE = 0.5

CHANGES = (
    CodeChange(
        "PyTorch", "for x in loader:\n    model(x)", "with torch.inference_mode():\n    for x in loader:\n        model(x)"
    ),
    CodeChange("Lightning", "def predict(self): self(x)", "trainer.predict(model, loader)   # inference_mode=True by default"),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if the graph is recorded and never used."""
    if not context.recording.named(LAYERS):
        return
    rows = context.recording.rows(
        "WITH relevant AS (SELECT name_id, regexp_matches(name, ?) AS layer, regexp_matches(name, '^autograd::engine|Backward|^Optimizer') AS backward, "
        "name LIKE 'Optimizer%' AS optimizer FROM names WHERE layer OR backward) "
        "SELECT count(*) FILTER (o.layer), count(*) FILTER (o.sequence_number >= 0 AND o.layer), count(*) FILTER (o.backward) "
        "FROM (SELECT * FROM cpu_ops JOIN relevant n USING (name_id) WHERE kind = 'op' OR n.optimizer) o "
        "ASOF JOIN (SELECT * FROM steps WHERE device = ?) t ON o.start_ns >= t.host_start_ns WHERE t.counted AND o.start_ns < t.host_end_ns",
        [LAYERS, context.rank.device],
    )
    layers, numbered, backward = rows[0]
    if backward or not layers or numbered < MIN_NUMBERED_SHARE * layers:
        return
    steps = max(len(context.rank.counted), 1)
    yield Evidence(
        Advice(
            f"{in_number(numbered / steps, 'layer per step records', 'layers per step record')} an autograd graph, but no backward pass follows",
            Action(
                "Put",
                "the loop under torch.inference_mode()",
                ": PyTorch then frees activations at once. This leaves memory for a larger batch.",
            ),
            note="Not predicted: the change mainly saves memory. It saves time only if the host or memory is the limit.",
            risk="Tensors made in inference mode cannot be used in autograd later. Tensors made under no_grad can.",
            changes=CHANGES,
        ),
        severity="warning",
        rows=[
            {"name": str(s.name), "start_ns": int(s.start_ns), "end_ns": int(s.end_ns)}
            for s in context.rank.counted.head(5).itertuples()
        ],
    )


RULE = Rule(
    "evaluation-records-graph",
    measure,
    reads=TRACE_SOURCES,
    requires=("steps",),
)
