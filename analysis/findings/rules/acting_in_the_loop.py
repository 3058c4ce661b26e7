"""A policy acts one observation after the other, and the environment waits for each action.

What it checks
    Passes of a policy in a reinforcement learning loop: an observation goes to the GPU, a small forward pass follows, and the
    host reads the action. No backward pass and no loss lies between. The cost is the time that the replay saves without these
    passes.
Why it costs time
    A pass over a few observations keeps the GPU busy for microseconds. Launches, reads of actions and the environment's Python
    code take most of the time. No CUDA graph can contain the reads, because the environment needs each action.
What to do
    Run more environments at once, so that one pass serves all of them. Run the policy on the CPU while it is small. A CUDA
    graph only helps the update.
When it is wrong
    The environment takes most of the time. Then make the environment faster.
References
    https://gymnasium.farama.org/api/vector/ and https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.acting import ActingPasses, acting_passes, share_outside_acting
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.replay.edits import WithoutCalls, WithoutHostCause
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_number, in_words, percent

CHANGES = (
    CodeChange(
        "PyTorch",
        "envs = gymnasium.vector.SyncVectorEnv([make_env] * 4)",
        "envs = gymnasium.vector.AsyncVectorEnv([make_env] * 64)   # one pass of the policy for 64 environments",
    ),
    CodeChange(
        "PyTorch",
        "action = policy(torch.as_tensor(observation, device='cuda')).argmax(-1).cpu().numpy()",
        "acting = copy.deepcopy(policy).cpu()   # again after each round of updates\n"
        "with torch.inference_mode():\n    action = acting(torch.as_tensor(observation)).argmax(-1).numpy()",
    ),
)
MORE_ENVIRONMENTS = Action(
    "Act",
    "in more environments at once",
    ": one pass of the policy then serves all environments. While the policy is this small, also try it on the CPU. Capture a CUDA graph of the update only.",
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if acting takes a relevant share of the step."""
    acts = acting_passes(context)
    if acts is None or context.step_ms is None:
        return
    calls = tuple(sorted(acts.calls))
    updates_ms = context.predict_ms([WithoutCalls(calls), WithoutHostCause("host_compute", calls=calls)])
    if updates_ms is None:
        return
    acting_ms = context.step_ms - updates_ms
    # The environment's Python code takes the same time, wherever the actions are computed.
    python_ms = context.lost_ms("python_host") * (1 - share_outside_acting(context, "python_host"))
    yield Evidence(
        Advice(
            f"Acting takes {in_words(acting_ms)} of each step ({percent(context.share(acting_ms))}): {_how_often(acts)}, each with "
            f"{in_number(len(acts.ops) / acts.passes, 'GPU operation')}",
            MORE_ENVIRONMENTS,
            note="Not predicted, because each step then contains more samples. The gain is at most the time of the policy's launches, copies and waits. "
            f"Python code between the passes, mostly the environment's, still takes {in_words(python_ms)} of each step.",
            risk="More environments make each round's data larger and older, so the learning rate and the number of updates must change.",
            changes=CHANGES,
        ),
        lost_ms=max(acting_ms - python_ms, 0.0),
        cost_ms=acting_ms,
        severity_by_cost=True,
        rows=[
            {"name": "acting", "start_ns": start, "end_ns": end, "ms": (end - start) / 1e6}
            for start, end in sorted(acts.spans, key=lambda span: span[0] - span[1])[:5]
        ],
        spans=acts.spans,
    )


def _how_often(acts: ActingPasses) -> str:
    """Return the number of passes between two updates, in words."""
    passes = round(acts.per_round)
    return "one policy pass per update" if passes == 1 else f"{passes} policy passes per update"


RULE = Rule(
    "acting-in-the-loop",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("launch_bound", "python_host", "host_sync"), called="a policy that acts step by step"),
    requires=("steps",),
    threshold=OTHER_CODE,
)
