"""Hand-built loops whose shapes change from step to step, or stay the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.anti_patterns import GEMM, HALF, OP_US, loop, op
from tests.support.chrome_trace import ChromeTrace


def lengths(folder: Path, longest: int) -> list[Path]:
    """Write four steps of one product, alternately with 256 rows and with ``longest`` rows."""
    turns = itertools.cycle((256, longest))

    def add(trace: ChromeTrace, at: float) -> float:
        rows = next(turns)
        return op(trace, at, "aten::mm", [[rows, 1024], [1024, 1024]], HALF, rows / 2, GEMM)

    return loop(folder, add)


def planned(folder: Path, name: str, *, always: bool) -> list[Path]:
    """Write a loop of four layers of the operator ``name``, whose first call is slow for a new length.

    That call takes the host 5 ms. The length is new in each step, or only once.
    """
    lengths = itertools.count(200, 8) if always else itertools.chain((200,), itertools.repeat(208))
    known: set[int] = set()

    def layers(trace: ChromeTrace, at: float) -> float:
        length = next(lengths)
        for _ in range(4):
            takes_us, dims = OP_US if length in known else 5000.0, [[1, 4, length, 64]] * 3
            op(trace, at, name, dims, HALF, 200, "cudnn_generated_fort_native_sdpa", host_us=takes_us)
            at += takes_us + 200  # At this time its kernel is done.
            known.add(length)
        return at

    return loop(folder, layers)


def short_kernels(folder: Path, longer: int) -> list[Path]:
    """Write a loop of 40 products of 4 µs, each of which takes the host 30 µs to launch.

    Their length grows by ``longer`` per step.
    """
    lengths = itertools.count(128, longer)

    def products(trace: ChromeTrace, at: float) -> float:
        length = next(lengths)
        for _ in range(40):
            at = op(trace, at, "aten::mm", [[length, 1024], [1024, 1024]], HALF, kernel=GEMM, host_us=30)
        return at

    return loop(folder, products)


LENGTH_LOOPS: dict[str, Callable[[Path], list[Path]]] = {
    "attention_planned": partial(planned, name="aten::_cudnn_attention_forward", always=True),
    "attention_planned_once": partial(planned, name="aten::_cudnn_attention_forward", always=False),
    "convolutions_planned": partial(planned, name="aten::cudnn_convolution", always=True),
    "two_lengths": partial(lengths, longest=768),
    "one_length": partial(lengths, longest=272),
    "short_kernels_of_many_lengths": partial(short_kernels, longer=64),
    "short_kernels_of_one_length": partial(short_kernels, longer=0),
}
