"""Recognize the model of a trace by the shapes of its main operators.

Main operators, called products here, are matrix products, convolutions, recurrent layers, embeddings and layer norms.

These shapes include the weights, which stay the same when the batch size or the code changes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from fractions import Fraction

import msgspec

from sawtooth.analysis.store.library import Library, Recording
from sawtooth.ingest.errors import SawtoothError

PRODUCTS = r"^aten::(mm|addmm|_addmm_activation|bmm|baddbmm|_scaled_mm|_grouped_mm|convolution|convolution_backward|_cudnn_rnn|embedding|native_layer_norm)$"
MIN_SHAPES = 4  # Smallest number of shapes. With fewer, any two networks of square layers share half of them.
# Share of the smaller set of shapes. In the 125 recordings of tests/recordings and tests/recordings_after, pairs of one model share
# at least 0.33 (widths padded from 4093 to 4096), and usually all shapes. Different models can share as much if they have common
# sizes, up to 0.67 (a GPT and a T5). So ``same_model`` also compares the weights.
OF_ONE_MODEL = 0.3
MIN_SCALED = 2  # Shapes that scale by the same ratio. A single shape may scale by chance.
# Difference of the ratio's logarithm. Work that does not grow with the batch is less than 2 % of the operations.
SAME_RATIO = 0.02
# Index of the operator's input that is always a weight.
WEIGHTS = {"embedding": 0, "convolution": 1, "addmm": 2, "_addmm_activation": 2}
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


def _without_partner(weights: Collection[Weight], other_weights: Collection[Weight]) -> bool:
    return any(
        all(operator != other or _changed_dimension(dims, sizes) is None for other, sizes in other_weights)
        for operator, dims in weights
    )


def products_in(library: Library, recording_id: str) -> frozenset[str]:
    """Return ``products_of`` for a recording of the library; empty if it cannot be read."""
    try:
        with library.open(recording_id, derived=False) as recording:
            return products_of(recording)
    except SawtoothError:
        return frozenset()


def common_share(a: Collection[str], b: Collection[str]) -> Fraction | None:
    """Return the share of the smaller set of shapes that the other side also has.

    None if one side has too few shapes to identify a model.
    """
    fewest = min(len(a), len(b))
    return Fraction(len(set(a) & set(b)), fewest) if fewest >= MIN_SHAPES else None


def batch_ratio(a: Collection[str], b: Collection[str], work_ratio: float | None) -> Fraction | None:
    """Return B's batch size divided by A's, from the shapes of their products.

    A ratio fits if multiplying one dimension of each shape that only A has gives a shape that only B has. A ratio also fits
    if the inverse ratio turns B's shapes into A's. ``work_ratio`` is B's operations per step divided by A's. The result is
    the fitting ratio closest to ``work_ratio``. Swapping the sides inverts the result. None if ``work_ratio`` is not known,
    or if no fitting ratio is within SAME_RATIO of it.
    """
    if not work_ratio:
        return None
    fits = _scaled_by(a, b) | {1 / ratio for ratio in _scaled_by(b, a)}
    distance = {ratio: abs(math.log(float(ratio) / work_ratio)) for ratio in fits}
    closest = min(distance, key=lambda ratio: distance[ratio], default=None)
    return closest if closest is not None and distance[closest] <= SAME_RATIO else None


def _scaled_by(a: Collection[str], b: Collection[str]) -> set[Fraction]:
    """Return the ratios that turn each shape of A alone into a shape of B alone; empty for too few shapes."""
    only_a, only_b = set(a) - set(b), set(b) - set(a)
    ratios = [{ratio for other in only_b if (ratio := _one_dimension(shape, other)) is not None} for shape in only_a]
    return set.intersection(*ratios) if len(ratios) >= MIN_SCALED else set()


def _one_dimension(a: str, b: str) -> Fraction | None:
    """Return the ratio of the only dimension in which two shapes differ.

    None if they differ in none or in several dimensions.
    """
    return _changed_dimension(*([int(size) for size in shape.split(",")] for shape in (a, b)))


def _changed_dimension(a: Collection[int], b: Collection[int]) -> Fraction | None:
    dims_a, dims_b = Counter(a), Counter(b)
    only_a, only_b = list((dims_a - dims_b).elements()), list((dims_b - dims_a).elements())
    return Fraction(only_b[0], only_a[0]) if len(only_a) == len(only_b) == 1 and only_a[0] else None
