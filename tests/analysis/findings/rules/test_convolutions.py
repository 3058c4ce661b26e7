"""Tests of findings about convolutions: memory layout and the search for algorithms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.by_hand import analysed, kernels, of_rule
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import finding, result_of, stopwatch_ms

STEP_US = 1000
HALF = ["c10::BFloat16", "c10::BFloat16"]


def _converting(image: list[int], norm: str, kernel: str) -> ChromeTrace:
    """Add steps of 1,000 µs: 300 of conversion, 400 of a convolution and 200 of a norm."""
    trace = ChromeTrace()
    for at in trace.each_step(4, STEP_US):
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
        # The operator is already in NHWC.
        (128, "aten::native_batch_norm", "batch_norm_transform_input_channels_last_kernel", False),
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
    # Three output channels do not fill a tile. In NHWC cuDNN used another kernel for their gradient, which took ten times
    # as long and cancelled the gain.
    layout = finding("sharper_first", "layout-conversions")
    assert layout is not None and layout.severity == "warning"
    assert layout.predicted_low_ms is not None and layout.predicted_high_ms is not None
    assert layout.predicted_low_ms < stopwatch_ms("sharper_last") < layout.predicted_high_ms


def test_channels_last_is_not_advised_for_conv1d() -> None:
    found = finding("wavenet", "layout-conversions")
    assert found is not None and found.severity != "critical" and found.confidence == "low"
    assert "one-dimensional" in found.title and "Conv2d of height 1" in found.fix
    flat = finding("vgg_first", "layout-conversions")
    assert flat is not None and flat.severity == "critical" and "one-dimensional" not in flat.title


@pytest.mark.parametrize("waits", [False, True])
def test_a_convolution_with_many_kernels_is_searching_only_if_it_waits(tmp_path: Path, waits: bool) -> None:
    # A 5x5 convolution over 64 channels by Fourier transforms launches three kernels for each of nine parts of the batch, in every step.
    trace = ChromeTrace()
    for at in trace.each_step(4, STEP_US):
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
    # In the profile, the host searches during 744 of 754 ms. The run's step takes 625 ms, and the GPU waits for 601 ms of it.
    (found,) = (f for f in result_of("conv_searches").findings if f.rule == "convolution-search")
    best = result_of("conv_searches").lead.best
    assert f"{744 / best.profiled.value * best.ms:.0f} ms" in found.title.replace("\u00a0", " ")
    assert 595 < found.ceiling_ms_per_step < 601  # A search costs nothing while the GPU works.


def test_predicted_step_without_planning_includes_another_backend() -> None:
    # Four layers of 0.2 ms follow 5 ms of planning. With the kernels of flash attention, they take 0.2 to 0.46 ms each.
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
