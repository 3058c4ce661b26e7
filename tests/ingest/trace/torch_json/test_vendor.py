"""Tests of the devices' vendor. Only vendors with CUDA graphs are checked for slow launches."""

from __future__ import annotations

import pytest

from tests.incomplete.claims import analysed
from tests.support.chrome_trace import matmul_loop


@pytest.mark.parametrize(
    ("call", "vendor", "checked"),
    [("runFunction - job_prep_and_submit_for_execution", "meta", False), ("hipLaunchKernel", "amd", True), ("cudaLaunchKernel", "nvidia", True)],
)  # fmt: skip
def test_calls_name_the_vendor_and_cuda_graphs_are_for_gpus(call: str, vendor: str, checked: bool) -> None:
    trace = matmul_loop(6)
    trace.top = {}
    for event in trace.events:
        if event["cat"] == "cuda_runtime":
            event["name"] = call
    result = analysed([("t.json", trace.json())])
    assert result is not None and result.lead is not None
    assert result.lead.trace.vendor == vendor
    assert ("launch-bound" not in {rule.rule for rule in result.not_checked}) == checked
