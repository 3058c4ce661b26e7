"""Tests of the Efficiency screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.pages import opened, run_of, words_of


def test_efficiency_uses_the_step_of_idle_and_verdict(loop: str) -> None:
    test = opened("efficiency", loop)
    assert "dense 16-bit peak" in words_of(test)
    parts = next(d.value for d in test.dataframe if "left_share" in d.value).set_index("part")["ms"]
    # The profiled step of 1 ms is 1.027 ms by telemetry, with 700 µs of kernels, 600 of them products. 2 × 1024³ FLOPs need 2.2 µs at 989.4 TFLOP/s.
    assert parts.sum() == pytest.approx(1.027, rel=1e-3)
    assert parts["The GPU is idle"] == pytest.approx(0.327, rel=1e-2) and parts["Other kernels"] == pytest.approx(0.1, rel=1e-2)
    assert parts["At the peak (MFU)"] == pytest.approx(2 * 1024**3 / 989.4e12 * 1e3, rel=0.01)
    assert "\u2248\u00a00.33\u00a0ms of each 1.03\u00a0ms step is lost" in words_of(opened("idle", loop))


def test_facts_from_the_viewer_are_stored_with_the_run(loop: str, app_data: DataFolder) -> None:
    test = opened("efficiency", loop)
    field = next(n for n in test.number_input if n.label == "FLOPs per step")
    field.set_value(1e12)
    next(b for b in test.button if b.label == "Save").click().run()
    words_of(test)
    assert app_data.read_manifest(loop).facts.flops_per_step == 1e12
    assert "Achieved FLOP rate: ≈\u00a0974\u00a0TFLOP/s." in words_of(opened("efficiency", loop))  # 10¹² in 1.027 ms


def test_efficiency_without_steps_says_what_is_missing(app_data: DataFolder, tmp_path: Path) -> None:
    trace = ChromeTrace()
    trace.op("aten::mm", 10, 60, [[1024, 1024], [1024, 1024]], ["float", "float"])
    trace.launch((27, 30), (40, 640), "sgemm_128x64_nn")
    test = opened("efficiency", run_of(app_data, trace.write(tmp_path / "t.json")))
    text = words_of(test)
    assert "Steps are not marked, so there is no time of a step" in text and "profiler.step()" in test.code[0].value
    assert "run 600\u00a0µs of the recorded time without tensor cores" in text


def test_operators_that_only_move_data_have_only_the_memory_roof(app_data: DataFolder, tmp_path: Path) -> None:
    trace = ChromeTrace()
    trace.step(1, 0, 1000)
    trace.op("aten::add", 10, 60, [[1024, 1024], [1024, 1024]], ["float", "float"])
    trace.launch((27, 30), (40, 640), "elementwise_add")
    assert "aten::add could gain most" in words_of(opened("efficiency", run_of(app_data, trace.write(tmp_path / "t.json"))))
