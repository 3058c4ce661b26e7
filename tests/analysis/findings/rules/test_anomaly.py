"""Tests of anomaly detection, which costs more than its checks.

It also takes the stack trace of every operator that autograd records.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.replay.edits import FasterHost
from tests.support.anti_patterns import op
from tests.support.by_hand import analysed
from tests.support.chrome_trace import ChromeTrace


@pytest.mark.parametrize("host_us", [10.0, 110.0])
def test_gain_of_disabling_anomaly_mode_includes_its_stack_traces(tmp_path: Path, host_us: float) -> None:
    # A step has five recorded operators of 10 or 110 µs, then five unrecorded ones of 10 µs, one test of a gradient, and the wait for its result.
    trace, at = ChromeTrace(), 0.0
    for k in range(4):
        begin = at
        for i in range(5):
            at = op(trace, at + 1, "aten::mul", [[64, 64], [64, 64]], host_us=host_us, **{"Sequence number": 10 * k + i})
        start = at + 1
        at = start + 1
        for name in ("aten::isnan", "aten::_is_any_true"):
            at = op(trace, at + 1, name, [[64, 64]], host_us=10)
        read = at + 1
        at = op(trace, read, "aten::item", [[]], host_us=10, kernel="Memcpy DtoH (Device -> Pinned)")
        trace.host("cuda_runtime", "cudaStreamSynchronize", at - 0.4, at + 10)
        at += 12
        trace.op("autograd::engine::evaluate_function: MulBackward0", start, at)
        for _ in range(5):
            at = op(trace, at + 1, "aten::add", [[64, 64], [64, 64]], host_us=10)
        trace.step(k + 1, begin, at)
    result = analysed(tmp_path, trace)
    found = next(f for f in result.findings if f.rule == "anomaly-detection")
    assert ("stack traces" in found.title) == (host_us > 100)
    assert ("FasterHost" in {type(edit).__name__ for edit in found.edits}) == (host_us > 100)
    if host_us > 100:
        # 500 µs of traces in a step of 657 µs, of which the profiler takes 56 and the test with its wait 28.
        (faster,) = (edit for edit in found.edits if isinstance(edit, FasterHost))
        assert 1 - faster.factor == pytest.approx(500 / 573, abs=0.005)
        graph = next(f for f in result.findings if f.rule == "launch-bound")
        assert result.findings[0] is found and graph.pays_later and graph.predicted_step_ms is None
        assert "no graph can contain" in graph.prediction_note
        assert [step.rule for step in result.plan][:2] == ["anomaly-detection", "launch-bound"]
