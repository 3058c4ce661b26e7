"""Tests of predictions that change kernels: their intervals.

There is no prediction if the change may bring nothing.
"""

from dataclasses import replace

import pytest

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import judge
from sawtooth.analysis.findings.kernel_retiming import fused_optimizer_edit
from sawtooth.analysis.findings.model import Advice, Evidence
from sawtooth.analysis.knowledge.hardware import identify
from sawtooth.analysis.replay.edits import MoreLaunches, TimedOps
from sawtooth.analysis.run.model import Action
from sawtooth.analysis.run_analysis import whatif_of
from tests.support.findings_of import finding, library, result_of


@pytest.mark.parametrize(
    ("name", "rule", "after_ms"), [("gpt_fp32", "tf32-off", 15.43), ("mlp_4093", "misaligned-dimensions", 15.76)]
)
def test_the_interval_contains_the_prediction_and_the_measured_step(name: str, rule: str, after_ms: float) -> None:
    found = finding(name, rule)
    assert found is not None and found.predicted_low_ms and found.predicted_high_ms and found.predicted_step_ms
    assert found.predicted_low_ms < found.predicted_step_ms < found.predicted_high_ms
    assert found.predicted_low_ms < after_ms < found.predicted_high_ms
    (edit,) = found.edits
    assert isinstance(edit, TimedOps)
    assert all(low <= middle <= high for low, middle, high in zip(edit.low_ns, edit.dur_ns, edit.high_ns, strict=True))


def test_no_gain_is_predicted_if_the_kernels_may_not_be_faster() -> None:
    result = result_of("gpt_fp32")
    assert result.lead is not None
    found = finding("gpt_fp32", "tf32-off")
    assert found is not None and isinstance(found.edits[0], TimedOps)
    edit = TimedOps(
        found.edits[0].ops, found.edits[0].dur_ns, found.edits[0].low_ns, tuple(10 * ns for ns in found.edits[0].high_ns)
    )
    with library().open(result.lead.recording_id) as recording:
        step = RuleContext(result, result.lead, recording, whatif=whatif_of(recording, result.lead)).step
        advice = Advice("title", Action("Set", "a flag"))
        doubtful = judge(Evidence(advice, lost_ms=20.0, edits=[edit]), step, None)
        sure = judge(Evidence(advice, lost_ms=20.0, edits=[replace_high(edit)]), step, None)
    assert doubtful is not None and sure is not None
    assert doubtful.severity == "info"
    assert doubtful.predicted_step_ms is None and doubtful.predicted_high_ms is None
    assert "No gain is predicted" in doubtful.note
    assert sure.severity == "critical" and sure.predicted_step_ms is not None


def replace_high(edit: TimedOps) -> TimedOps:
    return TimedOps(edit.ops, edit.dur_ns, edit.low_ns, edit.dur_ns)


def test_only_optimizers_that_were_measured_are_predicted() -> None:
    gpu = identify("NVIDIA H200", None, None, None, None)
    edit = fused_optimizer_edit((1, 2), "AdamW", gpu)
    assert edit is not None and edit.low is not None and edit.high is not None
    assert 0.25 < edit.low < edit.factor < edit.high < 0.65
    assert fused_optimizer_edit((1,), "Lion", gpu) is None
    assert fused_optimizer_edit((1,), "AdamW", None) is None
    assert gpu is not None and fused_optimizer_edit((1,), "AdamW", replace(gpu, bandwidth_bytes_per_s=None)) is None


def test_the_casts_that_autocast_launches_are_in_the_predicted_step() -> None:
    # The bf16 recording of the pair launches 72 more casts a step (``aten::_to_copy``); those of the parameters and of
    # the norms are counted.
    found = finding("gpt_tf32", "fp32-products")
    assert found is not None
    launches = [sum(edit.launches) for edit in found.edits if isinstance(edit, MoreLaunches)]
    steps = 2  # counted
    assert len(launches) == 1 and 0.8 * 72 <= launches[0] / steps <= 72
