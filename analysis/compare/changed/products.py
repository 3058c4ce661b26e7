"""Recognize the model of a trace by the shapes of its main operators.

Main operators, called products here, are matrix products, convolutions, recurrent layers, embeddings and layer norms.

These shapes include those of the weights, which stay the same when the batch size or the code changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from fractions import Fraction

import msgspec

from sawtooth.analysis.store.library import Library, Recording
from sawtooth.ingest.errors import SawtoothError

PRODUCTS = r"^aten::(mm|addmm|_addmm_activation|bmm|baddbmm|_scaled_mm|_grouped_mm|convolution|convolution_backward|_cudnn_rnn|embedding|native_layer_norm)$"
FEWEST = 4  # Number of shapes. With fewer, any two networks of square layers share half of them.
# Share of the smaller set of shapes. Measured on 43 recordings: pairs of one model share 0.36 or more, pairs of different
# models at most 0.33 and mostly nothing. So 0.3 takes a few different models for one; ``same_model`` also compares their weights.
OF_ONE_MODEL = 0.3
LEAST_SCALED = 2  # Shapes that scale by the same ratio. A single one may do so by chance.
SAME_RATIO = 0.02  # Share of operations. Work that does not grow with the batch is less than this.
WEIGHTS = {
    "embedding": 0,
    "convolution": 1,
    "addmm": 2,
    "_addmm_activation": 2,
}  # Index of the operator's input that is always a weight.
_SHAPES = """SELECT DISTINCT s.input_dims FROM cpu_ops o JOIN signatures s USING (signature_id)
    WHERE o.name_id IN (SELECT unnest(?::INTEGER[])) AND s.input_dims IS NOT NULL"""


def products_of(recording: Recording) -> frozenset[str]:
    """Return the shapes of the trace's main operators, each with its dimensions sorted.

    Only shapes of two or more dimensions count. The result is empty if no shapes are recorded.
    """
    names = recording.named(PRODUCTS)
    if not names:
        return frozenset()
    shapes = set()
    for (text,) in recording.rows(_SHAPES, [names]):
        for dims in msgspec.json.decode(text):
            if isinstance(dims, list) and len(dims) > 1 and all(isinstance(size, int) for size in dims):
                shapes.add(",".join(map(str, sorted(dims))))
    return frozenset(shapes)


Weight = tuple[str, tuple[int, ...]]  # An operator, and the sorted dimensions of its weight.


def weights_of(recording: Recording) -> frozenset[Weight]:
    """Return the weights of the trace's embeddings, convolutions and linear layers with a bias.

    The result is empty if no shapes are recorded.
    """
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
    """Return whether each side has a weight without a counterpart on the other side.

    A counterpart is the same weight, or one of the same operator with one dimension changed. The same model with another batch
    size, or with a padded or widened layer, has a counterpart for every weight. Two models that share only a block do not, such
    as a classifier and a detector that uses the classifier as its backbone.
    """
    only_a, only_b = set(a) - set(b), set(b) - set(a)
    return _without_partner(only_a, only_b) and _without_partner(only_b, only_a)


def _without_partner(weights: Collection[Weight], others: Collection[Weight]) -> bool:
    return any(
        all(operator != other or _changed_dimension(dims, sizes) is None for other, sizes in others)
        for operator, dims in weights
    )


def products_in(library: Library, recording_id: str) -> frozenset[str]:
    """Return ``products_of`` for a recording of the library; empty if it cannot be read."""
    try:
        with library.open(recording_id, derived=False) as recording:
            return products_of(recording)
    except SawtoothError:
        return frozenset()


def alike(a: Collection[str], b: Collection[str]) -> Fraction | None:
    """Return the share of the smaller set that both sides have.

    Returns None if one side has too few shapes to identify a model.
    """
    fewest = min(len(a), len(b))
    return Fraction(len(set(a) & set(b)), fewest) if fewest >= FEWEST else None


def batch_ratio(a: Collection[str], b: Collection[str], work_ratio: float | None) -> Fraction | None:
    """Return B's batch size divided by A's, from the shapes of their products.

    Each shape that only A has must become a shape that only B has if one dimension is multiplied by this ratio. ``work_ratio``
    is B's operations per step divided by A's, and must agree with it. None if ``work_ratio`` is not known, or if no
    ratio fits; if several do, the smallest. Swapping the sides inverts the ratio.
    """
    if not work_ratio:
        return None
    if (ratio := _scaled_by(a, b, work_ratio)) is not None:
        return ratio
    reverse = _scaled_by(b, a, 1 / work_ratio)
    return 1 / reverse if reverse is not None else None


def _scaled_by(a: Collection[str], b: Collection[str], work_ratio: float) -> Fraction | None:
    """Return the smallest ratio that makes each shape of A alone a shape of B alone; None without one."""
    only_a, only_b = set(a) - set(b), set(b) - set(a)
    ratios = [{ratio for other in only_b if (ratio := _one_dimension(shape, other)) is not None} for shape in only_a]
    if len(ratios) < LEAST_SCALED:
        return None
    fits = (ratio for ratio in set.intersection(*ratios) if abs(float(ratio) / work_ratio - 1) <= SAME_RATIO)
    return min(fits, default=None)


def _one_dimension(a: str, b: str) -> Fraction | None:
    """Return the ratio of the only dimension in which two shapes differ.

    None if they differ in none or in several dimensions.
    """
    return _changed_dimension(*([int(size) for size in shape.split(",")] for shape in (a, b)))


def _changed_dimension(a: Collection[int], b: Collection[int]) -> Fraction | None:
    dims_a, dims_b = Counter(a), Counter(b)
    only_a, only_b = list((dims_a - dims_b).elements()), list((dims_b - dims_a).elements())
    return Fraction(only_b[0], only_a[0]) if len(only_a) == len(only_b) == 1 and only_a[0] else None
