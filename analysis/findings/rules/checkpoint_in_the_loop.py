"""A checkpoint is written inside the loop.

What it checks
    Steps that copy many tensors to host memory, or at least two large tensors to pageable memory. In a run without GPU work, the
    rule uses the recorded time of ``torch.save`` between steps.
Why it costs time
    ``torch.save`` copies every parameter with a separate wait, and then writes the file. Meanwhile the GPU has no work.
What to do
    Save less often. Or copy everything to host memory at once, and write the file in a thread or process
    (``torch.distributed.checkpoint.async_save``).
When it is wrong
    The copies have another purpose, such as a reference model or statistics of all weights. Without stacks, these look like a
    checkpoint.
References
    https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import severity_of
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Judgement, Rule, finding_from
from sawtooth.analysis.findings.policy import ONE_LINE_TO_CHANGE
from sawtooth.analysis.findings.queries.copies import (
    FEWER_CHECKPOINTS_RISK,
    SAVE_ASYNC,
    SAVE_LESS,
    checkpoint_calls,
    checkpoint_copies,
)
from sawtooth.analysis.replay.edits import Edit, WithoutCalls, WithoutHostCause
from sawtooth.analysis.run.model import CodeChange, Explains, Finding, RunResult
from sawtooth.analysis.units import in_bytes, in_words

CHANGES = (
    SAVE_ASYNC,
    CodeChange("Lightning", "ModelCheckpoint(every_n_train_steps=2)", "ModelCheckpoint(every_n_train_steps=1000)"),
    CodeChange("Transformers", "TrainingArguments(save_steps=2)", "TrainingArguments(save_steps=1000)"),
)
LESS_OFTEN = CodeChange(
    "PyTorch",
    'if step % 2 == 0:\n    torch.save(state, f"{path}/state.pt")',
    'if step % 1000 == 0:\n    torch.save(state, f"{path}/state.pt")',
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if copying the state to the host costs a relevant share of the steady steps."""
    state_copies = checkpoint_copies(context)
    if not len(state_copies.frame):
        return
    first, last = int(state_copies.frame["start_ns"].min()), int(state_copies.frame["end_ns"].max())
    calls_after_copies = context.recording.rows(
        "SELECT DISTINCT o.call_id FROM gaps g JOIN gpu_ops o ON o.gpu_op_id = g.next_gpu_op_id "
        "WHERE g.device = ? AND g.cause = 'python_host' AND g.end_ns > ? AND g.start_ns < ? + 1000000000 AND g.end_ns - g.start_ns > 200000 AND o.call_id IS NOT NULL",
        [context.rank.device, first, last],
    )
    edits: list[Edit] = [
        WithoutHostCause("python_host", calls=tuple(sorted(int(call) for (call,) in calls_after_copies))),
        WithoutCalls(checkpoint_calls(context)),
    ]
    lost_ms = context.lost_ms("host_sync") + context.lost_ms("python_host")
    if context.is_negligible(lost_ms):
        return
    steps_with_copies = state_copies.frame["step"].nunique()
    bytes_per_checkpoint = float(state_copies.frame["bytes"].fillna(0).sum()) / max(steps_with_copies, 1)
    yield Evidence(
        Advice(
            f"{in_bytes(bytes_per_checkpoint)} of tensors are copied to the host in {steps_with_copies} of {state_copies.steps} steps, as a checkpoint does: {in_words(lost_ms)} of each step on average",
            SAVE_LESS,
            note="Predicted by the replay without the copies and the host's work around them.",
            risk=FEWER_CHECKPOINTS_RISK,
            changes=CHANGES,
        ),
        lost_ms=lost_ms,
        cost_ms=lost_ms,
        edits=edits,
        rows=state_copies.rows(),
        spans=state_copies.spans(),
    )


def check_host(result: RunResult) -> Iterator[Finding]:
    """Yield a finding if checkpoints between steps take a relevant share of a run without GPU work."""
    host = result.host
    saving_ms = dict(host.parts.apart_ms).get("checkpoint", 0.0) if host is not None and host.parts is not None else 0.0
    if host is None or not host.steps or saving_ms < ONE_LINE_TO_CHANGE.share * host.total_ms:
        return
    advice = Advice(
        f"Checkpoints between training steps take {in_words(saving_ms)} of each {in_words(host.total_ms)} step on average",
        SAVE_LESS,
        note="This is the extra time of the steps in which the loop saves, compared with other steps.",
        risk=FEWER_CHECKPOINTS_RISK,
        changes=(LESS_OFTEN, *CHANGES[1:]),
    )
    judgement = Judgement(severity_of(saving_ms / host.total_ms), "medium", ceiling_ms_per_step=saving_ms)
    yield finding_from(RULE.slug, Evidence(advice), judgement, RULE.explains)


RULE = Rule(
    "checkpoint-in-the-loop",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("host_sync", "python_host"), called="checkpoints in the loop"),
    requires=("steps",),
    threshold=ONE_LINE_TO_CHANGE,
    host_check=check_host,
)
