"""Tests of findings about activations, softmax and loss heads that are written out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.by_hand import ADDS, FLOAT, analysed, of_rule
from tests.support.chrome_trace import ChromeTrace

STEP_US = 1000


@pytest.mark.parametrize(("second", "named"), [([], True), ([512, 8192], False)], ids=("number", "tensor"))
def test_gates_and_scans_are_not_activations(tmp_path: Path, second: list[int], named: bool) -> None:
    # h = tanh(a * h + b) has no number in it; x / (1 + exp(-1.702 * x)) has.
    trace = ChromeTrace(made_for=f"gate {second}")
    for at in trace.each_step(4, STEP_US):
        for place, name in enumerate(("aten::fill_", "aten::mul", "aten::add", "aten::tanh")):
            start = at + 20 + 40 * place
            trace.op(name, start, start + 30, [[512, 8192], [] if name == "aten::fill_" else second], FLOAT)
            trace.launch((start + 5, start + 10), (at + 200 + 190 * place, at + 385 + 190 * place), ADDS)
    assert (of_rule(analysed(tmp_path, trace), "unfused-activation") is not None) == named


@pytest.mark.parametrize(("last", "named"), [("aten::sum", False), ("aten::mul", True)])
def test_a_hand_written_softmax_is_not_an_activation(tmp_path: Path, last: str, named: bool) -> None:
    trace = ChromeTrace()
    for at in trace.each_step(4, STEP_US):
        for place, name in enumerate(("aten::sub", "aten::exp", last, "aten::add")):
            start = at + 20 + 40 * place
            trace.op(name, start, start + 30, [[512, 8192], [] if name == "aten::mul" else [512, 8192]], FLOAT)
            kernel = "void at::native::reduce_kernel<512, 1>()" if name == "aten::sum" else ADDS
            trace.launch((start + 5, start + 10), (at + 200 + 190 * place, at + 385 + 190 * place), kernel)
    assert (of_rule(analysed(tmp_path, trace), "unfused-activation") is not None) == named


@pytest.mark.parametrize("picks", [True, False])
def test_a_hand_written_log_softmax_over_a_vocabulary_is_a_loss_head(tmp_path: Path, picks: bool) -> None:
    # Its backward pass takes the exponential of the logits less one number per row: five kernels over one tensor. A
    # router's log-softmax selects no column.
    logits, row = [8192, 50304], [8192, 1]
    loss = [("aten::copy_", [logits, logits]), ("aten::sub", [logits, row]), ("aten::exp", [logits]), ("aten::sum", [logits])]
    loss += [("aten::gather", [logits, [], row])] if picks else []
    loss += [("aten::neg", [logits]), ("aten::sub", [logits, row]), ("aten::exp", [logits]), ("aten::mul", [row, logits])]
    trace = ChromeTrace()
    for at in trace.each_step(4, 10_000):
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
    assert margins[0] - margins[1] > 20, "44 and 9 µs, plus the error of any prediction"


@pytest.mark.parametrize("norm", [True, False])
def test_a_mean_and_a_square_root_are_a_norm_and_an_update_is_not(tmp_path: Path, norm: bool) -> None:
    """A division by the root of a mean is a norm; Adam written by hand divides by a root without a mean."""
    x, row = [8192, 768], [8192, 1]
    parts = [("aten::mean", x), ("aten::sub", x), ("aten::pow", x), ("aten::mean", x), ("aten::sqrt", row), ("aten::div", x)]
    trace = ChromeTrace()
    for at in trace.each_step(4, STEP_US):
        for place, (name, dims) in enumerate(parts if norm else [part for part in parts if part[0] != "aten::mean"]):
            start = at + 20 + 40 * place
            trace.op(name, start, start + 30, [dims, []], FLOAT)
            kernel = "void at::native::reduce_kernel<512, 1>()" if name == "aten::mean" else ADDS
            trace.launch((start + 5, start + 10), (at + 280 + 110 * place, at + 385 + 110 * place), kernel)
    assert (of_rule(analysed(tmp_path, trace), "unfused-norm") is not None) == norm


def test_copies_of_a_list_of_four_tensors_are_no_attention(tmp_path: Path) -> None:
    tensors = [[768, 768], [768], [3072, 768], [3072]]
    trace = ChromeTrace()
    for at in trace.each_step(4, STEP_US):
        trace.op("aten::_foreach_copy_", at + 20, at + 60, [tensors, tensors], ["TensorList", "TensorList"])
        copy = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>(int)"
        trace.launch((at + 25, at + 30), (at + 200, at + 900), copy)
    assert "unfused-attention" not in [note.rule for note in analysed(tmp_path, trace).not_checked]


@pytest.mark.parametrize(("kind", "fused"), [("float", True), ("c10::complex<float>", False)])
def test_the_compiler_does_not_fuse_kernels_of_complex_numbers(tmp_path: Path, kind: str, fused: bool) -> None:
    """Inductor generates no code for complex operators: it calls the same kernels as without compilation."""
    trace = ChromeTrace(made_for=kind)
    for at in trace.each_step(4, STEP_US):
        for place, name in enumerate(("aten::mul", "aten::add", "aten::mul", "aten::copy_")):
            start = at + 20 + 40 * place
            trace.op(name, start, start + 30, [[512, 8192], [512, 8192]], [kind, kind])
            trace.launch((start + 5, start + 10), (at + 200 + 190 * place, at + 385 + 190 * place), ADDS)
    assert (of_rule(analysed(tmp_path, trace), "elementwise-chains") is not None) == fused
