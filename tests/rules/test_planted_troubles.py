"""The first finding names what was planted, and healthy runs are left in peace."""

import pytest

from tests.rules.findings_of import result_of as analysed

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
    "collected_garbage": "python-between-operators",
    "checkpointing_io": "checkpoint-in-the-loop",
    "empty_cache": "allocator-churn",
    "recompiles": "recompilation",
}
HEALTHY = ("gpt", "gpt_small", "gpt_no_reads", "mlp_graph", "resnet_fixed", "loader_workers", "copy_prefetched")


@pytest.mark.parametrize(("name", "rule"), PLANTED.items())
def test_the_first_finding_names_the_planted_trouble(name: str, rule: str) -> None:
    findings = analysed(name).findings
    assert findings and findings[0].rule == rule, [f.title for f in findings]
    assert findings[0].severity in ("critical", "warning")
    assert findings[0].evidence and findings[0].changes and findings[0].risk
    assert any(row.get("start_ns") is not None for row in findings[0].evidence)


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_is_left_in_peace(name: str) -> None:
    assert [f.title for f in analysed(name).findings if f.severity != "info"] == []


def test_a_wait_is_named_by_the_users_own_line() -> None:
    finding = analysed("gpt_reads_stack").findings[0]
    assert ".py(" in finding.title and "<built-in" not in finding.title and "torch/" not in finding.title
