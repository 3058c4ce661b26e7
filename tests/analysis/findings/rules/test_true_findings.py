"""Tests of findings that were false or too certain on real loops.

Each has a hand-built trace that shows why.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.replay.edits import TimedOps, WithoutHostCause
from sawtooth.analysis.run.model import Finding, RunResult
from tests.support.by_hand import ADDS, analysed
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import finding, result_of, stopwatch_ms

STEP_US = 1000
FLOAT = ["float", "float"]


def of_rule(result: RunResult, rule: str) -> Finding | None:
    """Return the finding of a rule, or None if it does not fire."""
    assert rule not in {n.rule for n in result.not_checked}
    return next((f for f in result.findings if f.rule == rule), None)


def kernels(trace: ChromeTrace, at: float, count: int, operator: str = "aten::add", each_us: float = 4) -> None:
    """Add operators of ``each_us`` from ``at`` on, each with one kernel of the same duration.

    The kernel starts 2 µs after its launch began.
    """
    for i in range(count):
        start = at + i * each_us
        trace.op(operator, start, start + each_us * 0.9, [[64, 64], [64, 64]], FLOAT)
        trace.launch((start + each_us / 4, start + each_us / 2), (start + 3, start + 3 + each_us * 0.95), ADDS)


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
    trace.host(
        "user_annotation", "Optimizer.step#AdamW.step", STEP_US * 4 - 40, STEP_US * 4
    )  # cut off before its backward pass
    kernels(trace, STEP_US * 4 - 39, 60, each_us=0.5)
    found = of_rule(analysed(tmp_path, trace), "optimizer-not-fused")
    assert (found is None) if words is None else (found is not None and words in found.title)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_without_workers_does_not_restart_workers(tmp_path: Path, workers: int) -> None:
    # Making the iterator and its first batch take 300 of 1,000 µs of every step.
    trace = ChromeTrace(with_stack=1)
    for k in range(4):
        at = STEP_US * k
        trace.step(k + 1, at, at + STEP_US)
        trace.host("python_function", "torch/utils/data/dataloader.py(428): _get_iterator", at + 10, at + 310)
        for worker in range(workers):
            trace.host(
                "python_function", "multiprocessing/process.py(110): start", at + 20 + 100 * worker, at + 110 + 100 * worker
            )
        kernels(trace, at + 400, 20)
    found = of_rule(analysed(tmp_path, trace), "workers-start-again")
    assert (found is not None) == bool(workers)


HALF = ["c10::BFloat16", "c10::BFloat16"]
TOKENS, WIDTH, ODD_WIDTH = 788, 768, 774  # 788 = 4 images of 197 tokens: not a multiple of 8, and not a setting
CUTLASS = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x4_tn_align{}>(cutlass::Params)"


@pytest.mark.parametrize(
    ("first", "second", "strides", "align", "words"),
    [
        ([TOKENS, WIDTH], [WIDTH, 3072], [[WIDTH, 1], [1, WIDTH]], 8, None),  # x · Wᵀ
        ([3072, TOKENS], [TOKENS, WIDTH], [[1, 3072], [WIDTH, 1]], 8, None),  # dyᵀ · x: a sum over 788
        ([3072, TOKENS], [TOKENS, WIDTH], None, 8, None),
        ([TOKENS, ODD_WIDTH], [ODD_WIDTH, 3072], [[ODD_WIDTH, 1], [1, ODD_WIDTH]], 2, "774"),
        ([TOKENS, WIDTH], [WIDTH, 50257], [[WIDTH, 1], [1, WIDTH]], 1, "50257"),  # the result's rows
        ([TOKENS, WIDTH], [WIDTH, 50257], [[WIDTH, 1], [1, WIDTH]], 8, None),  # the kernel itself says that it loads whole tiles
    ],
)  # fmt: skip
def test_only_the_contiguous_dimension_of_a_product_must_be_aligned(
    tmp_path: Path, first: list[int], second: list[int], strides: list[list[int]] | None, align: int, words: str | None
) -> None:
    trace = ChromeTrace()
    more = {"Input Strides": strides} if strides else {}
    for k in range(4):
        at = STEP_US * k
        trace.step(k + 1, at, at + STEP_US)
        trace.op("aten::mm", at + 10, at + 60, [first, second], HALF, **more)
        trace.launch((at + 20, at + 25), (at + 30, at + 990), CUTLASS.format(align))
    found = of_rule(analysed(tmp_path, trace), "misaligned-dimensions")
    assert (found is None) if words is None else (found is not None and words in found.title)


def products(folder: Path, kernel: str) -> RunResult:
    """Return a run of four steps, each with one FP32 product of 1024 × 1024 × 1024 that fills it."""
    trace = ChromeTrace()
    for k in range(4):
        at = STEP_US * k
        trace.step(k + 1, at, at + STEP_US)
        trace.op("aten::mm", at + 10, at + 60, [[1024, 1024], [1024, 1024]], FLOAT)
        trace.launch((at + 20, at + 25), (at + 30, at + 990), kernel)
    return analysed(folder, trace)


def test_a_chosen_precision_is_not_a_critical_finding(tmp_path: Path) -> None:
    found = of_rule(
        products(tmp_path, "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_tensor16x8x8_kernel"),
        "fp32-products",
    )
    assert found is not None and found.severity == "warning"


def test_one_cause_is_one_critical_finding(tmp_path: Path) -> None:
    result = products(tmp_path, "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_ffma_kernel")
    assert [f.rule for f in result.findings if f.severity == "critical"] == ["tf32-off"]  # of one product, casts cost more
    second = of_rule(result, "fp32-products")
    assert second is not None and second.severity == "warning" and "gains do not add up" in second.prediction_note


def test_removing_reads_removes_the_work_only_they_need(tmp_path: Path) -> None:
    # A step: a kernel of 200 µs, then ten norms of 20 µs, each read at once. What is left without the reads is the kernel and the launches.
    trace = ChromeTrace()
    for k in range(4):
        at = STEP_US * k
        trace.step(k + 1, at, at + STEP_US)
        trace.op("aten::add", at + 10, at + 30, [[64, 64], [64, 64]], FLOAT)
        trace.launch((at + 15, at + 20), (at + 25, at + 225), ADDS)
        for i in range(10):
            t = at + 240 + 60 * i
            trace.op("aten::linalg_vector_norm", t, t + 9, [[1024, 1024]], ["float"])
            trace.launch(
                (t + 3, t + 6), (t + 10, t + 30), "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(int)"
            )
            trace.op("aten::item", t + 10, t + 50, [[]], ["float"])
            trace.op("aten::_local_scalar_dense", t + 11, t + 49, [[]], ["float"])
            trace.launch((t + 12, t + 16), (t + 31, t + 33), "Memcpy DtoH (Device -> Pageable)", "gpu_memcpy")
            trace.host("cuda_runtime", "cudaStreamSynchronize", t + 17, t + 45)
    found = of_rule(analysed(tmp_path, trace), "host-waits-for-gpu")
    assert found is not None and found.predicted_step_ms is not None
    assert found.predicted_step_ms < 0.41  # 200 and, with the norms left in, at least another 200
    assert {type(edit).__name__ for edit in found.edits} == {"WithoutWaits", "WithoutOps"}


@pytest.mark.parametrize(
    ("estimates", "share", "trust"), [((0, 40), 0.2, "caution"), ((0, 0), None, "unusable"), ((30, 50), 0.4, "ok")]
)
def test_an_occupancy_of_zero_with_full_sms_is_ignored(
    tmp_path: Path, estimates: tuple[int, int], share: float | None, trust: str
) -> None:
    trace = ChromeTrace()
    for k in range(4):
        at = STEP_US * k
        trace.step(k + 1, at, at + STEP_US)
        for i, percent in enumerate(estimates):
            facts = {"blocks per SM": 1.0, "warps per SM": 12.0, "est. achieved occupancy %": percent}
            trace.launch((at + 10 + i, at + 11 + i), (at + 30 + 400 * i, at + 430 + 400 * i), f"kernel{i}", **facts)
    reading = analysed(tmp_path, trace).metrics["achieved_occupancy"]
    assert reading.value == (None if share is None else pytest.approx(share))
    assert reading.trust == trust


def _converting(image: list[int], norm: str, kernel: str) -> ChromeTrace:
    """Add steps of 1,000 µs: 300 of conversion, 400 of a convolution and 200 of a norm."""
    trace = ChromeTrace()
    for k in range(4):
        at = STEP_US * k
        trace.step(k + 1, at, at + STEP_US)
        trace.op("aten::convolution", at + 10, at + 40, [image, [image[1], image[1], *[3] * (len(image) - 2)]], HALF)
        trace.launch((at + 12, at + 15), (at + 20, at + 320), "void cudnn::ops::nchwToNhwcKernel<__half, __half, float>(int)")
        trace.launch(
            (at + 16, at + 20),
            (at + 321, at + 721),
            "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_kernel",
        )
        trace.op(norm, at + 50, at + 80, [image], HALF)
        trace.launch((at + 60, at + 65), (at + 722, at + 922), f"void at::native::{kernel}(int)")
    return trace


@pytest.mark.parametrize(
    ("channels", "norm", "kernel", "advised"),
    [
        (128, "aten::native_batch_norm", "norm_kernel", True),
        (128, "aten::native_batch_norm", "batch_norm_transform_input_channels_last_kernel", False),  # it is in NHWC already
        (128, "aten::native_group_norm", "norm_kernel", False),
        (48, "aten::native_batch_norm", "norm_kernel", False),
    ],
)
def test_channels_last_is_advised_only_if_the_network_can_gain(
    tmp_path: Path, channels: int, norm: str, kernel: str, advised: bool
) -> None:
    trace = _converting([32, channels, 32, 32], norm, kernel)
    assert (of_rule(analysed(tmp_path, trace), "layout-conversions") is not None) == advised


def test_volumes_have_their_own_layout_and_a_less_certain_gain(tmp_path: Path) -> None:
    found = of_rule(
        analysed(tmp_path, _converting([8, 128, 8, 32, 32], "aten::native_batch_norm", "norm_kernel")), "layout-conversions"
    )
    assert (
        found is not None
        and "channels_last_3d" in found.fix
        and found.predicted_step_ms is not None
        and found.confidence == "low"
    )
    assert all(change.after.count("channels_last_3d") == change.after.count("channels_last") for change in found.changes)


def test_a_layout_that_may_gain_nothing_is_not_critical() -> None:
    """A change of memory layout that may bring no gain is not critical.

    Three output channels do not fill a tile. In NHWC cuDNN used another kernel for their gradient, which took ten times
    as long and cancelled the gain.
    """
    layout = finding("sharper_first", "layout-conversions")
    assert layout is not None and layout.severity == "warning"
    assert layout.predicted_low_ms is not None and layout.predicted_high_ms is not None
    assert layout.predicted_low_ms < stopwatch_ms("sharper_last") < layout.predicted_high_ms


def test_a_graph_needs_removal_of_waits_that_it_cannot_contain(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for k in range(4):
        at = STEP_US * k
        trace.step(k + 1, at, at + STEP_US)
        for start in range(at + 5, at + 905, 10):  # 2 µs of work for 10 µs of the host's
            trace.op("aten::add", start, start + 9, [[64, 64], [64, 64]], FLOAT)
            trace.launch((start + 3, start + 7), (start + 7, start + 9), ADDS)
        trace.op("aten::nonzero", at + 920, at + 960, [[64]], ["bool"])
        trace.host("cuda_runtime", "cudaStreamSynchronize", at + 940, at + 941)
    launches = of_rule(analysed(tmp_path, trace), "launch-bound")
    assert launches is not None and "comes first: one graph cannot contain these waits" in launches.prediction_note


@pytest.mark.parametrize("packed", [False, True])
def test_a_graph_of_a_recurrent_layer_is_captured_by_hand(tmp_path: Path, *, packed: bool) -> None:
    """torch.compile stops at nn.LSTM, so neither the advice nor its code suggests it."""
    trace = ChromeTrace()
    for k in range(4):
        at = STEP_US * k
        trace.step(k + 1, at, at + STEP_US)
        trace.op("aten::lstm", at + 2, at + 908)
        if packed:
            trace.op("aten::_pack_padded_sequence", at + 920, at + 925)
        for start in range(at + 5, at + 905, 10):  # 2 µs of work for 10 µs of the host's
            trace.op("aten::_cudnn_rnn", start, start + 9, [[64, 64], [64, 64]], FLOAT)
            trace.launch((start + 3, start + 7), (start + 7, start + 9), "LSTM_elementWise_fp")
    launches = of_rule(analysed(tmp_path, trace), "launch-bound")
    assert launches is not None and "captured by hand: torch.compile stops at nn.LSTM" in launches.fix
    assert not any("torch.compile" in change.after for change in launches.changes)
    assert ("pad them to one length first" in launches.risk) is packed


def test_cells_inside_one_call_cost_launches_but_no_operators() -> None:
    """Cells within one call are launched without their operators.

    Per remaining kernel the host pays for a launch, not for an operator and a line of Python (76 ms became 7.4 on an
    H200).
    """
    cells = finding("lstm_cells", "recurrent-cells")
    assert cells is not None
    quick = [edit for edit in cells.edits if isinstance(edit, WithoutHostCause)]
    assert {edit.cause for edit in quick} == {"launch_bound", "python_host"} and all(edit.calls for edit in quick)


def test_a_recurrent_layer_without_tf32_is_in_the_interval(tmp_path: Path) -> None:
    """The interval of nn.LSTM contains products in FP32.

    cuDNN's default is TF32, but a script may turn it off. Without it, products of this size take more than three times as long.
    """
    trace = ChromeTrace()
    for k in range(4):
        trace.step(k + 1, 8000 * k, 8000 * (k + 1))
        for at in range(8000 * k + 10, 8000 * k + 3850, 320):
            trace.op("aten::lstm_cell", at, at + 280, [[256, 1024], [256, 1024]], FLOAT)
            for start in (at + 5, at + 135):
                trace.op("aten::addmm", start, start + 120, [[4096], [256, 1024], [1024, 4096]], ["float"] * 3)
                trace.launch((start + 5, start + 10), (start + 12, start + 115), "ampere_sgemm_128x128_tn")
    cells = of_rule(analysed(tmp_path, trace), "recurrent-cells")
    assert cells is not None
    products = next(edit for edit in cells.edits if isinstance(edit, TimedOps))
    assert sum(products.high_ns) > 3 * sum(products.dur_ns) > 3 * sum(products.low_ns)


def test_one_iteration_of_a_server_gets_advice_to_record_more(tmp_path: Path) -> None:
    """One recorded iteration of vLLM asks for more iterations.

    A server's user cannot call profiler.step().
    """
    trace = ChromeTrace()
    trace.host("user_annotation", "execute_32_context_0(0)_generation_32(5000)", 0, 900)
    for start in range(5, 805, 100):
        trace.op("aten::mm", start, start + 90, [[64, 64], [64, 64]], FLOAT)
        trace.launch((start + 3, start + 7), (start + 10, start + 95), "sm90_xmma_gemm_bf16bf16")
    found = of_rule(analysed(tmp_path, trace), "steps-not-marked")
    assert found is not None and "Profile more iterations" in found.fix and not found.changes


def test_first_launches_of_kernels_are_not_used_to_judge_launches(tmp_path: Path) -> None:
    """A step whose kernels are launched for the first time gives no finding about launches.

    Of 8 ms, one launch takes 7 to load its kernel's code. A CUDA graph does not save that, and no later step pays it.
    """
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
    for k in range(4):
        at = 8000 * k
        trace.step(k + 1, at, at + 8000)
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
    ("stall", "stall_us", "named"), [("optimizer", 500, False), ("optimizer", 2500, True), ("forward", 500, True)]
)
def test_short_python_code_of_pytorch_gets_no_advice(tmp_path: Path, stall: str, stall_us: float, named: bool) -> None:
    """Half a millisecond of PyTorch's own Python gives no advice.

    A slow host takes that long to sort an optimizer's tensors. The same time before a forward pass belongs to the
    script.
    """
    trace = ChromeTrace()
    for k in range(4):
        at = 8000 * k
        trace.step(k + 1, at, at + 8000)
        late = {"forward": 0.0, "optimizer": 0.0, stall: stall_us}
        begin = at + 5 + late["forward"]
        launched(trace, begin, 80)
        trace.host("user_annotation", "Optimizer.step#AdamW.step", begin + 4000, at + 7999)
        launched(trace, begin + 4000 + late["optimizer"], int((3990 - stall_us) / 50))
    assert (of_rule(analysed(tmp_path, trace), "python-between-operators") is not None) == named


def launched(trace: ChromeTrace, at: float, count: int) -> None:
    """Add ``count`` operators of 48 µs every 50 µs, each with a kernel of 5 µs: a host-bound loop."""
    for start in (at + 50 * i for i in range(count)):
        trace.op("aten::add", start, start + 48, [[64, 64], [64, 64]], FLOAT)
        trace.launch((start + 30, start + 36), (start + 38, start + 43), ADDS)


def test_profiler_cost_is_not_based_on_an_estimate_that_telemetry_refutes() -> None:
    distorted = finding("llama_norm_by_hand", "profiler-distorts")  # profiled 14.1 ms, by the stopwatch 7.3
    assert distorted is not None and distorted.title.endswith("by telemetry")
    assert distorted.evidence[0]["run_ms"] == pytest.approx(stopwatch_ms("llama_norm_by_hand"), rel=0.05)
    assert "estimate" not in distorted.fix


def test_a_step_with_allocations_matches_its_stopwatch() -> None:
    emptied = result_of(
        "empty_cache"
    )  # NVML counts what the driver does for new memory as well: 9.83 ms where 11.15 were measured
    assert emptied.lead is not None and emptied.lead.best.ms == pytest.approx(stopwatch_ms("empty_cache"), rel=0.03)


def test_avoidable_reads_come_before_the_graph_that_they_cut() -> None:
    findings = result_of("density_prints").findings
    assert [f.rule for f in findings[:2]] == ["host-waits-for-gpu", "launch-bound"]
    assert findings[0].severity == "warning" and findings[0].predicted_step_ms is None  # nothing was gained: 26.4 and 26.0 ms
    assert "28 times" in findings[0].title  # the trace holds 84 cudaStreamSynchronize in three steps
    assert not any(f.rule == "host-waits-for-gpu" for f in result_of("density").findings)


def test_python_work_on_copied_images_is_removed_with_the_copy() -> None:
    found = finding("likeness_copies", "host-waits-for-gpu")
    assert found is not None and found.predicted_low_ms is not None and found.predicted_high_ms is not None
    assert found.predicted_low_ms < stopwatch_ms("likeness") < found.predicted_high_ms


def test_channels_last_is_not_advised_for_conv1d() -> None:
    found = finding("wavenet", "layout-conversions")
    assert found is not None and found.severity != "critical" and found.confidence == "low"
    assert "one-dimensional" in found.title and "Conv2d of height 1" in found.fix
    flat = finding("vgg_first", "layout-conversions")
    assert flat is not None and flat.severity == "critical" and "one-dimensional" not in flat.title


@pytest.mark.parametrize("rows", [0, 8])
def test_repeats_read_by_the_host_come_before_the_graph_that_they_cut(tmp_path: Path, rows: int) -> None:
    """Repeated operations whose sum the host reads come before the graph that they interrupt.

    The host is late anyway, so its waits alone cost little.
    """
    trace = ChromeTrace()
    for k in range(4):
        at = 4 * STEP_US * k
        trace.step(k + 1, at, at + 4 * STEP_US)
        for row in range(12):
            start = at + 10 + 300 * row
            for begin in range(0, 240, 40):
                trace.op("aten::add", start + begin, start + begin + 36, [[64, 64], [64, 64]], FLOAT)
                trace.launch((start + begin + 10, start + begin + 15), (start + begin + 18, start + begin + 21), ADDS)
            if row < rows:
                trace.op("aten::repeat_interleave", start + 245, start + 280, [[60, 256], [60]], FLOAT)
                trace.host("cuda_runtime", "cudaStreamSynchronize", start + 246, start + 249)
    found = analysed(tmp_path, trace).findings
    assert ([f.rule for f in found[:2]] == ["host-waits-for-gpu", "launch-bound"]) == bool(rows)
    if rows:
        assert "8 times per step" in found[0].title and "output_size" in found[0].fix and found[0].predicted_step_ms is None


@pytest.mark.parametrize(
    "sizes", [(64,) * 24, (64, 64, 48, 40) * 6, (17, 25, 12) * 8], ids=("one", "shrinking", "each its own")
)
@pytest.mark.parametrize("between", ["aten::tanh", "aten::index_add_"])
def test_cells_are_time_steps_only_in_sequences(tmp_path: Path, sizes: tuple[int, ...], between: str) -> None:
    """Cells count as time steps only if they process a sequence.

    Graphs of 17, 25 and 12 nodes that pass one after the other are not a sequence, and neither are messages between
    nodes that form the next input.
    """
    trace = ChromeTrace(made_for=f"cells {sizes} {between}")
    for k in range(4):
        begin = 8000 * k
        trace.step(k + 1, begin, begin + 8000)
        for place, rows in enumerate(sizes):
            at = begin + 10 + 320 * place
            trace.op("aten::gru_cell", at, at + 280, [[rows, 128], [rows, 128]], ["float", "float"])
            for product in range(2):
                start = at + 5 + 130 * product
                trace.op("aten::addmm", start, start + 120, [[384], [rows, 128], [128, 384]], ["float"] * 3)
                trace.launch((start + 5, start + 100), (start + 102, start + 115), "ampere_sgemm_32x128_tn")
            trace.op(between, at + 285, at + 315, [[rows, 128], [rows, 128]], FLOAT)
            trace.launch((at + 287, at + 300), (at + 302, at + 310), ADDS)
    named = of_rule(analysed(tmp_path, trace), "recurrent-cells") is not None
    assert named == (len(set(sizes)) == 1 and between == "aten::tanh")


@pytest.mark.parametrize(("second", "named"), [([], True), ([512, 8192], False)], ids=("number", "tensor"))
def test_gates_and_scans_are_not_activations(tmp_path: Path, second: list[int], named: bool) -> None:
    """A gate or a scan of tensors alone is not an activation.

    h = tanh(a * h + b) has no number in it; x / (1 + exp(-1.702 * x)) has.
    """
    trace = ChromeTrace(made_for=f"gate {second}")
    for k in range(4):
        at = STEP_US * k
        trace.step(k + 1, at, at + STEP_US)
        for place, name in enumerate(("aten::fill_", "aten::mul", "aten::add", "aten::tanh")):
            start = at + 20 + 40 * place
            trace.op(name, start, start + 30, [[512, 8192], [] if name == "aten::fill_" else second], FLOAT)
            trace.launch((start + 5, start + 10), (at + 200 + 190 * place, at + 385 + 190 * place), ADDS)
    assert (of_rule(analysed(tmp_path, trace), "unfused-activation") is not None) == named


@pytest.mark.parametrize(("last", "named"), [("aten::sum", False), ("aten::mul", True)])
def test_a_hand_written_softmax_is_not_an_activation(tmp_path: Path, last: str, named: bool) -> None:
    trace = ChromeTrace()
    for k in range(4):
        at = STEP_US * k
        trace.step(k + 1, at, at + STEP_US)
        for place, name in enumerate(("aten::sub", "aten::exp", last, "aten::add")):
            start = at + 20 + 40 * place
            trace.op(name, start, start + 30, [[512, 8192], [] if name == "aten::mul" else [512, 8192]], FLOAT)
            kernel = "void at::native::reduce_kernel<512, 1>()" if name == "aten::sum" else ADDS
            trace.launch((start + 5, start + 10), (at + 200 + 190 * place, at + 385 + 190 * place), kernel)
    assert (of_rule(analysed(tmp_path, trace), "unfused-activation") is not None) == named


@pytest.mark.parametrize("picks", [True, False])
def test_a_hand_written_log_softmax_over_a_vocabulary_is_a_loss_head(tmp_path: Path, picks: bool) -> None:
    """A handwritten log-softmax over a vocabulary is a loss head and not an activation.

    Its backward pass takes the exponential of the logits less one number per row: five kernels over one tensor. A
    router's log-softmax selects no column.
    """
    logits, row = [8192, 50304], [8192, 1]
    loss = [("aten::copy_", [logits, logits]), ("aten::sub", [logits, row]), ("aten::exp", [logits]), ("aten::sum", [logits])]
    loss += [("aten::gather", [logits, [], row])] if picks else []
    loss += [("aten::neg", [logits]), ("aten::sub", [logits, row]), ("aten::exp", [logits]), ("aten::mul", [row, logits])]
    trace = ChromeTrace()
    for k in range(4):
        at = 10_000 * k
        trace.step(k + 1, at, at + 10_000)
        for place, (name, shapes) in enumerate(loss):
            start, began = at + 20 + 40 * place, at + 500 + 1000 * place
            trace.op(name, start, start + 30, shapes, ["float"] * len(shapes))
            kernel = "void at::native::reduce_kernel<512, 1>()" if name == "aten::sum" else ADDS
            kernel = "void at::native::_scatter_gather_elementwise_kernel<1>()" if name == "aten::gather" else kernel
            trace.launch((start + 5, start + 10), (began, began + 900), kernel)
    result = analysed(tmp_path, trace)
    assert of_rule(result, "unfused-activation") is None
    found = of_rule(result, "loss-head")
    assert (found is not None) == picks
    if found is not None:
        assert "8 kernels" in found.title and found.severity == "critical"
        assert found.predicted_step_ms is not None and found.predicted_step_ms < 8


def test_a_graph_that_would_skip_python_reports_its_time() -> None:
    note = next(f.prediction_note for f in result_of("mlp_eager").findings if f.rule == "launch-bound")
    assert "Python outside any operator" in note and "with_stack=True" in note


def test_launches_that_may_not_delay_the_gpu_are_not_a_warning() -> None:
    """Launches that the GPU may not wait for give no warning.

    The GPU works 8.24 of 9.04 ms, dispatch included, and telemetry's step may be 8.46. By stopwatch it is 8.73, of
    which launches cost 0.3.
    """
    found = finding("likeness", "launch-bound")
    assert found is not None and found.severity == "info"
    assert finding("mlp_eager", "launch-bound").severity == "critical"


def test_products_of_a_step_that_factorizes_matrices_are_an_opportunity() -> None:
    """TF32 for a step that factorizes matrices is an opportunity and not a warning.

    In a Gaussian process with a Cholesky factor, products in TF32 would save a fifth of the step, but the likelihood
    may need FP32.
    """
    result = result_of("curves")
    for rule in ("tf32-off", "fp32-products"):
        found = of_rule(result, rule)
        assert found is not None and found.severity != "critical" and "may need all bits of FP32" in found.risk
    plain = finding("gpt_fp32", "fp32-products")
    assert plain is not None and plain.severity == "critical" and "bits of FP32" not in plain.risk


def activation_by_hand(power_us: float) -> ChromeTrace:
    """Add steps of a product of 400 µs and an activation of ten kernels over the same elements.

    Five of the kernels take 40 µs, four take 40 µs, and one takes ``power_us``.
    """
    trace = ChromeTrace(made_for=f"activation {power_us}")
    shape, at = [[4096, 4096]], 0.0
    for k in range(4):
        start = at
        trace.op("aten::mm", at, at + 9, [[4096, 4096], [4096, 4096]], ["c10::BFloat16", "c10::BFloat16"])
        trace.launch((at + 2, at + 4), (at + 10, at + 410), "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNT")
        host, gpu = at + 10, at + 410
        for i, name in enumerate(("mul", "mul", "pow", "mul", "add", "mul", "tanh", "add", "mul", "mul")):
            lasts = power_us if name == "pow" else 40
            trace.op(f"aten::{name}", host, host + 9, [*shape, []], ["float" if name == "pow" else "c10::BFloat16", "Scalar"])
            kernel = f"void at::native::vectorized_elementwise_kernel<4, at::native::{name}_{i}>(int)"
            trace.launch((host + 2, host + 4), (gpu, gpu + lasts), kernel)
            host, gpu = host + 10, gpu + lasts
        at = gpu
        trace.step(k + 1, start, at)
    return trace


def test_an_activation_can_run_as_fast_as_its_narrowest_kernel(tmp_path: Path) -> None:
    # The prediction is 1.1 × the longest kernel that it replaces: 80 µs in FP32 give 88, and at least 44, because the
    # fused kernel may move 16 bits like the other kernels (a bound of 0.5 instead of 0.8). If all kernels are alike, it
    # is 44 and at least 35. (A fused GELU of 16 bits was faster than 0.8 of the longest kernel.)
    margins = []
    for power_us in (80, 40):
        found = of_rule(analysed(tmp_path / str(power_us), activation_by_hand(power_us)), "unfused-activation")
        assert found is not None and found.predicted_step_ms is not None and found.predicted_low_ms is not None
        margins.append(1e3 * (found.predicted_step_ms - found.predicted_low_ms))
    assert margins[0] - margins[1] > 20, "44 against 9 µs, and what any prediction may be off by"


@pytest.mark.parametrize("waits", [False, True])
def test_a_convolution_with_many_kernels_is_searching_only_if_it_waits(tmp_path: Path, waits: bool) -> None:
    # A 5x5 convolution over 64 channels by Fourier transforms: three kernels for each of nine parts of the batch, at every step the same.
    trace = ChromeTrace()
    for k in range(4):
        at = STEP_US * k
        trace.step(k + 1, at, at + STEP_US)
        kernels(trace, at + 10, 20)
        trace.op(
            "aten::convolution_backward",
            at + 200,
            at + 700,
            [[64, 64, 64, 64], [64, 64, 64, 64], [64, 64, 5, 5]],
            ["float"] * 3,
        )
        for i in range(27):
            start = at + 205 + 16 * i
            trace.launch((start, start + 4), (start + 6, start + 14), ("fft2d_r2c", "cgemm", "fft2d_c2r")[i % 3])
            if waits:
                trace.host("cuda_runtime", "cudaEventSynchronize", start + 5, start + 15)
    found = of_rule(analysed(tmp_path, trace), "convolution-search")
    assert (found is not None) == waits


def test_search_time_refers_to_the_unprofiled_step() -> None:
    # The host searches 744 of 754 ms as profiled. The run's own step is 625 ms, in which the GPU waits 601 ms.
    (found,) = (f for f in result_of("conv_searches").findings if f.rule == "convolution-search")
    best = result_of("conv_searches").lead.best
    assert f"{744 / best.profiled.value * best.ms:.0f} ms" in found.title.replace("\u00a0", " ")
    assert 595 < found.ceiling_ms_per_step < 601  # a search that the GPU works through costs nothing


def test_predicted_step_without_planning_includes_another_backend() -> None:
    # Four layers of 0.2 ms follow 5 ms of planning; with flash attention's kernels they last 0.2 to 0.46 ms each.
    result = result_of("attention_planned")
    first = result.findings[0]
    assert (first.rule, first.confidence) == ("plans-for-new-shapes", "medium")
    assert first.predicted_step_ms == pytest.approx(4 * 0.2 * 1.7, rel=0.1)
    assert first.predicted_low_ms is not None and first.predicted_high_ms is not None
    assert first.predicted_low_ms <= 4 * 0.2 * 1.05 and first.predicted_high_ms >= 4 * 0.2 * 2.3
    (products,) = (f for f in result_of("convolutions_planned").findings if f.rule == first.rule)
    assert (products.predicted_step_ms, products.fix.startswith("Pad")) == (None, True)
    assert not {"launch-bound", "small-batch"} & {
        f.rule for f in (*result.findings, *result_of("convolutions_planned").findings)
    }


def test_steps_with_changing_shapes_are_not_one_graph() -> None:
    many, one = (finding(f"short_kernels_of_{lengths}", "launch-bound") for lengths in ("many_lengths", "one_length"))
    assert many is not None and one is not None
    assert (many.predicted_step_ms, many.confidence) == (None, "low") and "few lengths" in many.fix
    assert one.predicted_step_ms is not None and one.confidence == "medium" and "as one CUDA graph" in one.fix
