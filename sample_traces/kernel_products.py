"""The matrix products that `kernel_grid.py` times.

Some sizes are random, the others are those of language models and classifiers.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import torch

from sawtooth.sample_traces.kernel_case import DEVICE, Call, Case, rand


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
        max_flops = 3e11 if dtype in ("fp32", "tf32") else 1.2e12
        counts = {64: 110, 8: 50, 1: 0 if dtype == "fp8" else 50}
        for multiple, count in counts.items():
            multiple = max(multiple, 16) if dtype == "fp8" else multiple
            while count:
                m, n, k = (log_uniform(rng, 32, 32768, multiple) for _ in range(3))
                if not 2e7 <= 2 * m * n * k <= max_flops or m * n + m * k + n * k > 6e8:
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
