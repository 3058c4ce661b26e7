"""The profiled steps capture a CUDA graph.

What it checks
    Calls that begin, end or instantiate a capture (``cudaStreamBeginCapture``, ``cudaGraphInstantiate``) in the counted
    steps.
Why it costs time
    During a capture, launched work does not run, so the GPU is idle. The launches in the trace do not show how the run
    continues. A capture usually happens once. A loop that captures again every few steps (other shapes) pays for it each
    time.
What to do
    Profile after the warm-up: use ``schedule(skip_first=…)`` until graphs are captured. If captures repeat, pad shapes to a
    few sizes.
When it is wrong
    The loop captures in every step on purpose.
References
    https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import Advice, Evidence, Rule
from sawtooth.analysis.findings.queries.calls import calls
from sawtooth.analysis.run.model import Action, CodeChange, Explains

CAPTURES = r"^(cuda|hip)(StreamBeginCapture|StreamEndCapture|GraphInstantiate)"

CHANGES = (
    CodeChange(
        "PyTorch",
        "profile(schedule=schedule(wait=1, warmup=1, active=3))",
        "profile(schedule=schedule(skip_first=20, wait=1, warmup=1, active=3))   # graphs are captured by then",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if a CUDA graph is captured in a counted step."""
    captures = calls(context, CAPTURES)
    begun = captures.where(captures.frame["name"].str.contains("Begin|Instantiate"))
    captured = begun.frame["step"].nunique()
    if not captured:
        return
    yield Evidence(
        Advice(
            f"A CUDA graph is captured in {captured} of {captures.steps} profiled steps: what is launched meanwhile does not run",
            Action(
                "Profile", "later", ", when graphs have been captured; pad shapes to a few sizes where a loop keeps capturing."
            ),
            note="Not predicted: steps without a capture were not recorded."
            if captured == captures.steps
            else "Not predicted: see the steps without a capture.",
            risk="None.",
            changes=CHANGES,
        ),
        confidence="high",
        severity="warning",
        rows=captures.rows(),
        places=captures.places(),
    )


RULE = Rule(
    "graph-capture",
    measure,
    reads=frozenset({"host_records", "steps"}),
    explains=Explains(topics=frozenset({"captures_graph"})),
    requires=("steps",),
)
