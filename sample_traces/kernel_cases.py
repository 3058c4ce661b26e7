"""The kernels that `kernel_grid.py` times: operators with typical training shapes of all sizes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from sawtooth.sample_traces.kernel_case import DEVICE, Call, Case, differentiable, gradients, rand
from sawtooth.sample_traces.kernel_convolutions import convolutions
from sawtooth.sample_traces.kernel_products import products

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


def attentions() -> Iterator[Case]:
    """Yield attention by backend, length, head size and mask; batch × heads fills the GPU as in training."""
    sizes = ((32, 8, 128), (64, 12, 197), (16, 8, 512), (8, 16, 1024), (4, 16, 2048), (2, 16, 4096))
    for backend, head, (batch, heads, seq) in itertools.product(BACKENDS, (32, 64, 80, 128, 256), sizes):
        if backend == "math" and (seq > 2048 or head in (80, 256)):
            continue
        for causal, dtype in (
            (False, "bf16"),
            (True, "bf16"),
            *(((False, "fp32"),) if backend in ("efficient", "math") else ()),
        ):
            shape = [batch, heads, seq, head]

            def forward(q: Tensor, k: Tensor, v: Tensor, causal: bool = causal, backend: str = backend) -> Tensor:
                with sdpa_kernel(BACKENDS[backend]):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

            name = "aten::scaled_dot_product_attention"
            yield from differentiable("attention", name, dtype, [shape] * 3, forward, backend=backend, causal=causal)


ROWS_WIDTHS = ((2048, 512), (8192, 512), (8192, 1024), (16384, 768), (16384, 2048), (4096, 4096), (65536, 256), (65536, 1024))
IMAGES = ((16, 64, 112), (64, 64, 56), (64, 256, 56), (96, 512, 28), (96, 1024, 14), (64, 2048, 7))


def by_rows(dtype: str, rows: int, width: int) -> Iterator[Case]:
    """Yield operators on (rows, width): norms, activations, softmax, sums."""
    shape, vector = [rows, width], [width]
    table: tuple[tuple[str, str, list[list[int]], Callable[..., Tensor]], ...] = (
        ("norm", "aten::native_layer_norm", [shape, vector, vector], lambda x, w, b: F.layer_norm(x, [width], w, b)),
        ("norm", "aten::_fused_rms_norm", [shape, vector], lambda x, w: F.rms_norm(x, [width], w)),
        ("elementwise", "aten::gelu", [shape], F.gelu),
        ("elementwise", "aten::silu", [shape], F.silu),
        ("elementwise", "aten::relu", [shape], F.relu),
        ("elementwise", "aten::add", [shape, shape], torch.add),
        ("elementwise", "aten::mul", [shape, shape], torch.mul),
        ("elementwise", "aten::native_dropout", [shape], lambda x: F.dropout(x, 0.1)),
        ("softmax", "aten::_softmax", [shape], lambda x: torch.softmax(x, -1)),
        ("softmax", "aten::_log_softmax", [shape], lambda x: torch.log_softmax(x, -1)),
    )
    for family, operator, shapes, forward in table:
        yield from differentiable(family, operator, dtype, shapes, forward)
    single: tuple[tuple[str, str, list[list[int]], Callable[..., Any]], ...] = (
        ("reduction", "aten::sum", [shape], lambda x: x.sum()),
        ("reduction", "aten::sum_rows", [shape], lambda x: x.sum(0)),
        ("reduction", "aten::linalg_vector_norm", [shape], torch.linalg.vector_norm),
        ("elementwise", "aten::add_bias", [shape, vector], torch.add),
        ("copy", "aten::copy_", [shape], lambda x: x.clone()),
        ("copy", "aten::copy_cast", [shape], lambda x: x.to(torch.float32 if dtype == "bf16" else torch.bfloat16)),
        ("copy", "aten::copy_transposed", [shape], lambda x: x.t().contiguous()),
    )
    for family, operator, shapes, call in single:

        def make(shapes: list[list[int]] = shapes, call: Callable[..., Any] = call) -> Call:
            tensors = [rand(shape, dtype) for shape in shapes]
            return lambda: call(*tensors)

        yield Case(family, operator, dtype, shapes, make)


def by_images(dtype: str, batch: int, channels: int, side: int, layout: str) -> Iterator[Case]:
    """Yield operators on images in one layout: batch norm, group norm, pooling."""
    order = torch.channels_last if layout == "NHWC" else torch.contiguous_format
    shape, vector = [batch, channels, side, side], [channels]

    def batch_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, w, b, training=True)

    def group_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.group_norm(x, min(32, channels), w, b)

    for operator, call, shapes in (
        ("aten::native_batch_norm", batch_norm, [shape, vector, vector]),
        ("aten::native_group_norm", group_norm, [shape, vector, vector]),
        ("aten::max_pool2d_with_indices", lambda x: F.max_pool2d(x, 3, 2, 1), [shape]),
    ):
        weight_dtype = "fp32" if "batch" in operator else dtype  # Autocast keeps a batch norm's weight in FP32.

        def inputs(shapes: list[list[int]] = shapes, weight_dtype: str = weight_dtype) -> list[Tensor]:
            image = rand(shapes[0], dtype).contiguous(memory_format=order)
            return [image, *(rand(shape, weight_dtype) for shape in shapes[1:])]

        def once(call: Callable[..., Tensor] = call, inputs: Callable[[], list[Tensor]] = inputs) -> Call:
            tensors = inputs()
            return lambda: call(*tensors)

        def back(call: Callable[..., Tensor] = call, inputs: Callable[[], list[Tensor]] = inputs) -> Call:
            return gradients(call, [tensor.requires_grad_() for tensor in inputs()])

        yield Case("image", operator, dtype, shapes, once, {"layout": layout})
        yield Case("image", f"{operator}_backward", dtype, [shape, *shapes], back, {"layout": layout})


@functools.cache
def scattered(rows: int, limit: int) -> Tensor:
    """Return `rows` indices below `limit`, far from each other."""
    return torch.arange(rows, device=DEVICE) * 7919 % limit


def losses() -> Iterator[Case]:
    """Yield cross-entropy over vocabularies, embeddings and their gradients."""
    for rows, vocab in ((2048, 16384), (4096, 32000), (8192, 50257), (8192, 50304), (512, 1000)):
        for dtype in ("fp32", "bf16"):

            def loss(x: Tensor, rows: int = rows, vocab: int = vocab) -> Tensor:
                return F.cross_entropy(x, scattered(rows, vocab))

            yield from differentiable("softmax", "aten::cross_entropy_loss", dtype, [[rows, vocab]], loss)
    for rows, vocab, width in ((8192, 50304, 768), (16384, 32000, 1024), (4096, 1_000_000, 64)):

        def look_up(table: Tensor, rows: int = rows, vocab: int = vocab) -> Tensor:
            return F.embedding(scattered(rows, vocab), table)

        yield from differentiable("index", "aten::embedding", "fp32", [[vocab, width]], look_up, rows=rows)


def optimizers() -> Iterator[Case]:
    """Yield a step of AdamW, Adam and SGD: single, foreach and fused, few large or many small tensors."""
    kinds: dict[str, dict[str, Any]] = {"single": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    for (count, width), kind, name in itertools.product(
        ((4, 64), (60, 256), (24, 1024), (12, 2048), (6, 4096), (150, 512)), kinds, ("AdamW", "Adam", "SGD")
    ):

        def make(count: int = count, width: int = width, kind: str = kind, name: str = name) -> Call:
            params = [rand([width, width], "fp32", grad=True) for _ in range(count)]
            for tensor in params:
                tensor.grad = torch.randn_like(tensor)
            more = {"momentum": 0.9} if name == "SGD" else {}
            optimizer = getattr(torch.optim, name)(params, lr=1e-6, **more, **kinds[kind])
            optimizer.step()
            return optimizer.step

        yield Case("optimizer", f"{name}.step", "fp32", [[count, width, width]] * 4, make, {"kind": kind, "tensors": count})


# `seed` 0 is the grid of the fit. Another seed gives other products and convolutions, to evaluate the fit.
FAMILIES: dict[str, Callable[[int], Iterator[Case]]] = {
    "products": products,
    "attentions": lambda seed: attentions(),
    "convolutions": convolutions,
    "rows": lambda seed: (c for dtype in ("bf16", "fp32") for size in ROWS_WIDTHS for c in by_rows(dtype, *size)),
    "images": lambda seed: (
        case
        for dtype, size, layout in itertools.product(("bf16", "fp32"), IMAGES, ("NCHW", "NHWC"))
        for case in by_images(dtype, *size, layout)
    ),
    "losses": lambda seed: losses(),
    "optimizers": lambda seed: optimizers(),
}
