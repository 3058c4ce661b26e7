"""Hand-built loops whose attention computes one head after the other.

Some loops only look like that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.anti_patterns import FLASH, GEMM, HALF, SLOW_US, loop, op
from tests.support.chrome_trace import ChromeTrace

BATCH, LENGTH, SIZE, WIDTH = 4, 128, 32, 256
SOFTMAX = "void softmax_warp_forward<float, float, float, 8, false, false>(int)"
QUERIES, KEYS, SCORES = [BATCH, LENGTH, SIZE], [BATCH, SIZE, LENGTH], [BATCH, LENGTH, LENGTH]


def projection(trace: ChromeTrace, at: float, columns: int) -> float:
    """Add a product of all tokens with a weight of ``columns`` columns."""
    return op(trace, at, "aten::mm", [[BATCH * LENGTH, WIDTH], [WIDTH, columns]], HALF, kernel=GEMM, host_us=SLOW_US)


def head(trace: ChromeTrace, at: float, own: bool = False) -> float:
    """Add one attention: a product, scaling, softmax and a product.

    With ``own``, the head has its own projections. That of the values comes after the softmax, as in ``softmax(q(x) @ k(x).T) @ v(x)``.
    """
    for _ in range(2 if own else 0):
        at = projection(trace, at, SIZE)
    at = op(trace, at, "aten::bmm", [QUERIES, KEYS], HALF, kernel=GEMM, host_us=SLOW_US)
    at = op(trace, at, "aten::div", [SCORES, []], HALF, host_us=SLOW_US)
    at = op(trace, at, "aten::_softmax", [SCORES, [], []], HALF, kernel=SOFTMAX, host_us=SLOW_US)
    at = projection(trace, at, SIZE) if own else at
    return op(trace, at, "aten::bmm", [SCORES, QUERIES], HALF, kernel=GEMM, host_us=SLOW_US)


def sliced(trace: ChromeTrace, at: float, heads: int = 8) -> float:
    """Add an attention whose heads are slices of common tensors, and the backward pass of the slices.

    Queries and keys of a head are sliced before its first product, and its values after the softmax. The gradient of each slice is a
    tensor of zeros and a copy.
    """
    at, number, numbers = projection(trace, at, 3 * WIDTH), 100, []

    def cut(at: float) -> float:
        numbers.append(number + len(numbers))
        trace.op("aten::slice", at, at + 2, [[BATCH, LENGTH, WIDTH]], [HALF], **{"Sequence number": numbers[-1]})
        return at + 3

    for _ in range(heads):
        at = op(trace, cut(cut(at)), "aten::bmm", [QUERIES, KEYS], HALF, kernel=GEMM, host_us=SLOW_US)
        at = op(trace, at, "aten::_softmax", [SCORES, [], []], HALF, kernel=SOFTMAX, host_us=SLOW_US)
        at = op(trace, cut(at), "aten::bmm", [SCORES, QUERIES], HALF, kernel=GEMM, host_us=SLOW_US)
    at = projection(trace, op(trace, at, "aten::cat", [[QUERIES] * heads, []], HALF, host_us=SLOW_US), WIDTH)
    trace.thread = 2
    for sequence in reversed(numbers):
        start = at
        for operator in ("aten::zero_", "aten::copy_"):
            at = op(trace, at, operator, [[BATCH, LENGTH, WIDTH]], HALF, host_us=SLOW_US)
        trace.op("autograd::engine::evaluate_function: SliceBackward0", start - 0.2, at - 0.2, **{"Sequence number": sequence})
    trace.thread = 1
    return at


def fused_head(trace: ChromeTrace, at: float) -> float:
    """Add one fused attention over a single head."""
    shapes = [[BATCH, 1, LENGTH, SIZE]] * 3
    at = op(trace, at, "aten::_scaled_dot_product_flash_attention", shapes, HALF, kernel=FLASH, host_us=SLOW_US)
    trace.op("aten::scaled_dot_product_attention", at - SLOW_US - 0.2, at - 0.2)
    return at


def attention(
    trace: ChromeTrace,
    at: float,
    add: Callable[[ChromeTrace, float], float],
    heads: int = 8,
    joins: str = "cat",
    layers: bool = False,
) -> float:
    """Add ``heads`` attentions between two projections, and the operator that joins their results.

    ``joins`` is that operator: "cat" and "copy" join the results, "sum" adds them to each other, "" leaves them separate. With
    ``layers``, each attention is a layer instead of a head: a product follows it.
    """
    at = projection(trace, at, 3 * WIDTH)
    for number in range(heads):
        at = add(trace, at)
        if layers:
            at = projection(trace, at, WIDTH)
        if joins == "sum" and number:
            at = op(trace, at, "aten::add_", [QUERIES, QUERIES], HALF, host_us=SLOW_US)
        if joins == "copy":
            at = op(trace, at, "aten::copy_", [QUERIES, QUERIES], HALF, host_us=SLOW_US)
    if joins == "cat":
        at = op(trace, at, "aten::cat", [[QUERIES] * heads, []], HALF, host_us=SLOW_US)
    return projection(trace, at, WIDTH)


ATTENTION_LOOPS: dict[str, Callable[[Path], list[Path]]] = {
    "heads_in_a_loop": partial(loop, add=partial(attention, add=head)),
    "heads_with_own_projections": partial(loop, add=partial(attention, add=partial(head, own=True))),
    "heads_written_to_their_place": partial(loop, add=partial(attention, add=head, joins="copy")),
    "fused_heads_in_a_loop": partial(loop, add=partial(attention, add=fused_head)),
    "sliced_heads_in_a_loop": partial(loop, add=sliced),
    "two_attentions_joined": partial(loop, add=partial(attention, add=head, heads=2)),
    "attentions_summed": partial(loop, add=partial(attention, add=head, joins="sum")),
    "attentions_of_layers": partial(loop, add=partial(attention, add=head, joins="", layers=True)),
    "layers_joined_at_the_end": partial(loop, add=partial(attention, add=partial(head, own=True), layers=True)),
}
