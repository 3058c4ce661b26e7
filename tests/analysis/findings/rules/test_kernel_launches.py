"""Tests of findings about launches: CUDA graphs, code that is loaded, small copies, Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.by_hand import ADDS, FLOAT, analysed, kernels, of_rule
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import finding, result_of

STEP_US = 1000


def step_of_closure(trace: ChromeTrace, at: float, own_kernels: int) -> None:
    """Add ``Optimizer.step`` with a closure and ``own_kernels`` of the optimizer.

    The closure launches 60 kernels forward and 20 backward on autograd's thread.
    """
    trace.host("user_annotation", "Optimizer.step#AdamW.step", at + 5, at + 950)
    trace.host("user_annotation", "forward pass", at + 6, at + 255)
    kernels(trace, at + 10, 60)
    trace.thread = 2
    trace.op("autograd::engine::evaluate_function: AddBackward0", at + 260, at + 350)
    kernels(trace, at + 262, 20)
    trace.thread = 1
    if own_kernels:
        kernels(trace, at + 400, own_kernels, "aten::addcdiv_")


@pytest.mark.parametrize(("own_kernels", "words"), [(0, None), (60, "launches 60 kernels per step")])
def test_a_closure_inside_the_optimizer_is_not_the_optimizer(tmp_path: Path, own_kernels: int, words: str | None) -> None:
    trace = ChromeTrace()
    for k in range(4):
        trace.step(k + 1, STEP_US * k, STEP_US * (k + 1))
        step_of_closure(trace, STEP_US * k, own_kernels)
    # The recording ends before this step's backward pass.
    trace.host("user_annotation", "Optimizer.step#AdamW.step", STEP_US * 4 - 40, STEP_US * 4)
    kernels(trace, STEP_US * 4 - 39, 60, each_us=0.5)
    found = of_rule(analysed(tmp_path, trace), "optimizer-not-fused")
    assert (found is None) if words is None else (found is not None and words in found.title)


def test_first_launches_of_kernels_are_not_used_to_judge_launches(tmp_path: Path) -> None:
    # One launch takes 7 of the step's 8 ms to load its kernel's code. A CUDA graph does not save this time, and later steps do
    # not have it.
    trace = ChromeTrace()
    trace.step(1, 0, 8000)
    kernels(trace, 10, 40, each_us=20)
    trace.op("aten::mul", 900, 7950, [[64, 64], [64, 64]], FLOAT)
    trace.launch((910, 7910), (7912, 7930), "void new_kernel(int)")
    result = analysed(tmp_path, trace)
    loading, launches = of_rule(result, "recompilation"), of_rule(result, "launch-bound")
    assert loading is not None and loading.severity == "info" and loading.predicted_step_ms is None
    assert "launched for the first time in 1 of 1 profiled steps" in loading.title
    assert launches is None
    assert not [f for f in result.findings if f.severity == "critical"]


@pytest.mark.parametrize(
    ("more", "words"), [({}, "40 copies per step"), ({"bytes": 4096}, "40 copies per step of 4.1 kB each")]
)
def test_a_trace_with_only_copies_is_reported_with_and_without_bytes(tmp_path: Path, more: dict[str, int], words: str) -> None:
    trace = ChromeTrace()
    for at in trace.each_step(4, 8000):
        for begin in range(at + 10, at + 7810, 195):  # 40 of 10 µs
            trace.op("aten::copy_", begin, begin + 190, [[64, 64], [64, 64]], FLOAT)
            trace.launch(
                (begin + 150, begin + 160), (begin + 165, begin + 175), "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", **more
            )
    result = analysed(tmp_path, trace)
    copies = of_rule(result, "small-copies")
    assert copies is not None and copies.title.endswith(words)
    assert of_rule(result, "launch-bound") is None


@pytest.mark.parametrize("us", [650, 900])
def test_first_launches_below_a_millisecond_load_code_too(tmp_path: Path, us: int) -> None:
    """The limit is half a millisecond.

    Four such launches in the only recorded step are not a recompilation, and no text says "0 of 1" steps.
    """
    trace = ChromeTrace()
    trace.step(1, 0, 8000)
    kernels(trace, 10, 40, each_us=20)
    for k in range(4):
        begin = 900 + (us + 40) * k
        trace.op("aten::mul", begin, begin + us + 30, [[64, 64], [64, 64]], FLOAT)
        trace.launch((begin + 5, begin + 5 + us), (begin + 6 + us, begin + us + 30), f"void new_kernel_{k}(int)")
    kernels(trace, 5000, 140, each_us=20)
    loading = of_rule(analysed(tmp_path, trace), "recompilation")
    assert loading is not None and (loading.severity, loading.confidence) == ("info", "medium")
    assert "launched for the first time in 1 of 1 profiled steps" in loading.title


@pytest.mark.parametrize(
    ("stall", "stall_us", "named"),
    [("optimizer", 500, False), ("optimizer", 2500, True), ("forward", 285, False), ("forward", 500, True)],
)
def test_short_python_code_of_pytorch_gets_no_advice(tmp_path: Path, stall: str, stall_us: float, named: bool) -> None:
    # A slow host takes that long to sort an optimizer's tensors. The same time before a forward pass, 6 % of the step, belongs to
    # the script. Freeing the graph of the step before takes up to 4 % of it: 320 of 8,000 µs.
    trace = ChromeTrace()
    for at in trace.each_step(4, 8000):
        late = {"forward": 0.0, "optimizer": 0.0, stall: stall_us}
        begin = at + 5 + late["forward"]
        launched(trace, begin, 80)
        trace.host("user_annotation", "Optimizer.step#AdamW.step", begin + 4000, at + 7999)
        launched(trace, begin + 4000 + late["optimizer"], int((3990 - stall_us) / 50))
    assert (of_rule(analysed(tmp_path, trace), "python-between-operators") is not None) == named


@pytest.mark.parametrize("call", ["cudaFree", "cudaStreamSynchronize"])
def test_python_before_a_call_that_launches_nothing_can_go_too(tmp_path: Path, call: str) -> None:
    # gc.collect() takes 3 ms, then torch.cuda.empty_cache() calls CUDA, then Python works for 2 ms. Without both, a step is 4.99 ms shorter.
    trace = ChromeTrace()
    for at in trace.each_step(4, 8000):
        launched(trace, at + 5, 20)
        trace.host("cuda_runtime", call, at + 4000, at + 4010)
        launched(trace, at + 6000, 39)
    python = of_rule(analysed(tmp_path, trace), "python-between-operators")
    assert python is not None and python.gain_ms == pytest.approx(4.99, rel=0.03)


def launched(trace: ChromeTrace, at: float, count: int) -> None:
    """Add ``count`` operators of 48 µs every 50 µs, each with a kernel of 5 µs: a host-bound loop."""
    for start in (at + 50 * i for i in range(count)):
        trace.op("aten::add", start, start + 48, [[64, 64], [64, 64]], FLOAT)
        trace.launch((start + 30, start + 36), (start + 38, start + 43), ADDS)


def test_a_graph_that_would_skip_python_reports_its_time() -> None:
    note = next(f.prediction_note for f in result_of("mlp_eager").findings if f.rule == "launch-bound")
    assert "Python outside any operator" in note and "with_stack=True" in note


def test_launches_that_may_not_delay_the_gpu_are_not_a_warning() -> None:
    # The GPU works 8.24 of 9.04 ms, dispatch included, and telemetry's step may be 8.46. By stopwatch it is 8.73, of
    # which launches cost 0.3.
    found = finding("likeness", "launch-bound")
    assert found is not None and found.severity == "info"
    assert finding("mlp_eager", "launch-bound").severity == "critical"


def test_steps_with_changing_shapes_are_not_one_graph() -> None:
    many, one = (finding(f"short_kernels_of_{lengths}", "launch-bound") for lengths in ("many_lengths", "one_length"))
    assert many is not None and one is not None
    assert (many.predicted_step_ms, many.confidence) == (None, "low") and "few lengths" in many.fix
    assert one.predicted_step_ms is not None and one.confidence == "medium" and "as one CUDA graph" in one.fix
