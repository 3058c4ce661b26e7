"""Tests of findings about batches that the training process converts to floats before it copies them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.by_hand import analysed, of_rule
from tests.support.chrome_trace import ChromeTrace

BATCH = [64, 3, 256, 256]
VALUES = 64 * 3 * 256 * 256
CONVERT_US, COPY_US, PRODUCT_US = 2000.0, 4000.0, 500.0
STEP_US = 6100.0  # The product runs during the next conversion.


def converting_loop(kind: str, masked: bool = False) -> ChromeTrace:
    """Add steps that convert a batch of type ``kind`` on the CPU, copy its floats and compute.

    The conversion takes CONVERT_US, the copy from pageable memory COPY_US, and the product PRODUCT_US. With ``masked``, the batch
    is of floats, and ``kind`` is the type of a mask of the same size.
    """
    trace = ChromeTrace(made_for=f"{kind} {masked}")
    for at in trace.each_step(4, STEP_US):
        if masked:
            trace.op("aten::mul", at + 20, at + 20 + CONVERT_US, [BATCH, BATCH], ["float", kind])
        else:
            trace.op("aten::_to_copy", at + 20, at + 20 + CONVERT_US, [BATCH, []], [kind, "Scalar"])
        copied = at + 30 + CONVERT_US
        trace.op("aten::copy_", copied, copied + COPY_US + 30, [BATCH, BATCH, []], ["float", "float", "Scalar"])
        trace.launch(
            (copied + 5, copied + COPY_US + 25),
            (copied + 15, copied + 15 + COPY_US),
            "Memcpy HtoD (Pageable -> Device)",
            "gpu_memcpy",
            bytes=4 * VALUES,
        )
        start = copied + COPY_US + 40
        trace.op("aten::mm", start, start + 20, [[4096, 4096], [4096, 4096]], ["c10::BFloat16", "c10::BFloat16"])
        trace.launch(
            (start + 5, start + 10), (start + 15, start + 15 + PRODUCT_US), "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNT"
        )
    return trace


@pytest.mark.parametrize(("kind", "share"), [("unsigned char", 1 / 4), ("short int", 1 / 2), ("float", 1), ("double", 1)])
def test_a_batch_converted_on_the_gpu_is_copied_before_its_conversion(tmp_path: Path, kind: str, share: float) -> None:
    found = of_rule(analysed(tmp_path, converting_loop(kind)), "operators-on-cpu")
    assert found is not None and found.predicted_step_ms is not None
    assert found.predicted_step_ms == pytest.approx((share * COPY_US + PRODUCT_US) / 1e3, rel=0.05)
    assert ("instead of the converted ones" in found.prediction_note) == (share < 1)
    code = [change.after for change in found.changes if "pin the memory" in change.after]
    assert len(code) == (share < 1) and all(("uint8" if share < 1 / 2 else "int16") in text for text in code)


def test_a_mask_of_the_same_size_is_not_the_batch(tmp_path: Path) -> None:
    """A mask of one byte per value does not replace the floats that it changes."""
    found = of_rule(analysed(tmp_path, converting_loop("bool", masked=True)), "operators-on-cpu")
    assert found is not None and found.predicted_step_ms == pytest.approx((COPY_US + PRODUCT_US) / 1e3, rel=0.05)


def test_the_time_after_a_wait_counts_as_time_of_the_operators(tmp_path: Path) -> None:
    """Two operators take 2,000 µs each on the CPU, then the host waits for a copy and a product.

    The wait also owns a part of the gap in which the host computes. Without the operators, the whole gap disappears.
    """
    trace, at = ChromeTrace(), 0.0
    for k in range(4):
        for number, name in enumerate(("aten::add", "aten::div")):
            trace.op(name, at + number * CONVERT_US, at + (number + 1) * CONVERT_US, [[1000], []], ["float", "Scalar"])
        start, copied = at + 2 * CONVERT_US, at + 2 * CONVERT_US + 412
        trace.op("aten::copy_", start, start + 20, [[1000], [1000]], ["float", "float"])
        memory = {"bytes": 4000}
        trace.launch((start + 2, start + 10), (start + 12, copied), "Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", **memory)
        trace.op("aten::mm", start + 20, start + 28, [[1024, 1024], [1024, 1024]], ["c10::BFloat16"] * 2)
        trace.launch((start + 22, start + 25), (copied + 1, copied + 301), "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNT")
        trace.host("cuda_runtime", "cudaDeviceSynchronize", start + 29, copied + 303)
        trace.step(k + 1, at, copied + 310)
        at = copied + 310
    found = of_rule(analysed(tmp_path, trace), "operators-on-cpu")
    assert found is not None and "delay the launches for 4.0" in found.title.replace("4 ms", "4.0 ms")
    assert "outside the profiled steps" not in found.title
