"""The convolutions that `kernel_grid.py` times: sizes of known networks and random sizes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import torch

from sawtooth.sample_traces.kernel_case import Call, Case, rand

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
