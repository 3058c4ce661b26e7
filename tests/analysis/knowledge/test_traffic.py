"""Tests of the least number of bytes that an operation moves, by hand."""

from __future__ import annotations

import pytest

from sawtooth.analysis.knowledge.traffic import operator_bytes

CONV = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]


@pytest.mark.parametrize(
    ("op", "dims", "types", "concrete", "expected"),
    [
        # A 4×8, B 8×16, C 4×16 in bf16: 2 · (32 + 128 + 64)
        ("aten::mm", [[4, 8], [8, 16]], ["c10::BFloat16"] * 2, [], 2 * (32 + 128 + 64)),
        # bias 16 as well
        ("aten::addmm", [[16], [4, 8], [8, 16], [], []], ["float"] * 3 + ["Scalar"] * 2, [], 4 * (16 + 32 + 128 + 64)),
        ("aten::bmm", [[3, 4, 8], [3, 8, 16]], ["c10::Half"] * 2, [], 2 * 3 * (32 + 128 + 64)),
        # FP8 in, 16-bit out; two FP32 scales
        ("aten::_scaled_mm", [[4, 8], [8, 16], [1], [1]], ["c10::Float8_e4m3fn"] * 2 + ["float"] * 2, [], 32 + 128 + 8 + 2 * 64),
        # 8×8 image, stride 2, padding 1, 3×3 filter → 4×4: x 1·3·64, w 5·3·9, out 1·5·16
        ("aten::convolution", [[1, 3, 8, 8], [5, 3, 3, 3], [], [], [], [], [], [], []], ["float", "float"] + [""] * 7, CONV, 4 * (192 + 135 + 80)),
        # gradients of input and weight
        ("aten::convolution_backward", [[1, 5, 4, 4], [1, 3, 8, 8], [5, 3, 3, 3]], ["float"] * 3, [""] * 10 + ["[True, True, False]"], 4 * (80 + 192 + 135 + 192 + 135)),
        # q, k, v and the output
        ("aten::_scaled_dot_product_flash_attention", [[2, 4, 16, 8]] * 3, ["c10::Half"] * 3, [], 2 * 4 * 1024),
        # dO, q, k, v read, dq, dk, dv written
        ("aten::_scaled_dot_product_flash_attention_backward", [[2, 4, 16, 8]] * 4, ["c10::Half"] * 4, [], 2 * 7 * 1024),
        # broadcast: 4×8 + 8 → 4×8
        ("aten::add", [[4, 8], [8], []], ["float", "float", "Scalar"], [], 4 * (32 + 8 + 32)),
        # batch norm: x 2·3·8·8 read and written, four vectors of 3 read
        ("aten::native_batch_norm", [[2, 3, 8, 8], [3], [3], [3], [3]], ["float"] * 5, [], 4 * (384 + 12 + 384)),
        ("aten::gelu", [[100]], ["c10::BFloat16"], [], 400),
        ("aten::sum", [[4, 8]], ["float"], [], 128),
    ],
)  # fmt: skip
def test_bytes_by_hand(op, dims, types, concrete, expected):
    assert operator_bytes(op, dims, types, concrete) == expected


@pytest.mark.parametrize(
    ("op", "dims", "types"),
    [
        ("aten::mm", None, None),
        ("aten::mm", [[4, 8], [8, 16]], None),
        ("aten::embedding", [[50304, 768], [8, 1024]], ["float", "long int"]),  # The operator reads a few rows of the table.
        ("aten::_foreach_add_", [[[4], [8]], [[4], [8]]], ["TensorList", "TensorList"]),
        ("mylib::op", [[4]], ["float"]),
    ],
)
def test_unknown_is_none(op, dims, types):
    assert operator_bytes(op, dims, types, []) is None
