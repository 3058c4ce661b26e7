"""Recognize sizes of layers that were padded or slightly changed, such as 774 to 768.

The shapes of all products then change, but the model is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

MAX_SIZE_DIFFERENCE = 0.07  # Share of a size. A width of 774 becomes 768 or 832 by padding to a multiple of 64.
PADDED_TO = 64  # The largest multiple to which sizes are usually padded.
SIZE_MULTIPLE = 8  # Tensor cores need sizes that are multiples of this number.
# Share of the smaller set of shapes that must have a counterpart.
MIN_MATCHED_SHARE = 0.8


def resized_layers(a: Collection[str], b: Collection[str]) -> dict[int, int]:
    """Return the sizes that B changed slightly, by A's size, from the shapes of both sides' products.

    Nearly every shape of the smaller side must have a counterpart that is equal or slightly resized. Otherwise, the result is
    empty.
    """
    only_a, only_b = (
        [_dims(shape) for shape in sorted(set(shapes) - set(other_shapes))] for shapes, other_shapes in ((a, b), (b, a))
    )
    counterparts = [(shape_a, shape_b) for shape_a in only_a if (shape_b := _counterpart(shape_a, only_b)) is not None]
    matched_b = sum(_counterpart(shape_b, only_a) is not None for shape_b in only_b)
    equal, fewest = len(set(a) & set(b)), min(len(set(a)), len(set(b)))
    if not counterparts or equal + min(len(counterparts), matched_b) < MIN_MATCHED_SHARE * fewest:
        return {}
    return dict(sorted({(x, y) for shape_a, shape_b in counterparts for x, y in zip(shape_a, shape_b, strict=True) if x != y}))


def is_resized(a: Sequence[int], b: Sequence[int]) -> bool:
    """Return whether two shapes, with sorted dimensions, have equal or slightly different sizes."""
    return len(a) == len(b) and all(x == y or _similar_size(x, y) for x, y in zip(a, b, strict=True))


def _counterpart(shape: Sequence[int], other_shapes: Sequence[Sequence[int]]) -> Sequence[int] | None:
    candidates = [other for other in other_shapes if is_resized(shape, other)]
    return min(candidates, key=lambda other: sum(abs(x - y) for x, y in zip(shape, other, strict=True)), default=None)


def _similar_size(a: int, b: int) -> bool:
    small, large = sorted((a, b))
    padded = large - small < PADDED_TO and (small % SIZE_MULTIPLE != 0) != (large % SIZE_MULTIPLE != 0)
    return small > 1 and (padded or large <= (1 + MAX_SIZE_DIFFERENCE) * small)


def _dims(shape: str) -> tuple[int, ...]:
    return tuple(int(size) for size in shape.split(","))
