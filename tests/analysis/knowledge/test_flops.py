"""Tests of FLOPs from recorded shapes against PyTorch's FLOP counter."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from sawtooth.analysis.knowledge.flops import (
    is_flop_operator,
    operand_dtype,
    operator_flops,
    outermost,
    parse_bool,
    parse_ints,
    parse_mask,
    peak_dtype,
)
from tests.support.cpu_profile import operators_of

aten = torch.ops.aten


def flops_of(events: list[dict[str, Any]]) -> float:
    parent = np.array([e["parent"] for e in events], dtype=np.int64)
    counted = np.array([is_flop_operator(e["name"]) for e in events])
    total = 0.0
    for index in np.flatnonzero(outermost(parent, counted)):
        args = events[index]["args"]
        flops = operator_flops(events[index]["name"], args["Input Dims"], args["Concrete Inputs"])
        assert flops is not None, events[index]
        total += flops
    return total


def counter_flops(step: Callable[[], Any]) -> float:
    with FlopCounterMode(display=False) as counter:
        step()
    return float(counter.get_total_flops())


def r(rng: random.Random, low: int = 1, high: int = 24) -> int:
    return rng.randint(low, high)


def product(kind: str, rng: random.Random) -> Callable[[], Any]:
    b, m, k, n = r(rng), r(rng), r(rng), r(rng)
    a2, b2, a3, b3 = torch.randn(m, k), torch.randn(k, n), torch.randn(b, m, k), torch.randn(b, k, n)
    steps: dict[str, Callable[[], Any]] = {
        "mm": lambda: torch.mm(a2, b2),
        "addmm": lambda: torch.addmm(torch.randn(n), a2, b2),
        "bmm": lambda: torch.bmm(a3, b3),
        "baddbmm": lambda: torch.baddbmm(torch.randn(b, m, n), a3, b3),
        "matmul_3d_2d": lambda: torch.matmul(a3, b2),
        "matmul_4d": lambda: torch.matmul(torch.randn(2, b, m, k), torch.randn(2, b, k, n)),
        "linear_3d": lambda: torch.nn.functional.linear(a3, torch.randn(n, k), torch.randn(n)),
        "einsum": lambda: torch.einsum("bmk,bkn->bmn", a3, b3),
    }
    return steps[kind]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["mm", "addmm", "bmm", "baddbmm", "matmul_3d_2d", "matmul_4d", "linear_3d", "einsum"])
def test_products_equal_the_flop_counter(kind, seed, tmp_path):
    step = product(kind, random.Random(seed))
    expected = counter_flops(step)
    assert expected > 0
    assert flops_of(operators_of(step, tmp_path)) == expected


def convolution(rng: random.Random, axes: int, transposed: bool, groups: int) -> Callable[[], Any]:
    c_in, c_out = groups * r(rng, 1, 5), groups * r(rng, 1, 5)
    size = [r(rng, 7, 14) for _ in range(axes)]
    stride, padding = [r(rng, 1, 2) for _ in range(axes)], [r(rng, 0, 2) for _ in range(axes)]
    dilation, kernel = [r(rng, 1, 2) for _ in range(axes)], [r(rng, 1, 3) for _ in range(axes)]
    bias = rng.random() < 0.5
    if transposed:
        layer = [torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d][axes - 1](
            c_in, c_out, kernel, stride, padding, groups=groups, bias=bias, dilation=dilation
        )
    else:
        layer = [torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d][axes - 1](
            c_in, c_out, kernel, stride, padding, dilation, groups, bias
        )
    x = torch.randn(r(rng, 1, 4), c_in, *size, requires_grad=rng.random() < 0.7)
    return lambda: layer(x)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_convolutions_forward_and_backward_equal_the_flop_counter(axes, transposed, seed, tmp_path):
    forward = convolution(random.Random(seed), axes, transposed, groups=1)
    expected = counter_flops(lambda: forward().sum().backward())
    assert expected > 0
    assert flops_of(operators_of(lambda: forward().sum().backward(), tmp_path)) == expected


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("axes", [1, 2])
def test_grouped_convolutions(axes, groups, tmp_path):
    forward = convolution(random.Random(groups), axes, False, groups)
    one_way = counter_flops(forward)
    assert flops_of(operators_of(forward, tmp_path)) == one_way
    # Each gradient costs as much as the forward pass. PyTorch's counter multiplies the weight gradient's share by the groups.
    events = operators_of(lambda: forward().sum().backward(), tmp_path)
    mask = parse_mask(next(e for e in events if e["name"] == "aten::convolution_backward")["args"]["Concrete Inputs"][10])
    assert mask is not None
    assert flops_of(events) == one_way * (1 + sum(mask[:2]))


@pytest.mark.parametrize("seed", range(3))
def test_a_small_network_equals_the_flop_counter(seed, tmp_path):
    rng = random.Random(seed)
    layer = torch.nn.TransformerEncoderLayer(32, 4, r(rng, 8, 64), dropout=0.0, batch_first=True)
    x = torch.randn(r(rng, 1, 4), r(rng, 2, 20), 32)

    def step() -> None:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            layer(x).sum().backward()

    assert flops_of(operators_of(step, tmp_path)) == counter_flops(step)


FUSED = ["flash", "efficient", "cudnn"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", FUSED)
def test_fused_attention_equals_the_registered_formula(kind, seed):
    rng = random.Random(seed)
    b, kv_heads, ratio, s_q, s_k, d, d_v = r(rng), r(rng, 1, 4), r(rng, 1, 4), r(rng), r(rng), r(rng), r(rng)
    q, k, v = [b, kv_heads * ratio, s_q, d], [b, kv_heads, s_k, d], [b, kv_heads, s_k, d_v]
    grad = [b, kv_heads * ratio, s_q, d_v]
    forward, backward = f"_scaled_dot_product_{kind}_attention", f"_scaled_dot_product_{kind}_attention_backward"
    expected = flop_registry[getattr(aten, forward)](*map(meta, (q, k, v)), out_val=None)
    assert operator_flops(f"aten::{forward}", [q, k, v], []) == expected
    expected = flop_registry[getattr(aten, backward)](*map(meta, (grad, q, k, v)), out_val=None)
    assert operator_flops(f"aten::{backward}", [grad, q, k, v], []) == expected


def meta(shape: list[int]) -> torch.Tensor:
    return torch.empty(shape, device="meta")


@pytest.mark.parametrize("seed", range(3))
def test_scaled_mm_equals_the_registered_formula(seed):
    rng = random.Random(seed)
    m, k, n = r(rng), r(rng), r(rng)
    expected = flop_registry[aten._scaled_mm](meta([m, k]), meta([k, n]), meta([1]), meta([1]), out_val=None)
    assert operator_flops("aten::_scaled_mm", [[m, k], [k, n], [1], [1]], []) == expected


@pytest.mark.parametrize(
    ("op", "dims", "expected"),
    [
        ("aten::_int_mm", [[17, 8], [8, 16]], 2 * 17 * 8 * 16),
        ("aten::_addmm_activation", [[16], [4, 8], [8, 16]], 2 * 4 * 8 * 16),
        ("aten::_grouped_mm", [[96, 64], [4, 64, 32], [4]], 2 * 96 * 64 * 32),  # 96 rows shared by four experts
        ("aten::_grouped_mm", [[4, 8, 64], [64, 96], [4]], 2 * 8 * 64 * 96),
        ("aten::_scaled_grouped_mm", [[32, 96], [96, 16], [3]], 2 * 32 * 96 * 16),  # K shared by the groups: a weight gradient
        ("aten::_grouped_mm", [[4, 8, 64], [4, 64, 32]], 2 * 4 * 8 * 64 * 32),
        ("aten::_weight_int8pack_mm", [[4, 64], [32, 64], [32]], 2 * 4 * 64 * 32),
        ("flash_attn::_flash_attn_forward", [[2, 128, 8, 64]] * 3, 4 * 2 * 8 * 128 * 128 * 64),
        ("aten::_flash_attention_backward", [[2, 128, 8, 64]] * 4, 10 * 2 * 8 * 128 * 128 * 64),
        ("aten::_efficient_attention_forward", [[2, 128, 8, 64]] * 3 + [[], []], 4 * 2 * 8 * 128 * 128 * 64),
    ],
)  # fmt: skip
def test_operators_unknown_to_the_flop_counter(op, dims, expected):
    assert operator_flops(op, dims, []) == expected


@pytest.mark.parametrize(
    ("op", "dims", "concrete"),
    [
        ("aten::mm", None, []),
        ("aten::mm", [], []),
        ("aten::mm", [[4, 8]], []),
        ("aten::mm", [[4, 8], [9, 16]], []),
        ("aten::mm", [[4, 8], "[8, ...]"], []),
        ("aten::add", [[4, 8], [4, 8]], []),
        ("aten::linear", [[4, 8], [16, 8]], []),  # Its addmm or mm counts instead.
        ("aten::conv2d", [[1, 3, 8, 8], [4, 3, 3, 3]], ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "1"]),
        ("aten::cudnn_convolution", [[1, 3, 8, 8], [4, 3, 3, 3]], ["", "", "[0, 0]", "[1, 1]", "[1, 1]", "1"]),
        ("aten::convolution", [[1, 3, 8, 8], [4, 3, 3, 3]], None),  # Stride and padding not recorded.
        ("aten::convolution_backward", [[1, 4, 6, 6], [1, 3, 8, 8], [4, 3, 3, 3]], None),  # Mask not recorded.
        ("flash_attn::_flash_attn_varlen_forward", [[4096, 8, 64]] * 3, []),  # lengths of packed sequences are not in the shapes
        ("aten::_flash_attention_forward", [[4096, 8, 64]] * 3 + [[5], [5]], []),
        ("aten::_efficient_attention_forward", [[1, 4096, 8, 64]] * 3 + [[], [5], [5]], []),
    ],
)  # fmt: skip
def test_unknown_is_none(op, dims, concrete):
    assert operator_flops(op, dims, concrete) is None


def test_only_the_outermost_operator_counts():
    # 0 annotation ⊃ 1 attention ⊃ 2 linear ⊃ 3 flash; 4 mm under the annotation; 5 mm at the top
    parent = np.array([-1, 0, 1, 2, 0, -1])
    counted = np.array([False, True, False, True, True, True])
    assert outermost(parent, counted).tolist() == [False, True, False, False, True, True]
    assert outermost(parent[:0], counted[:0]).tolist() == []


@pytest.mark.parametrize(
    ("text", "ints", "boolean", "mask"),
    [
        ("[1, 2]", (1, 2), None, None),
        ("3", (3,), None, None),
        ("[]", (), None, None),
        ("", None, None, None),
        (None, None, None, None),
        ("[1, 2, ...]", None, None, None),
        ("True", None, True, (True,)),
        ("[True, True, False]", None, None, (True, True, False)),
        ("hello", None, None, None),
    ],
)  # fmt: skip
def test_concrete_inputs(text, ints, boolean, mask):
    assert parse_ints(text) == ints
    assert parse_bool(text) is boolean
    if not (text and text[0] in "[0123456789" and "T" not in text):
        assert parse_mask(text) == mask


def test_dtypes_and_peaks():
    assert operand_dtype("aten::addmm", ["float", "c10::BFloat16", "c10::BFloat16"]) == "bf16"
    assert operand_dtype("aten::mm", ["c10::Float8_e4m3fn"] * 2) == "fp8"
    assert operand_dtype("aten::mm", None) is None
    assert peak_dtype("aten::mm", ["float", "float"], "no") == "fp32"
    assert peak_dtype("aten::mm", ["float", "float"], "yes") == "tf32"
    assert peak_dtype("aten::mm", ["float", "float"], "yes", "amd") == "fp32"
    # three TF32 products for one
    assert peak_dtype("aten::_scaled_dot_product_efficient_attention", ["float"] * 3, "yes") == "fp32"
