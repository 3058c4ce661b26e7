"""Steps run TorchScript.

What it checks
    Graphs of ``torch.jit.script`` or ``torch.jit.trace`` in the counted steps. TorchScript's interpreter records forward graphs,
    backward graphs and fused groups by fixed names.
Why it costs time
    TorchScript is no longer developed. Its fuser joins fewer operators than torch.compile. Each call of a scripted function in
    compiled code breaks the graph, because torch.compile cannot analyse such a function.
What to do
    Remove ``torch.jit.script`` and ``torch.jit.trace``, and compile the whole model. To serve without Python, use
    ``torch.export``.
When it is wrong
    Only one scripted function of a library runs, once per step. Its cost does not justify a change.
References
    https://docs.pytorch.org/docs/stable/jit.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.queries.calls import operators
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_times

GRAPH_NAMES = r"^(<forward op>|<backward op>|TensorExpr.*|prim::TensorExpr.*|prim::CudaFusionGroup.*|prim::DifferentiableGraph.*|torch::jit::.*)$"

CHANGES = (
    CodeChange(
        "PyTorch",
        "@torch.jit.script\ndef activation(x, y): ...",
        "def activation(x, y): ...   # plain Python\nmodel = torch.compile(model)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield an info finding if steps run graphs of TorchScript."""
    graphs = operators(context, GRAPH_NAMES)
    if not len(graphs.frame):
        return
    yield Evidence(
        Advice(
            f"TorchScript runs in each step: its interpreter is called {in_times(graphs.count_per_step)}",
            Action("Remove", "torch.jit.script and torch.jit.trace", ", and compile the model instead."),
            note="Not predicted: a trace does not show what torch.compile would gain over TorchScript.",
            risk="Compiling takes minutes at the start, and again when shapes change.",
            changes=CHANGES,
        ),
        confidence="high",
        severity="info",
        rows=graphs.rows(),
        spans=graphs.spans(),
    )


RULE = Rule(
    "scripted-code",
    measure,
    reads=TRACE_SOURCES,
    requires=("steps", "torch.compile"),
)
