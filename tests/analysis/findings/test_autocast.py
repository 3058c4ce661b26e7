"""Tests of autocast predictions: 16-bit tensors, added casts, and the time of both."""

import pytest

from sawtooth.analysis.findings.autocast.tensors import StepTensors
from sawtooth.analysis.replay.edits import TimedOps
from tests.support.findings_of import finding


@pytest.mark.parametrize(("before", "measured_ms"), [("gpt_tf32", 8.95), ("gpt_fp32", 8.95), ("vit_tf32", 9.43)])
def test_the_step_in_bf16_is_predicted_with_its_casts_and_elementwise_work(before: str, measured_ms: float) -> None:
    # The prediction is compared with the stopwatch of the same loop in bf16. The products alone gave 11.0 for the ViT.
    bf16 = finding(before, "fp32-products")
    assert bf16 is not None and bf16.predicted_step_ms == pytest.approx(measured_ms, rel=0.08)
    assert bf16.predicted_low_ms is not None and bf16.predicted_high_ms is not None
    assert bf16.predicted_low_ms < measured_ms < bf16.predicted_high_ms < 1.5 * measured_ms
    timed = next(edit for edit in bf16.edits if isinstance(edit, TimedOps))
    assert all(low <= ns <= high for low, ns, high in zip(timed.low_ns, timed.dur_ns, timed.high_ns, strict=True))


def test_a_tensor_has_the_dtype_of_the_latest_result_of_its_size() -> None:
    tensors = StepTensors()
    assert tensors.is_in_16_bits(64) is None
    tensors.add(64, in_16_bits=False)
    tensors.add(192, in_16_bits=True)  # Queries, keys and values are views of one product.
    assert tensors.is_in_16_bits(64) is True
    tensors.add(64, in_16_bits=False)
    assert tensors.is_in_16_bits(64) is False and tensors.earlier[64] is False
