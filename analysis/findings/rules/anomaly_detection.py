"""Autograd's anomaly detection is left on.

What it checks
    Tests for NaN that autograd itself makes after each of its nodes: ``aten::isnan``, ``aten::_is_any_true`` and the read of the result.
Why it costs time
    Each gradient is read once more, and the host waits for the answer before it launches the next node: the backward pass runs one
    kernel at a time. Stack traces kept for every operator of the forward pass slow the host besides.
What to do
    Remove ``torch.autograd.set_detect_anomaly(True)`` (Lightning: ``detect_anomaly``), or turn it on only to look for a NaN.
When it is wrong
    While a NaN is being looked for.
References
    https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.queries import lost_in_calls, nan_checks
from sawtooth.analysis.findings.rule import Rule, RuleInput, in_words
from sawtooth.analysis.findings.work import chosen, evidence_of, ms_per_step
from sawtooth.analysis.replay.edits import WithoutCalls
from sawtooth.analysis.run.model import CodeChange, Explains, Finding

WORTH_NAMING = 0.01  # nobody trains with it on purpose: one line to take out

CHANGES = (
    CodeChange("PyTorch", "torch.autograd.set_detect_anomaly(True)", "torch.autograd.set_detect_anomaly(False)"),
    CodeChange("Lightning", "Trainer(detect_anomaly=True)", "Trainer()"),
)


def check(given: RuleInput) -> Iterator[Finding]:
    """Yield a finding when autograd's tests for NaN and the waits for their answers cost more than WORTH_NAMING of the step."""
    tests = nan_checks(given)
    rows = chosen(given.work, lambda row: row.gpu_op_id in tests.operations)
    cost = ms_per_step(rows, given.work_steps) + lost_in_calls(given, "host_sync", tests.calls)
    if not tests.calls or given.share(cost) < WORTH_NAMING:
        return
    yield given.finding(
        RULE.slug,
        f"Anomaly detection is on: autograd tests every gradient for NaN and waits for the answer, {in_words(cost)} of each step",
        "Turn anomaly detection off outside the search for a NaN.",
        ceiling_ms=cost,
        edits=[WithoutCalls(tests.calls)],
        confidence="high",
        note="The tests, the host's launching of them and the waits for their answers removed from the replay; what the stack traces cost the host is not in it.",
        risk="A NaN is noticed later, in the loss.",
        changes=CHANGES,
        evidence=evidence_of(rows, given.work_steps),
    )


RULE = Rule("anomaly-detection", ("steps",), check, Explains(("host_sync",)))
