"""Tests of what a CUDA graph cannot contain: the search for unused parameters, and a scaler's reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.findings.rules.host_waits_for_gpu import READ_LATER, SCALER_TOO, USE_FUSED_OPTIMIZER
from tests.support.by_hand import ADDS, FLOAT, analysed, of_rule
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import finding, result_of

SCALE = "aten::_amp_foreach_non_finite_check_and_unscale_"


def test_a_search_for_unused_parameters_comes_before_the_graph() -> None:
    findings = result_of("searches_unused_parameters").findings
    assert [element.rule for element in findings[:2]] == ["unused-parameter-search", "launch-bound"]
    search, graph = findings[:2]
    assert search.title.replace("\xa0", " ").endswith("in each step: 150 µs of the host's time")
    assert "unused-parameter-search" in graph.needs_first
    assert graph.enabled_by == ("unused-parameter-search",)
    assert search.title in graph.prediction_note
    without = finding("searches_nothing", "launch-bound")
    assert without is not None and without.enabled_by == ()


def _read(trace: ChromeTrace, at: float) -> float:
    """Add the host's read of a GPU value for 30 µs, and return its end."""
    trace.op("aten::item", at, at + 30, [[]], ["float"])
    trace.launch((at + 2, at + 5), (at + 10, at + 12), "Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", bytes=4)
    trace.host("cuda_runtime", "cudaStreamSynchronize", at + 6, at + 28)
    return at + 31


@pytest.mark.parametrize(
    ("scales", "reads_loss", "action"),
    [
        (True, False, USE_FUSED_OPTIMIZER.sentence),
        (True, True, READ_LATER.sentence + SCALER_TOO),
        (False, True, READ_LATER.sentence),
    ],
)
def test_reads_of_a_scaler_have_their_own_advice(tmp_path: Path, scales: bool, reads_loss: bool, action: str) -> None:
    trace, now = ChromeTrace(), 0.0
    for k in range(4):
        begin, now = now, now + 5
        for part in ("forward", "backward", "optimizer"):
            if part == "backward" and reads_loss:
                now = _read(trace, now)
            if part == "optimizer" and scales:
                trace.op(SCALE, now, now + 9, [[64]], FLOAT)
                trace.launch((now + 3, now + 7), (now + 8, now + 9), ADDS)
                now = _read(trace, now + 10)
            start = now
            for _ in range(20):  # The host takes 10 µs to launch 2 µs of work.
                trace.op("aten::add", now, now + 9, [[64, 64], [64, 64]], FLOAT)
                trace.launch((now + 3, now + 7), (now + 7, now + 9), ADDS)
                now += 10
            if part == "backward":
                trace.op("autograd::engine::evaluate_function: AddBackward0", start - 0.2, now - 0.2)
            if part == "optimizer":
                trace.host("user_annotation", "Optimizer.step#Adam.step", start - 0.5, now)
        trace.step(k + 1, begin, now)
    found = of_rule(analysed(tmp_path, trace), "host-waits-for-gpu")
    assert found is not None and found.action.sentence == action
