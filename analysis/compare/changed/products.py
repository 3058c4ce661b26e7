"""Which model a trace is of, as far as its matrix products tell: their shapes hold the weights', which stay when the batch or the code changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from fractions import Fraction

import msgspec

from sawtooth.analysis.store.library import Library, Recording
from sawtooth.ingest.errors import SawtoothError

PRODUCTS = r"^aten::(mm|addmm|_addmm_activation|bmm|baddbmm|_scaled_mm|_grouped_mm|convolution|convolution_backward|_cudnn_rnn|embedding|native_layer_norm)$"
FEWEST = 4  # shapes: with fewer, any two networks of square layers share half of them
OF_ONE_MODEL = 0.3  # of 43 recordings, pairs of one model share 0.36 and more of the smaller set, of several at most 0.33, most of them nothing
LEAST_SCALED = 2  # shapes that scale alike: one may do so by chance
SAME_RATIO = 0.02  # of operations: what does not grow with the batch is less
WEIGHTS = {
    "embedding": 0,
    "convolution": 1,
    "addmm": 2,
    "_addmm_activation": 2,
}  # which of an operator's inputs is always a weight
_SHAPES = """SELECT DISTINCT s.input_dims FROM cpu_ops o JOIN signatures s USING (signature_id)
    WHERE o.name_id IN (SELECT unnest(?::INTEGER[])) AND s.input_dims IS NOT NULL"""


def products_of(recording: Recording) -> frozenset[str]:
    """Return the shapes of two and more dimensions that the trace's products take, dimensions in order of size; empty where none are recorded."""
    names = recording.named(PRODUCTS)
    if not names:
        return frozenset()
    shapes = set()
    for (text,) in recording.rows(_SHAPES, [names]):
        for dims in msgspec.json.decode(text):
            if isinstance(dims, list) and len(dims) > 1 and all(isinstance(size, int) for size in dims):
                shapes.add(",".join(map(str, sorted(dims))))
    return frozenset(shapes)


Weight = tuple[str, tuple[int, ...]]  # an operator, and the dimensions of its weight in order of size


def weights_of(recording: Recording) -> frozenset[Weight]:
    """Return the weights of the trace's embeddings, convolutions and linear layers with a bias; empty where no shapes are recorded."""
    weights = set()
    for operator, place in WEIGHTS.items():
        names = recording.named(f"^aten::{operator}$")
        for (text,) in recording.rows(_SHAPES, [names]) if names else []:
            shapes = msgspec.json.decode(text)
            dims = shapes[place] if place < len(shapes) else None
            if isinstance(dims, list) and len(dims) > 1 and all(isinstance(size, int) for size in dims):
                weights.add((operator.removeprefix("_").removesuffix("_activation"), tuple(sorted(dims))))
    return frozenset(weights)


def other_layers(a: Collection[Weight], b: Collection[Weight]) -> bool:
    """Tell whether each side has a weight that the other has nothing for: not the same, and none of the same operator in another size.

    One model in another batch, or with a padded or widened layer, has one for each; two that share a block, as a classifier and what is built on
    its backbone, have not.
    """
    only_a, only_b = set(a) - set(b), set(b) - set(a)
    return _without_partner(only_a, only_b) and _without_partner(only_b, only_a)


def _without_partner(weights: Collection[Weight], others: Collection[Weight]) -> bool:
    return any(
        all(operator != other or _changed_dimension(dims, sizes) is None for other, sizes in others)
        for operator, dims in weights
    )


def products_in(library: Library, recording_id: str) -> frozenset[str]:
    """Return ``products_of`` a recording of the library; empty where it cannot be read."""
    try:
        with library.open(recording_id, derived=False) as recording:
            return products_of(recording)
    except SawtoothError:
        return frozenset()


def alike(a: Collection[str], b: Collection[str]) -> Fraction | None:
    """Return the share of the smaller set that both have; None where one has too few shapes to tell a model by."""
    least = min(len(a), len(b))
    return Fraction(len(set(a) & set(b)), least) if least >= FEWEST else None


def batch_ratio(a: Collection[str], b: Collection[str], work_ratio: float | None) -> Fraction | None:
    """Return how many times A's batch B has: each shape that A alone has, with one dimension times this, is one that B alone has.

    ``work_ratio`` are B's operations in a step for one of A's; a batch has as many times the work. None where they are not known, or no one ratio does.
    """
    only_a, only_b = set(a) - set(b), set(b) - set(a)
    ratios = [{ratio for other in only_b if (ratio := _one_dimension(shape, other)) is not None} for shape in only_a]
    if work_ratio is None or len(ratios) < LEAST_SCALED:
        return None
    fits = (ratio for ratio in set.intersection(*ratios) if abs(float(ratio) / work_ratio - 1) <= SAME_RATIO)
    return min(fits, default=None)


def _one_dimension(a: str, b: str) -> Fraction | None:
    """Return the ratio of the only dimension in which two shapes differ; None for shapes that differ in several or none."""
    return _changed_dimension(*([int(size) for size in shape.split(",")] for shape in (a, b)))


def _changed_dimension(a: Collection[int], b: Collection[int]) -> Fraction | None:
    dims_a, dims_b = Counter(a), Counter(b)
    gone, come = list((dims_a - dims_b).elements()), list((dims_b - dims_a).elements())
    return Fraction(come[0], gone[0]) if len(gone) == len(come) == 1 and gone[0] else None
