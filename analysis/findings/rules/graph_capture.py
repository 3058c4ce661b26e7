"""The profiled steps capture a CUDA graph.

What it checks
    Calls that begin, end or instantiate a capture (``cudaStreamBeginCapture``, ``cudaGraphInstantiate``) in the counted
    steps.
Why it costs time
    Launches recorded during a capture are not executed, so the GPU is idle and the profiled step is not typical. A capture
    usually happens once. A loop that captures again for each new input shape pays each time.
What to do
    Profile after the warm-up: use ``schedule(skip_first=…)`` until graphs are captured. If captures repeat, pad shapes to a
    few sizes.
When it is wrong
    The loop captures a graph in every step on purpose.
References
    https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import Advice, Evidence, Rule
from sawtooth.analysis.findings.queries.calls import calls
from sawtooth.analysis.run.model import Action, CodeChange, Explains

# A step that only ends a capture makes no finding, but the end is shown as evidence.
CAPTURE_CALLS = r"^(cuda|hip)(StreamBeginCapture|StreamEndCapture|GraphInstantiate)"

CHANGES = (
    CodeChange(
        "PyTorch",
        "profile(schedule=schedule(wait=1, warmup=1, active=3))",
        "profile(schedule=schedule(skip_first=20, wait=1, warmup=1, active=3))   # graphs are captured by then",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if a CUDA graph is captured in a counted step."""
    events = calls(context, CAPTURE_CALLS)
    starts = events.where(events.frame["name"].str.contains("Begin|Instantiate"))
    steps_with_capture = starts.frame["step"].nunique()
    if not steps_with_capture:
        return
    yield Evidence(
        Advice(
            f"A CUDA graph is captured in {steps_with_capture} of {events.steps} profiled steps: work launched during a capture does not run",
            Action(
                "Profile",
                "later",
                ", after the graphs have been captured. If the loop keeps capturing, pad shapes to a few sizes.",
                records_again=True,
            ),
            note="No prediction: every recorded step contains a capture."
            if steps_with_capture == events.steps
            else "No prediction: the other profiled steps show the step time without a capture.",
            risk="None: only the profile changes.",
            changes=CHANGES,
        ),
        confidence="high",
        severity="warning",
        rows=events.rows(),
        spans=events.spans(),
    )


RULE = Rule(
    "graph-capture",
    measure,
    reads=frozenset({"host_records", "steps"}),
    explains=Explains(topics=frozenset({"captures_graph"})),
    requires=("steps",),
)
