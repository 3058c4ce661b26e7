"""The first finding names what was planted, and healthy runs are left in peace."""

import json
from pathlib import Path

import pytest

from tests.rules.findings_of import BUNDLED, RECORDINGS
from tests.rules.findings_of import result_of as analysed

SNAPSHOTS = Path(__file__).with_name("planted_messages.json")
PLANTED = {
    "loader_inline": "data-loader-starves-gpu",
    "copy_pageable": "pageable-copies",
    "copy_pinned": "copies-not-overlapped",
    "gpt_reads": "host-waits-for-gpu",
    "gpt_reads_stack": "host-waits-for-gpu",
    "boolean_mask": "boolean-mask-waits",
    "mask_from_cpu": "tensors-made-on-cpu",
    "mlp_eager": "launch-bound",
    "python_host": "python-between-operators",
    "collected_garbage": "garbage-collection",
    "ddp_straggler": "straggling-rank",
    "resnet_starved": "data-loader-starves-gpu",
    "small_batch": "launch-bound",
    "checkpoint_unseen": "profile-not-representative",
    "eval_with_grad": "evaluation-records-graph",
    "memory_creep": "memory-creep",
    "checkpointing_io": "checkpoint-in-the-loop",
    "empty_cache": "allocator-churn",
    "recompiles": "recompilation",
    "loader_few_workers": "data-loader-starves-gpu",
    "loader_keeps_workers": "data-loader-starves-gpu",
    "loader_restarts": "workers-start-again",
    "slow_every_fourth": "python-between-operators",
    "conv_searches": "convolution-search",
    "reduced_after": "exposed-communication",
}
# Further findings that stand beside the first, or cost no step time: rule, recording, severity.
BESIDE = [
    ("periodic-stalls", "slow_every_fourth", "warning"),
    ("batches-in-bursts", "loader_few_workers", "info"),
    ("optimizer-share", "optimizer_heavy", "info"),
    ("memory-near-limit", "memory_full", "warning"),
    ("small-collectives", "reduced_after", "info"),
]
HEALTHY = ("gpt", "gpt_small", "gpt_no_reads", "mlp_graph", "resnet_fixed", "loader_workers", "copy_prefetched")


@pytest.mark.parametrize(("name", "rule"), PLANTED.items())
def test_the_first_finding_names_the_planted_trouble(name: str, rule: str) -> None:
    findings = analysed(name).findings
    assert findings and findings[0].rule == rule, [f.title for f in findings]
    assert findings[0].severity in ("critical", "warning")
    assert findings[0].evidence and findings[0].changes and findings[0].risk
    assert any(row.get("start_ns") is not None for row in findings[0].evidence)


@pytest.mark.parametrize(("name", "rule"), PLANTED.items())
def test_the_message_is_the_committed_one(name: str, rule: str) -> None:
    found = analysed(name).findings[0]
    messages = json.loads(SNAPSHOTS.read_text(encoding="utf-8"))
    assert messages[f"{rule} on {name}"] == {"title": found.title, "fix": found.fix, "severity": found.severity}


@pytest.mark.parametrize(("rule", "name", "severity"), BESIDE)
def test_a_finding_beside_the_first_has_the_committed_message(rule: str, name: str, severity: str) -> None:
    found = next(f for f in analysed(name).findings if f.rule == rule)
    messages = json.loads(SNAPSHOTS.read_text(encoding="utf-8"))
    assert messages[f"{rule} on {name}"] == {"title": found.title, "fix": found.fix, "severity": severity}
    assert found.severity == severity
    assert found.evidence and found.changes and found.risk and found.prediction_note


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_is_left_in_peace(name: str) -> None:
    assert [f.title for f in analysed(name).findings if f.severity != "info"] == []


def test_a_wait_is_named_by_the_users_own_line() -> None:
    finding = analysed("gpt_reads_stack").findings[0]
    assert ".py(" in finding.title and "<built-in" not in finding.title and "torch/" not in finding.title


# rule, a recording that differs in what the rule looks for
NEAR_MISSES = [
    ("data-loader-starves-gpu", "loader_workers"),
    ("pageable-copies", "copy_pinned"),
    ("copies-not-overlapped", "copy_prefetched"),
    ("host-waits-for-gpu", "gpt_no_reads"),
    ("boolean-mask-waits", "gpt_reads"),
    ("tensors-made-on-cpu", "mask_on_gpu"),
    ("launch-bound", "mlp_graph"),
    ("python-between-operators", "gpt_small"),
    ("garbage-collection", "gpt_reads_stack"),
    ("checkpoint-in-the-loop", "gpt_reads"),
    ("allocator-churn", "memory_creep"),
    ("recompilation", "gpt_compiled"),
    ("straggling-rank", "ddp_balanced"),
    ("evaluation-records-graph", "eval_without_grad"),
    ("memory-creep", "gpt_stack_memory"),
    ("profile-not-representative", "checkpointing_io"),
    ("small-batch", "gpt_small"),
    ("small-collectives", "ddp_balanced"),
    ("exposed-communication", "ddp_balanced"),
    ("memory-near-limit", "resnet_fixed"),
    ("thermal-slowdown", "mm_fp8"),
    ("workers-start-again", "loader_keeps_workers"),
    ("batches-in-bursts", "loader_workers"),
    ("batches-in-bursts", "resnet_starved"),  # every step waits: the workers are too slow, not uneven
    ("batches-in-bursts", "loader_restarts"),
    ("periodic-stalls", "gpt_small"),
    ("optimizer-share", "memory_full"),
    ("memory-near-limit", "optimizer_heavy"),
    ("small-collectives", "reduced_within"),
    ("prefetch-queue-hid-the-loader", "loader_workers"),
    ("prefetch-queue-hid-the-loader", "loader_few_workers"),  # the profile itself shows the wait
    ("prefetch-queue-hid-the-loader", "loader_keeps_workers"),
    ("convolution-search", "conv_searches_off"),
    ("convolution-search", "channels_first"),
    ("launch-bound", "conv_searches"),
    ("launch-bound", "gpt_compiled"),  # telemetry sees no idle time in it
    ("small-batch", "conv_searches"),
]


@pytest.mark.parametrize(("rule", "name"), NEAR_MISSES)
def test_a_near_miss_stays_quiet(rule: str, name: str) -> None:
    assert [f.title for f in analysed(name).findings if f.rule == rule] == []


# before, after, largest relative error of the first finding's prediction against the stopwatch of the run after the change
MEASURED = [
    ("checkpointing_io", "gpt_small", 0.15),
    ("collected_garbage", "gpt_small", 0.15),
    ("python_host", "gpt_small", 0.10),
    ("empty_cache", "gpt_small", 0.10),
    ("copy_pageable", "copy_pinned", 0.05),
    ("copy_pinned", "copy_prefetched", 0.05),
    ("gpt_reads", "gpt_no_reads", 0.10),
    ("mask_from_cpu", "mask_on_gpu", 0.15),
    ("resnet_starved", "resnet_fixed", 0.05),
    ("ddp_straggler", "ddp_balanced", 0.15),
    ("mlp_eager", "mlp_graph", 0.15),
    ("loader_inline", "loader_workers", 0.30),
    ("loader_few_workers", "loader_workers", 0.05),
    ("slow_every_fourth", "gpt_small", 0.05),
]


@pytest.mark.parametrize(("before", "after", "within"), MEASURED)
def test_the_prediction_against_the_measured_after_run(before: str, after: str, within: float) -> None:
    truth = json.loads(
        next(base / after / "truth.json" for base in (RECORDINGS, BUNDLED) if (base / after).is_dir()).read_text()
    )
    predicted = analysed(before).findings[0].predicted_step_ms
    assert predicted == pytest.approx(truth["step_s_pipelined"] * 1e3, rel=within)
