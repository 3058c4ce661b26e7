"""Rules about precision, tensor cores, fusion, layout and the optimizer, on recordings of a real GPU.

Each fires where its trouble was planted, stays quiet on the recording that differs in that one thing, and its message is as committed.
The predicted step time is held against the stopwatch of the recording after the change.
"""

import json
from pathlib import Path

import pytest

from tests.rules.findings_of import RECORDINGS, finding, result_of, together

SNAPSHOTS = Path(__file__).with_name("precision_messages.json")
# rule, recording with the trouble, recording without it
CASES = [
    ("fp32-products", "gpt_fp32", "gpt_small"),
    ("fp32-products", "gpt_tf32", "gpt_small"),
    ("tf32-off", "gpt_fp32", "gpt_tf32"),
    ("misaligned-dimensions", "mlp_4093", "mlp_4096"),
    ("misaligned-dimensions", "vocab_50257", "vocab_50304"),
    ("unfused-attention", "attention_math", "attention_sdpa"),
    ("layout-conversions", "channels_first", "channels_last"),
    ("optimizer-not-fused", "adam_single", "adam_fused"),
    ("optimizer-foreach", "adam_foreach", "gpt_small"),
    ("unfused-norm", "norm_by_hand", "gpt_small"),
    ("unfused-activation", "norm_by_hand", "gpt_small"),
    ("elementwise-chains", "gpt_small", "gpt_compiled"),
    ("recomputation", "recompute", "gpt_small"),
    ("casts", "gpt_small", "mlp_4096"),
    ("fp8-products", "mlp_4096", "mm_fp8"),
]
# What the measured after-run says of the prediction: rule, before, after, largest relative error. The reasons stand in the rules' notes.
PREDICTIONS = [
    ("fp32-products", "gpt_fp32", "gpt_small", 0.15),
    ("fp32-products", "gpt_tf32", "gpt_small", 0.10),
    ("tf32-off", "gpt_fp32", "gpt_tf32", 0.20),
    ("misaligned-dimensions", "mlp_4093", "mlp_4096", 0.15),
    ("misaligned-dimensions", "vocab_50257", "vocab_50304", 0.15),
    ("unfused-attention", "attention_math", "attention_sdpa", 0.20),
    ("layout-conversions", "channels_first", "channels_last", 0.25),
    ("optimizer-not-fused", "adam_single", "adam_fused", 0.30),
]


@pytest.mark.parametrize(("rule", "fires", "quiet"), CASES)
def test_rule_fires_where_planted_and_is_quiet_beside(rule, fires, quiet):
    assert finding(fires, rule) is not None
    assert finding(quiet, rule) is None


@pytest.mark.parametrize(("rule", "fires", "quiet"), CASES)
def test_message_is_the_committed_one(rule, fires, quiet):
    found = finding(fires, rule)
    messages = json.loads(SNAPSHOTS.read_text(encoding="utf-8"))
    assert messages[f"{rule} on {fires}"] == {"title": found.title, "fix": found.fix, "severity": found.severity}
    assert found.changes and found.risk and found.prediction_note
    assert all(row["end_ns"] > row["start_ns"] for row in found.evidence)


@pytest.mark.parametrize(("rule", "before", "after", "within"), PREDICTIONS)
def test_prediction_against_the_measured_after_run(rule, before, after, within):
    measured_ms = json.loads((RECORDINGS / after / "truth.json").read_text())["step_s_pipelined"] * 1e3
    assert finding(before, rule).predicted_step_ms == pytest.approx(measured_ms, rel=within)


def test_two_findings_of_one_change_are_predicted_together():
    measured_ms = json.loads((RECORDINGS / "gpt_small" / "truth.json").read_text())["step_s_pipelined"] * 1e3
    assert together("norm_by_hand", ("unfused-norm", "unfused-activation")) == pytest.approx(measured_ms, rel=0.10)


@pytest.mark.parametrize(
    "healthy", ["gpt_small", "mlp_4096", "channels_last", "attention_sdpa", "resnet_fixed", "gpt", "mm_fp8"]
)
def test_healthy_runs_get_no_warning_of_this_family(healthy):
    family = {rule for rule, _, _ in CASES}
    assert [f.title for f in result_of(healthy).findings if f.rule in family and f.severity != "info"] == []
