"""Tests of findings about the recording itself: marks, occupancy, the profiler's cost, workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.by_hand import FLOAT, analysed, kernels, of_rule
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import finding, result_of, stopwatch_ms

STEP_US = 1000


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_without_workers_does_not_restart_workers(tmp_path: Path, workers: int) -> None:
    # Making the iterator and its first batch take 300 of 1,000 µs of every step.
    trace = ChromeTrace(with_stack=1)
    for at in trace.each_step(4, STEP_US):
        trace.host("python_function", "torch/utils/data/dataloader.py(428): _get_iterator", at + 10, at + 310)
        for worker in range(workers):
            trace.host(
                "python_function", "multiprocessing/process.py(110): start", at + 20 + 100 * worker, at + 110 + 100 * worker
            )
        kernels(trace, at + 400, 20)
    found = of_rule(analysed(tmp_path, trace), "workers-start-again")
    assert (found is not None) == bool(workers)


@pytest.mark.parametrize(
    ("estimates", "share", "trust"), [((0, 40), 0.2, "caution"), ((0, 0), None, "unusable"), ((30, 50), 0.4, "ok")]
)
def test_an_occupancy_of_zero_with_full_sms_is_ignored(
    tmp_path: Path, estimates: tuple[int, int], share: float | None, trust: str
) -> None:
    trace = ChromeTrace()
    for at in trace.each_step(4, STEP_US):
        for i, percent in enumerate(estimates):
            facts = {"blocks per SM": 1.0, "warps per SM": 12.0, "est. achieved occupancy %": percent}
            trace.launch((at + 10 + i, at + 11 + i), (at + 30 + 400 * i, at + 430 + 400 * i), f"kernel{i}", **facts)
    reading = analysed(tmp_path, trace).metrics["achieved_occupancy"]
    assert reading.value == (None if share is None else pytest.approx(share))
    assert reading.trust == trust


def test_one_iteration_of_a_server_gets_advice_to_record_more(tmp_path: Path) -> None:
    # A server's user cannot call profiler.step().
    trace = ChromeTrace()
    trace.host("user_annotation", "execute_32_context_0(0)_generation_32(5000)", 0, 900)
    for start in range(5, 805, 100):
        trace.op("aten::mm", start, start + 90, [[64, 64], [64, 64]], FLOAT)
        trace.launch((start + 3, start + 7), (start + 10, start + 95), "sm90_xmma_gemm_bf16bf16")
    found = of_rule(analysed(tmp_path, trace), "steps-not-marked")
    assert found is not None and "Profile more iterations" in found.fix and not found.changes


def test_profiler_cost_is_a_finding_only_if_the_step_is_an_estimate() -> None:
    # The step takes 14.1 ms under the profiler and 7.3 ms by the stopwatch. Telemetry measures the run's step, so there is
    # nothing to do.
    measured = result_of("llama_norm_by_hand")
    assert measured.lead is not None and measured.lead.best.source == "telemetry"
    assert measured.lead.best.ms == pytest.approx(stopwatch_ms("llama_norm_by_hand"), rel=0.05)
    assert finding("llama_norm_by_hand", "profiler-distorts") is None
    estimated = finding("memory_creep", "profiler-distorts")
    assert estimated is not None and "measured" in estimated.fix


def test_a_step_with_allocations_matches_its_stopwatch() -> None:
    # NVML also counts the driver's work for new memory. Without a correction, the step was 9.83 ms; the stopwatch measured 11.15.
    emptied = result_of("empty_cache")
    assert emptied.lead is not None and emptied.lead.best.ms == pytest.approx(stopwatch_ms("empty_cache"), rel=0.03)
