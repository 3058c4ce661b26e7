"""Recognize whether two sides train one model, by the shapes of their products or by kernels."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from sawtooth.analysis.compare.changed.products import OF_ONE_MODEL, common_share, other_layers
from sawtooth.analysis.compare.changed.resized import resized_layers
from sawtooth.analysis.compare.changed.same_program import MIN_SHARED_SHARE, shared_kernels
from sawtooth.analysis.compare.comparison_side import Side
from sawtooth.analysis.compare.reasons import WORK_DIFFERS
from sawtooth.analysis.compare.significance.measured_steps import mean_of_all

# Share of product shapes that both sides have. If only the batch size differs, the weights' shapes are equal: a third to a
# half of all shapes.
ONE_SHAPE = 0.8
MAX_WORK_RATIO = 100  # Ratio of the FLOPs per step. Ten times the width of all layers has this ratio.


class Models(NamedTuple):
    """The result of comparing the models of both sides.

    ``one_shape`` says that the products of both sides have the same shapes. ``other`` says that the sides train
    different models. ``by_kernels`` says that the kernels were compared instead of the shapes. ``resized`` are the sizes of
    layers that B changed slightly, by A's size.
    """

    one_shape: bool
    other: bool
    by_kernels: bool = False
    resized: Mapping[int, int] = MappingProxyType({})


def models_of(a: Side, b: Side) -> Models:
    """Return what shapes and kernels show about the models of both sides."""
    share = common_share(a.products, b.products)
    if share is None:
        kernels = shared_kernels(a.kernels, b.kernels)
        by_kernels = kernels is not None and kernels < MIN_SHARED_SHARE
        return Models(one_shape=False, other=by_kernels or _nothing_in_common(a, b), by_kernels=by_kernels)
    if sizes := _resized_layers(a, b):
        return Models(one_shape=True, other=False, resized=sizes)
    one_shape = share >= ONE_SHAPE
    different = share < OF_ONE_MODEL or (not one_shape and other_layers(a.weights, b.weights))
    return Models(one_shape, other=different and _other_work(a, b))


def _resized_layers(a: Side, b: Side) -> Mapping[int, int]:
    """Return layer sizes that B changed slightly, by A's size; empty if the batch size may differ."""
    batches = [next((condition.number for condition in side.conditions if condition.key == "batch"), None) for side in (a, b)]
    if None not in batches:
        return resized_layers(a.products, b.products) if batches[0] == batches[1] else {}
    weights_changed = bool(a.weights and b.weights and a.weights != b.weights)
    return resized_layers(a.products, b.products) if weights_changed else {}


def _nothing_in_common(a: Side, b: Side) -> bool:
    """Return whether the sides share no product and no layer, and one does far more work."""
    ratio = _work_ratio(a, b)
    return (
        ratio is not None
        and ratio > MAX_WORK_RATIO
        and not set(a.products) & set(b.products)
        and other_layers(a.weights, b.weights)
    )


def _other_work(a: Side, b: Side) -> bool:
    """Return whether a step of one side does more floating-point work, or the work is not known."""
    ratio = _work_ratio(a, b)
    return ratio is None or ratio - 1 > WORK_DIFFERS


def _work_ratio(a: Side, b: Side) -> float | None:
    flops_a, flops_b = (mean_of_all([run.metrics["flops_per_step"].value for run in side.runs]) for side in (a, b))
    return max(flops_a, flops_b) / min(flops_a, flops_b) if flops_a and flops_b else None
