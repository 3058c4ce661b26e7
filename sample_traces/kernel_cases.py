"""The kernels that `kernel_grid.py` times: operators with typical training shapes of all sizes."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch users know
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from sawtooth.sample_traces.kernel_case import DEVICE, Call, Case, differentiable, gradients, rand

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


def log_uniform(rng: random.Random, low: int, high: int, multiple: int) -> int:
    """Return a size between `low` and `high`: a multiple of `multiple`, or odd if `multiple` is 1."""
    size = round(math.exp(rng.uniform(math.log(low), math.log(high))) / multiple) * multiple
    return max(size, multiple) if multiple > 1 else size | 1


def product(dtype: str, batch: int, m: int, n: int, k: int, layout: str) -> Case:
    """Return the case of (batch ×) m × k times k × n; `layout` NN, NT or TN marks a transposed view."""
    front = [batch] if batch else []

    def make() -> Call:
        a = rand([*front, k, m], dtype).transpose(-1, -2) if layout[0] == "T" else rand([*front, m, k], dtype)
        b = rand([*front, n, k], dtype).transpose(-1, -2) if layout[1] == "T" else rand([*front, k, n], dtype)
        if dtype == "fp8":
            one = torch.ones((), device=DEVICE)
            return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        return (lambda: torch.bmm(a, b)) if batch else (lambda: torch.mm(a, b))

    operator = "aten::_scaled_mm" if dtype == "fp8" else "aten::bmm" if batch else "aten::mm"
    return Case("gemm", operator, dtype, [[*front, m, k], [*front, k, n]], make, {"layout": layout})


def products(seed: int) -> Iterator[Case]:
    """Yield products of random sizes, of language models and classifiers, and batched ones."""
    for dtype in ("bf16", "fp16", "tf32", "fp32", "fp8"):
        rng = random.Random(f"{dtype}{seed or ''}")
        most = 3e11 if dtype in ("fp32", "tf32") else 1.2e12
        counts = {64: 110, 8: 50, 1: 0 if dtype == "fp8" else 50}
        for multiple, count in counts.items():
            multiple = max(multiple, 16) if dtype == "fp8" else multiple
            while count:
                m, n, k = (log_uniform(rng, 32, 32768, multiple) for _ in range(3))
                if not 2e7 <= 2 * m * n * k <= most or m * n + m * k + n * k > 6e8:
                    continue
                count -= 1
                yield product(dtype, 0, m, n, k, "NT" if dtype == "fp8" else rng.choice(("NN", "NT", "TN")))
        tokens_widths = itertools.product((512, 4096, 16384), (512, 768, 1024, 2048, 4096))
        for tokens, width in tokens_widths if dtype in ("bf16", "tf32") else ():
            for wide in (3 * width, 4 * width):
                for layout, (m, n, k) in zip(
                    ("NT", "NN", "TN"), ((tokens, wide, width), (tokens, width, wide), (width, wide, tokens)), strict=True
                ):
                    yield product(dtype, 0, m, n, k, layout)
        for tokens, vocab in itertools.product((2048, 8192), (32000, 50257, 50304)) if dtype != "fp8" else ():
            for layout, (m, n, k) in zip(
                ("NT", "NN", "TN"), ((tokens, vocab, 512), (tokens, 512, vocab), (vocab, 512, tokens)), strict=True
            ):
                yield product(dtype, 0, m, n, k, layout)
        for batch in (8, 64, 512) if dtype != "fp8" else ():
            for m, n, k in ((128, 128, 64), (512, 512, 64), (512, 64, 512), (197, 197, 64), (256, 1024, 256)):
                yield product(dtype, batch, m, n, k, "NN" if n == 64 else "NT")


# Channels in and out, side, kernel, stride, groups (0: depthwise) of ResNets, U-Nets, ConvNeXts and EfficientNets.
CONVOLUTIONS = (
    *((3, 64, 224, 7, 2, 1), (64, 64, 56, 1, 1, 1), (64, 64, 56, 3, 1, 1), (64, 256, 56, 1, 1, 1), (256, 128, 56, 1, 1, 1)),
    *(
        (128, 128, 56, 3, 2, 1),
        (128, 128, 28, 3, 1, 1),
        (128, 512, 28, 1, 1, 1),
        (512, 256, 28, 1, 1, 1),
        (256, 256, 28, 3, 2, 1),
    ),
    *(
        (256, 256, 14, 3, 1, 1),
        (256, 1024, 14, 1, 1, 1),
        (512, 512, 7, 3, 1, 1),
        (512, 2048, 7, 1, 1, 1),
        (512, 1024, 28, 1, 2, 1),
    ),
    *((3, 96, 224, 4, 4, 1), (96, 192, 56, 2, 2, 1), (3, 32, 128, 3, 1, 1), (32, 32, 128, 3, 1, 1), (64, 128, 64, 3, 1, 1)),
    *((256, 128, 64, 3, 1, 1), (128, 64, 128, 3, 1, 1), (16, 16, 112, 3, 1, 1), (24, 72, 56, 1, 1, 1), (40, 120, 28, 1, 1, 1)),
    *((320, 320, 32, 3, 1, 1), (100, 100, 28, 3, 1, 1), (32, 32, 112, 3, 1, 0), (96, 96, 56, 3, 2, 0), (144, 144, 56, 5, 1, 0)),
    *(
        (96, 96, 56, 7, 1, 0),
        (384, 384, 14, 7, 1, 0),
        (480, 480, 14, 5, 1, 0),
        (1152, 1152, 7, 5, 1, 0),
        (256, 256, 14, 3, 1, 32),
    ),
)


def convolution(dtype: str, batch: int, size: Sequence[int], layout: str, backward: bool, search: bool) -> Case:
    """Return one 2-D convolution or its backward pass (both gradients) in NCHW or NHWC."""
    inputs, outputs, side, kernel, stride, groups = size
    groups = groups or inputs
    padding = 0 if kernel == stride else kernel // 2
    order = torch.channels_last if layout == "NHWC" else torch.contiguous_format
    after = (side + 2 * padding - kernel) // stride + 1
    x_dims, w_dims = [batch, inputs, side, side], [outputs, inputs // groups, kernel, kernel]

    def make() -> Call:
        x, w = (rand(dims, dtype).contiguous(memory_format=order) for dims in (x_dims, w_dims))
        grad = rand([batch, outputs, after, after], dtype).contiguous(memory_format=order)
        place = ([stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups)
        if backward:
            return lambda: torch.ops.aten.convolution_backward(grad, x, w, None, *place, [True, True, False])
        return lambda: torch.ops.aten.convolution(x, w, None, *place)

    name, front = ("aten::convolution_backward", [[batch, outputs, after, after]]) if backward else ("aten::convolution", [])
    extra = {"layout": layout, "stride": stride, "padding": padding, "groups": groups, "benchmark": search}
    return Case("conv", name, dtype, [*front, x_dims, w_dims], make, extra)


def random_convolutions(seed: int, count: int = 32) -> Iterator[tuple[int, ...]]:
    """Yield sizes that are not in CONVOLUTIONS, with typical channels, sides, kernels and groups."""
    rng = random.Random(seed)
    for _ in range(count):
        side, inputs = rng.choice(((160, 32), (96, 64), (64, 128), (48, 192), (40, 256), (20, 512), (10, 1024)))
        inputs = 8 * max(1, round(inputs * rng.uniform(0.4, 1.3) / 8))
        groups = rng.choice((1, 1, 1, 1, 0))
        outputs = inputs if groups == 0 else 8 * max(1, round(inputs * rng.choice((0.25, 0.5, 1, 1, 2, 4)) / 8))
        yield (inputs, outputs, side, rng.choice((3, 5, 7) if groups == 0 else (1, 1, 3, 3)), rng.choice((1, 1, 1, 2)), groups)


def convolutions(seed: int) -> Iterator[Case]:
    """Yield the sizes of CONVOLUTIONS in all layouts and passes, mostly by heuristic, some by search."""
    if seed:
        for size, layout, backward in itertools.product(random_convolutions(seed), ("NCHW", "NHWC"), (False, True)):
            for dtype in ("bf16", "tf32", "fp32"):
                yield convolution(dtype, 24, size, layout, backward, False)
        return
    for size, layout, backward in itertools.product(CONVOLUTIONS, ("NCHW", "NHWC"), (False, True)):
        for dtype, batch in (("bf16", 16), ("bf16", 96), ("fp16", 64), ("tf32", 32), ("fp32", 16)):
            yield convolution(dtype, batch, size, layout, backward, False)
    for size, layout, dtype in itertools.product(CONVOLUTIONS[1:15:3], ("NCHW", "NHWC"), ("bf16", "tf32")):
        yield convolution(dtype, 48, size, layout, False, True)
        yield convolution(dtype, 48, size, layout, True, True)


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
            return [image, *(rand(each, weight_dtype) for each in shapes[1:])]

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
